"""Estimates, intervals and tests on plain arrays, with numpy and scipy. Knows nothing of runs or metrics."""

from evalflows.stats.differences.components import Components, difference_components
from evalflows.stats.differences.paired import PairedDifference, paired_difference
from evalflows.stats.differences.power import (
    Plan,
    cautious_sd,
    detectable_effect,
    needed_examples,
    plan_sizes,
    power_of,
)
from evalflows.stats.differences.sequential import (
    ClusterValues,
    ConfidenceSequence,
    cluster_values,
    confidence_sequence,
)
from evalflows.stats.differences.unpaired import UnpairedDifference, unpaired_difference
from evalflows.stats.distributions import normal_quantile
from evalflows.stats.mean import MeanEstimate, mean_estimate
from evalflows.stats.multiplicity import Adjustment, adjusted
from evalflows.stats.preferences.cycles import cycles
from evalflows.stats.preferences.length_control import LengthControlled, length_controlled_rates
from evalflows.stats.preferences.ratings import Ratings, bradley_terry
from evalflows.stats.rater_agreement.agreement import Agreement, agreement
from evalflows.stats.rater_agreement.discrimination import Discrimination, discrimination
from evalflows.stats.rater_agreement.prediction_powered import PredictionPowered, prediction_powered_mean
from evalflows.stats.share import ShareEstimate, combined_share, share_estimate
from evalflows.stats.thresholds import OneSidedP, one_sided_p
from evalflows.stats.trials import pass_at_k, pass_hat_k
from evalflows.stats.weights.inverse_probability import linearised
from evalflows.stats.weights.pareto import ParetoFront, means_of_examples, pareto_front
from evalflows.stats.weights.run_parts import RunParts, run_parts
from evalflows.stats.weights.weight_space import OneAtATime, WeightShares, one_at_a_time, share_of_weights

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
