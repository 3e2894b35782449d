"""The minimum detectable effect of a finished comparison."""

from typing import Any

from evalflows.stats import PairedDifference, detectable_effect, normal_quantile

POWER = 0.8
"""The power of the minimum detectable effect: the usual one in planning trials."""


def detectable_effect_columns(difference: PairedDifference) -> dict[str, Any]:
    """The columns of a verdict's row with the minimum detectable effect and its power."""
    standard_error = standard_error_of(difference)
    if standard_error is None:
        return {"minimum_detectable_effect": None, "power": None}
    df = None if difference.n_clusters is None else max(difference.n_clusters - 1, 1)
    return {
        "minimum_detectable_effect": detectable_effect(
            standard_error, df=df, confidence_level=difference.confidence_level, power=POWER
        ),
        "power": POWER,
    }


def standard_error_of(difference: PairedDifference) -> float | None:
    """The test's standard error, else the one implied by the interval; None without either, or if it is 0."""
    if difference.standard_error is not None:
        return difference.standard_error or None
    if difference.low is None or difference.high is None or difference.low == difference.high:
        return None
    return (difference.high - difference.low) / 2 / normal_quantile(difference.confidence_level)
