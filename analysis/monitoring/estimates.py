"""Estimates of windows for watch rules, and the confidence levels at which rules hold their rate of false alarms."""

from datetime import timedelta

from evalflows.specs.watching import WindowSize
from evalflows.stats import normal_quantile
from evalflows.stats.mean import MeanEstimate
from evalflows.stats.monitoring import WindowSums
from evalflows.store.queries.trace_windows import Window
from evalflows.store.records import EstimateRow
from evalflows.store.trace_records import WatchedWindowRow

LENGTH: dict[WindowSize, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
WINDOWS: dict[WindowSize, int] = {"hour": 720, "day": 30}
"""Windows in 30 days."""

FALSE_ALARMS = 0.75
"""False alarms that a rule with intervals may raise in 30 days, over all its slices, if the truth is at its bound. With
daily windows of one slice the confidence level is then 95 %."""


def default_level(size: WindowSize, slices: int) -> float:
    """Return the confidence level of two-sided intervals of which one side errs FALSE_ALARMS times in 30 days."""
    return 1 - 2 * FALSE_ALARMS / (WINDOWS[size] * max(1, slices))


def alarm_threshold(size: WindowSize, slices: int) -> float:
    """Return the e-value of an alarm: as many windows as there are in 30 days, for one false alarm in them at most."""
    return float(WINDOWS[size] * max(1, slices))


def sums_of(window: Window) -> WindowSums:
    """Return a window's sums for `stats.monitoring`."""
    names = WindowSums.__slots__
    return WindowSums(**{name: getattr(window, name) for name in names})


def estimate_of(row: WatchedWindowRow | EstimateRow, level: float) -> MeanEstimate | None:
    """Return a stored mean with its interval at another level; None if it has none.

    Both halves of the interval are scaled by the ratio of the normal quantiles.
    """
    mean = row.value if isinstance(row, WatchedWindowRow) else row.mean
    if mean is None or row.ci_low is None or row.ci_high is None or row.confidence_level is None:
        return None
    ratio = normal_quantile(level) / normal_quantile(row.confidence_level)
    n = row.n if isinstance(row, WatchedWindowRow) else row.n_examples
    return MeanEstimate(
        mean=mean,
        low=mean - ratio * (mean - row.ci_low),
        high=mean + ratio * (row.ci_high - mean),
        confidence_level=level,
        method="stored",
        n=n,
        n_clusters=row.n_clusters,
        reason=None,
    )
