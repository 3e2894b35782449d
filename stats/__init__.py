"""Arrays in, figures out: how good, how sure, better or not. Knows numpy and scipy, and nothing of runs or metrics."""

from stats.agreement import Agreement, agreement
from stats.calibration import Calibration, calibrated_weights, ordered_pairs
from stats.components import Components, difference_components
from stats.cycles import cycles
from stats.distributions import normal_quantile
from stats.length_control import LengthControlled, length_controlled
from stats.mean import MeanEstimate, mean_estimate
from stats.multiplicity import Adjustment, adjusted
from stats.nearest_flip import NearestFlip, nearest_flip
from stats.paired import Method, PairedDifference, paired_difference
from stats.pareto import ParetoFront, means_of_examples, pareto_front
from stats.power import Plan, cautious_sd, detectable_effect, needed_examples, plan_sizes, power_of
from stats.prediction_powered import PredictionPowered, prediction_powered_mean
from stats.rate import Discrimination, discrimination
from stats.ratings import Ratings, bradley_terry
from stats.run_parts import RunParts, run_parts
from stats.sequential import ClusterValues, ConfidenceSequence, cluster_values, confidence_sequence
from stats.share import ShareEstimate, combined_share, share_estimate
from stats.thresholds import Beyond, beyond
from stats.trials import pass_at_k, pass_hat_k
from stats.unpaired import UnpairedDifference, UnpairedMethod, unpaired_difference
from stats.weight_space import OneAtATime, WeightShares, WinnerStays, one_at_a_time, share_of_weights, winner_stays
from stats.weights import linearised

__all__ = [
    "Adjustment",
    "Agreement",
    "Beyond",
    "Calibration",
    "ClusterValues",
    "Components",
    "ConfidenceSequence",
    "Discrimination",
    "LengthControlled",
    "MeanEstimate",
    "Method",
    "NearestFlip",
    "OneAtATime",
    "PairedDifference",
    "ParetoFront",
    "Plan",
    "PredictionPowered",
    "Ratings",
    "RunParts",
    "ShareEstimate",
    "UnpairedDifference",
    "UnpairedMethod",
    "WeightShares",
    "WinnerStays",
    "adjusted",
    "agreement",
    "beyond",
    "bradley_terry",
    "calibrated_weights",
    "cautious_sd",
    "cluster_values",
    "combined_share",
    "confidence_sequence",
    "cycles",
    "detectable_effect",
    "difference_components",
    "discrimination",
    "length_controlled",
    "linearised",
    "mean_estimate",
    "means_of_examples",
    "nearest_flip",
    "needed_examples",
    "normal_quantile",
    "one_at_a_time",
    "ordered_pairs",
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
    "winner_stays",
]
