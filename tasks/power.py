"""How small a difference a finished comparison could have seen."""

from typing import Any

from stats import PairedDifference, detectable_effect, normal_quantile

POWER = 0.8
"""The chance with which a difference of that size would have been found: what trials are planned by."""


def seeable(found: PairedDifference) -> dict[str, Any]:
    """The smallest difference that would have been found so often, by the names of a verdict's record."""
    error = standard_error_of(found)
    if error is None:
        return {"smallest_detectable_effect": None, "power": None}
    df = None if found.n_clusters is None else max(found.n_clusters - 1, 1)
    return {
        "smallest_detectable_effect": detectable_effect(error, df=df, level=found.level, power=POWER),
        "power": POWER,
    }


def standard_error_of(found: PairedDifference) -> float | None:
    """As the test has it, else as wide as the interval says; None where there is neither, or no spread."""
    if found.standard_error is not None:
        return found.standard_error or None
    if found.low is None or found.high is None or found.low == found.high:
        return None
    return (found.high - found.low) / 2 / normal_quantile(found.level)
