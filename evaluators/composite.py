"""Several metrics of one run as one number."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from specs.metric import MEASURES, CompositeSpec, MetricSpec
from store.records import ScoreStatus

YES_NO = (0.0, 1.0)
"""The range of a metric that declares none."""

Function = Callable[[Mapping[str, float]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One metric of a run."""

    value: float | None
    status: ScoreStatus
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What became of the parts: a value from 0 to 1, or why there is none."""

    status: Literal["scored", "failed", "not_applicable", "sampled_out"]
    value: float | None = None
    error: str | None = None
    comment: str | None = None
    parts: Mapping[str, float | None]  # each scaled to 0 (worst) to 1 (best)


class _MissingError(Exception):
    """A part without which there is no composite."""


def combined(
    composite: CompositeSpec,
    parts: Mapping[str, Part],
    metrics: Mapping[str, MetricSpec],
    function: Function | None = None,
) -> Combined:
    """One number of the parts, after each was scaled to 0 (worst) to 1 (best).

    A part that does not apply is left out with its weight. What is done about one that is missing, `composite.missing`
    says. A part that is outside of its range, or a label, makes the composite fail, as does a gate whose metric is
    missing: it cannot be said to hold. Where a part was not drawn for a sample, neither is the composite. `function`
    is the user's own way, loaded; what it raises or returns wrongly is a failure too.
    """
    scaled: dict[str, float | None] = {}
    try:
        if any(_part(parts, metric).status == "sampled_out" for metric in composite.metrics):
            return Combined(status="sampled_out", parts=scaled)
        for metric in composite.weights:
            _scale_in(scaled, metric, _part(parts, metric), metrics[metric], composite.missing)
        closed = _closed_gate(composite, parts, metrics)
        return _whole(composite, scaled, closed, function)
    except (_MissingError, ValueError) as error:
        return Combined(status="failed", error=str(error), parts=scaled)


def _part(parts: Mapping[str, Part], metric: str) -> Part:
    return parts.get(metric) or Part(value=None, status="failed", error="no evaluator gave it")


def _scale_in(scaled: dict[str, float | None], metric: str, part: Part, declared: MetricSpec, policy: str) -> None:
    """Add a part, unless it does not apply; None stands for one that is missing and left out."""
    if part.status == "scored":
        scaled[metric] = _scaled(metric, part.value, declared)
    elif part.status in ("failed", "not_attempted"):
        if policy == "fail":
            raise _MissingError(f"{metric} is missing: {part.error or part.status}")
        scaled[metric] = 0.0 if policy == "worst" else None


def _closed_gate(composite: CompositeSpec, parts: Mapping[str, Part], metrics: Mapping[str, MetricSpec]) -> str | None:
    """Which gate is closed first, in words. All are looked at, as it may not count in which order they stand."""
    closed = [
        _why_closed(metric, bound, _part(parts, metric), metrics[metric], composite.missing)
        for metric, bound in composite.gates.items()
    ]
    return next((why for why in closed if why is not None), None)


def _why_closed(metric: str, bound: float, part: Part, declared: MetricSpec, policy: str) -> str | None:
    """Why a gate is closed; None for one that is open. A gate whose metric does not apply is none."""
    if part.status in ("failed", "not_attempted"):
        if policy == "worst":
            return f"gate: {metric} is missing"
        raise _MissingError(f"gate {metric} is missing: {part.error or part.status}")
    if part.status == "scored" and part.value is None:
        raise ValueError(f"gate {metric} is a label, wanted a number")
    higher = declared.is_higher_better(metric)
    if part.value is None or (part.value >= bound if higher else part.value <= bound):
        return None
    return f"gate: {metric} is {part.value:g}, wanted {'at least' if higher else 'at most'} {bound:g}"


def _whole(
    composite: CompositeSpec, scaled: Mapping[str, float | None], closed: str | None, function: Function | None
) -> Combined:
    if closed is not None:
        return Combined(status="scored", value=0.0, comment=closed, parts=scaled)
    known = {metric: value for metric, value in scaled.items() if value is not None}
    if not known and scaled:
        raise _MissingError("every part is missing")
    value = None if not known else _own(function, known) if function else _HOW[composite.how](composite.weights, known)
    return Combined(status="not_applicable" if value is None else "scored", value=value, parts=scaled)


def _own(function: Function, known: Mapping[str, float]) -> float | None:
    """What the user's function makes of the parts."""
    try:
        value = function(dict(known))
    except Exception as error:
        raise ValueError(f"the composite's function raised {type(error).__name__}: {error}") from error
    if value is None:
        return None
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"the composite's function returned {value!r}, wanted 0 to 1, or None")
    return float(value)


def _weighted_mean(weights: Mapping[str, float], known: Mapping[str, float]) -> float:
    return sum(weights[metric] * part for metric, part in known.items()) / sum(weights[metric] for metric in known)


def _geometric_mean(weights: Mapping[str, float], known: Mapping[str, float]) -> float:
    """exp(sum of weight x log of part / sum of weights)."""
    if not all(known.values()):
        return 0.0
    return math.exp(_weighted_mean(weights, {metric: math.log(part) for metric, part in known.items()}))


def _minimum(weights: Mapping[str, float], known: Mapping[str, float]) -> float:
    return min(known.values())


_HOW = {"weighted_mean": _weighted_mean, "geometric_mean": _geometric_mean, "minimum": _minimum}


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
