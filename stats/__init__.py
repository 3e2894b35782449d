"""Arrays in, figures out: how good, how sure, better or not. Knows numpy and scipy, and nothing of runs or metrics."""

from stats.agreement import Agreement, agreement
from stats.bounds import worst_case_difference
from stats.cycles import cycles
from stats.length_control import LengthControlled, length_controlled
from stats.mean import MeanEstimate, mean_estimate
from stats.paired import PairedDifference, paired_difference
from stats.rate import Discrimination, discrimination
from stats.ratings import Ratings, bradley_terry
from stats.share import ShareEstimate, combined_share, share_estimate
from stats.trials import pass_at_k, pass_hat_k
from stats.weights import linearised

__all__ = [
    "Agreement",
    "Discrimination",
    "LengthControlled",
    "MeanEstimate",
    "PairedDifference",
    "Ratings",
    "ShareEstimate",
    "agreement",
    "bradley_terry",
    "combined_share",
    "cycles",
    "discrimination",
    "length_controlled",
    "linearised",
    "mean_estimate",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "share_estimate",
    "worst_case_difference",
]
