"""Several metrics of one run as one number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from specs.metric import MEASURES, CompositeSpec, MetricSpec
from store.records import ScoreStatus

YES_NO = (0.0, 1.0)
"""The range of a metric that declares none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One metric of a run."""

    value: float | None
    status: ScoreStatus
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What became of the parts: a value from 0 to 1, or why there is none."""

    status: Literal["scored", "failed", "not_applicable"]
    value: float | None = None
    error: str | None = None
    parts: Mapping[str, float | None]  # each scaled to 0 (worst) to 1 (best)


def combined(composite: CompositeSpec, parts: Mapping[str, Part], metrics: Mapping[str, MetricSpec]) -> Combined:
    """The weighted mean of the parts, after each was scaled to 0 (worst) to 1 (best).

    A part that does not apply is left out with its weight. What is done about one that is missing, `composite.missing`
    says. A part that is outside of its range, or a label, makes the composite fail.
    """
    scaled: dict[str, float | None] = {}
    for metric in composite.weights:
        part = parts.get(metric) or Part(value=None, status="failed", error="no evaluator gave it")
        if part.status == "scored":
            try:
                scaled[metric] = _scaled(metric, part.value, metrics[metric])
            except ValueError as error:
                return Combined(status="failed", error=str(error), parts=scaled)
        elif part.status in ("failed", "not_attempted"):
            if composite.missing == "fail":
                return Combined(
                    status="failed", error=f"{metric} is missing: {part.error or part.status}", parts=scaled
                )
            scaled[metric] = 0.0 if composite.missing == "worst" else None
    known = {metric: value for metric, value in scaled.items() if value is not None}
    if not known:
        lost = bool(scaled)
        return Combined(
            status="failed" if lost else "not_applicable", error="every part is missing" if lost else None, parts=scaled
        )
    total = sum(composite.weights[metric] for metric in known)
    value = sum(composite.weights[metric] * part for metric, part in known.items()) / total
    return Combined(status="scored", value=value, parts=scaled)


def _scaled(metric: str, value: float | None, declared: MetricSpec) -> float:
    """A value from 0 (worst) to 1 (best). A measure outside of its range counts as the bound: it knows none itself."""
    if value is None:
        raise ValueError(f"{metric} is a label, wanted a number")
    low, high = declared.range or YES_NO
    if metric in MEASURES:
        value = min(max(value, low), high)
    if not low <= value <= high:
        raise ValueError(f"{metric}: got {value:g}, wanted {low:g} to {high:g} (metrics: {{{metric}: {{range: …}}}})")
    share = (value - low) / (high - low)
    return share if declared.is_higher_better(metric) else 1 - share
