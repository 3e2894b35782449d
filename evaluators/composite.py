"""Composites: several metrics of one run combined into one number."""

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal, NamedTuple

from evalflows.specs.code_versions import fault_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.metrics import CompositeSpec, MetricSpec
from evalflows.store.records import ScoreStatus

YES_NO = (0.0, 1.0)
"""The default range of a metric."""

Function = Callable[[Mapping[str, float]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPart:
    """One metric of a run."""

    value: float | None
    status: ScoreStatus
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """A composite of a run: a value from 0 to 1, or why it is missing."""

    status: Literal["scored", "failed", "not_applicable", "sampled_out"]
    value: float | None = None
    error: str | None = None
    comment: str | None = None
    unmet_requirement: str | None = None  # the metric whose unmet requirement makes it 0, whatever the weights
    parts: Mapping[str, float | None]  # each scaled to 0 (worst) to 1 (best)


class _Unmet(NamedTuple):
    """A requirement that is not met, which makes the composite 0."""

    metric: str
    text: str


class _MissingError(Exception):
    """A part that the composite needs is missing."""


def combined(
    composite: CompositeSpec,
    parts: Mapping[str, MetricPart],
    metrics: Mapping[str, MetricSpec],
    function: Function | None = None,
) -> Combined:
    """Scale each part to 0 (worst) to 1 (best), then combine them into one number.

    A part that does not apply is left out with its weight; `composite.missing` says what happens to a missing part. The
    composite fails if a part is a label or outside its range, and if the metric of a requirement is missing, since
    it cannot be checked. It is sampled out if any part was. `function` is the user's own function, loaded; the
    composite also fails if it raises or returns an invalid value.
    """
    scaled: dict[str, float | None] = {}
    try:
        if any(_part(parts, metric).status == "sampled_out" for metric in composite.metrics):
            return Combined(status="sampled_out", parts=scaled)
        for metric in composite.weights:
            _add_scaled(scaled, metric, _part(parts, metric), metrics[metric], composite.missing)
        unmet = _unmet_requirement(composite, parts, metrics)
        return _combine(composite, scaled, unmet, function)
    except (_MissingError, ValueError) as error:
        return Combined(status="failed", error=str(error), parts=scaled)


def _part(parts: Mapping[str, MetricPart], metric: str) -> MetricPart:
    return parts.get(metric) or MetricPart(value=None, status="failed", error="no evaluator returned it")


def _add_scaled(
    scaled: dict[str, float | None], metric: str, part: MetricPart, declared: MetricSpec, policy: str
) -> None:
    """Add a part, unless it does not apply; None marks a missing part that is left out."""
    if part.status == "scored":
        scaled[metric] = _scaled(metric, part.value, declared)
    elif part.status in ("failed", "not_attempted"):
        if policy == "fail":
            raise _MissingError(f"{metric} is missing: {part.error or part.status}")
        scaled[metric] = 0.0 if policy == "worst" else None


def _unmet_requirement(
    composite: CompositeSpec, parts: Mapping[str, MetricPart], metrics: Mapping[str, MetricSpec]
) -> _Unmet | None:
    """Return the first unmet requirement, or None. All are checked, so their order does not matter."""
    unmet = [
        _check_requirement(metric, bound, _part(parts, metric), metrics[metric], composite.missing)
        for metric, bound in composite.requirements.items()
    ]
    return next((requirement for requirement in unmet if requirement is not None), None)


def _check_requirement(metric: str, bound: float, part: MetricPart, declared: MetricSpec, policy: str) -> _Unmet | None:
    """Return the requirement if it is unmet; None if it is met or its metric does not apply."""
    if part.status in ("failed", "not_attempted"):
        if policy == "worst":
            return _Unmet(metric, f"requirement: {metric} is missing")
        raise _MissingError(f"requirement {metric} is missing: {part.error or part.status}")
    if part.status == "scored" and part.value is None:
        raise ValueError(f"requirement {metric} is a label, wanted a number")
    higher = declared.is_higher_better(metric)
    if part.value is None or (part.value >= bound if higher else part.value <= bound):
        return None
    wanted = f"{'at least' if higher else 'at most'} {bound:g}"
    return _Unmet(metric, f"requirement: {metric} is {part.value:g}, wanted {wanted}")


def _combine(
    composite: CompositeSpec, scaled: Mapping[str, float | None], unmet: _Unmet | None, function: Function | None
) -> Combined:
    if unmet is not None:
        return Combined(status="scored", value=0.0, comment=unmet.text, unmet_requirement=unmet.metric, parts=scaled)
    known = {metric: value for metric, value in scaled.items() if value is not None}
    if not known and scaled:
        raise _MissingError("every part is missing")
    value = None
    if known:
        aggregate = _AGGREGATIONS[composite.aggregation]
        value = _user_value(function, known) if function else aggregate(composite.weights, known)
    return Combined(status="not_applicable" if value is None else "scored", value=value, parts=scaled)


def _user_value(function: Function, known: Mapping[str, float]) -> float | None:
    """Call the user's function on the parts."""
    try:
        value = function(dict(known))
    except Exception as error:
        raise ValueError(f"the composite's function raised {fault_text(error)}") from error
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


_AGGREGATIONS = {"weighted_mean": _weighted_mean, "geometric_mean": _geometric_mean, "minimum": _minimum}


def _scaled(metric: str, value: float | None, declared: MetricSpec) -> float:
    """Scale a value to 0 (worst) to 1 (best). Built-in measures have no natural range, so they are clipped."""
    if value is None:
        raise ValueError(f"{metric} is a label, wanted a number")
    low, high = declared.range or YES_NO
    if metric in MEASURES:
        value = min(max(value, low), high)
    if not low <= value <= high:
        raise ValueError(f"{metric}: got {value:g}, wanted {low:g} to {high:g} (metrics: {{{metric}: {{range: …}}}})")
    share = (value - low) / (high - low)
    return share if declared.is_higher_better(metric) else 1 - share
