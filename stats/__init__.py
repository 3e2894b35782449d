"""Arrays in, figures out: how good, how sure, better or not. Knows numpy and scipy, and nothing of runs or metrics."""

from stats.bounds import worst_case_difference
from stats.mean import MeanEstimate, mean_estimate
from stats.paired import PairedDifference, paired_difference
from stats.rate import Discrimination, discrimination
from stats.trials import pass_at_k, pass_hat_k
from stats.weights import linearised

__all__ = [
    "Discrimination",
    "MeanEstimate",
    "PairedDifference",
    "discrimination",
    "linearised",
    "mean_estimate",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "worst_case_difference",
]
