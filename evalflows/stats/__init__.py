"""Estimates, intervals and tests on plain arrays, with numpy and scipy. Knows nothing of runs or metrics."""

from evalflows.stats.agreement import Agreement, Discrimination, agreement, discrimination, krippendorff_alpha
from evalflows.stats.judge_error import PredictionPowered, prediction_powered_mean
from evalflows.stats.length_control import LengthControlled, length_controlled_rates
from evalflows.stats.means import MeanEstimate, ShareEstimate, combined_share, linearised, mean_estimate, share_estimate
from evalflows.stats.multiple_tests import Adjustment, adjusted
from evalflows.stats.paired import (
    Components,
    PairedDifference,
    UnpairedDifference,
    difference_components,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    unpaired_difference,
)
from evalflows.stats.power import Plan, cautious_sd, detectable_effect, needed_examples, plan_sizes, power_of
from evalflows.stats.proportions import OneSidedP, normal_quantile, one_sided_p
from evalflows.stats.ratings import Ratings, bradley_terry, cycles
from evalflows.stats.sequential import ClusterValues, ConfidenceSequence, cluster_values, confidence_sequence
from evalflows.stats.weights import (
    OneAtATime,
    ParetoFront,
    RunParts,
    WeightShares,
    means_of_examples,
    one_at_a_time,
    pareto_front,
    run_parts,
    share_of_weights,
)

__all__ = [
    "Adjustment",
    "Agreement",
    "ClusterValues",
    "Components",
    "ConfidenceSequence",
    "Discrimination",
    "LengthControlled",
    "MeanEstimate",
    "OneAtATime",
    "OneSidedP",
    "PairedDifference",
    "ParetoFront",
    "Plan",
    "PredictionPowered",
    "Ratings",
    "RunParts",
    "ShareEstimate",
    "UnpairedDifference",
    "WeightShares",
    "adjusted",
    "agreement",
    "bradley_terry",
    "cautious_sd",
    "cluster_values",
    "combined_share",
    "confidence_sequence",
    "cycles",
    "detectable_effect",
    "difference_components",
    "discrimination",
    "krippendorff_alpha",
    "length_controlled_rates",
    "linearised",
    "mean_estimate",
    "means_of_examples",
    "needed_examples",
    "normal_quantile",
    "one_at_a_time",
    "one_sided_p",
    "paired_difference",
    "pareto_front",
    "pass_at_k",
    "pass_hat_k",
    "plan_sizes",
    "power_of",
    "prediction_powered_mean",
    "run_parts",
    "share_estimate",
    "share_of_weights",
    "unpaired_difference",
]
