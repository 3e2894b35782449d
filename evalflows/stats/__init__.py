"""Estimates, intervals and tests on plain arrays, with numpy and scipy. Knows nothing of runs or metrics.

The statistics that the documentation names for use on one's own figures are offered here. They are imported when they
are first used, but those that are named like their module, which would be found instead.
"""

from typing import TYPE_CHECKING

from evalflows.specs.late_names import lazy_names
from evalflows.stats.pass_at_k import pass_at_k, pass_hat_k

if TYPE_CHECKING:
    from evalflows.stats.agreement import krippendorff_alpha
    from evalflows.stats.judge_error import prediction_powered_mean

__all__ = ["krippendorff_alpha", "pass_at_k", "pass_hat_k", "prediction_powered_mean"]

__getattr__, __dir__ = lazy_names(
    __name__, {"agreement": ("krippendorff_alpha",), "judge_error": ("prediction_powered_mean",)}
)
