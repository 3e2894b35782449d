"""The minimum detectable effect of a finished comparison."""

from typing import Any

from evalflows.stats import PairedDifference, detectable_effect, normal_quantile

POWER = 0.8
"""The power of the minimum detectable effect: the usual one in planning trials."""


def detectable_effect_columns(found: PairedDifference) -> dict[str, Any]:
    """The columns of a verdict's row with the minimum detectable effect and its power."""
    error = standard_error_of(found)
    if error is None:
        return {"minimum_detectable_effect": None, "power": None}
    df = None if found.n_clusters is None else max(found.n_clusters - 1, 1)
    return {
        "minimum_detectable_effect": detectable_effect(
            error, df=df, confidence_level=found.confidence_level, power=POWER
        ),
        "power": POWER,
    }


def standard_error_of(found: PairedDifference) -> float | None:
    """The test's standard error, else the one implied by the interval; None without either, or if it is 0."""
    if found.standard_error is not None:
        return found.standard_error or None
    if found.low is None or found.high is None or found.low == found.high:
        return None
    return (found.high - found.low) / 2 / normal_quantile(found.confidence_level)
