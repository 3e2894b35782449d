"""Estimates, intervals and tests on plain arrays, with numpy and scipy. Knows nothing of runs or metrics.

The statistics that the documentation names for use on one's own figures are offered here.
"""

from evalflows.stats.agreement import krippendorff_alpha
from evalflows.stats.judge_error import prediction_powered_mean
from evalflows.stats.pass_at_k import pass_at_k, pass_hat_k

__all__ = ["krippendorff_alpha", "pass_at_k", "pass_hat_k", "prediction_powered_mean"]
