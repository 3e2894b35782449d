"""What an evaluator declares of its metrics: which way is better, and their range."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import isfunction
from typing import Any, TypeVar

from pydantic import ValidationError

from evaluators.settings import is_number
from evaluators.sheet import SCALE
from specs.errors import InputError, first_problem
from specs.metric import MetricSpec
from specs.reference import name_of

Direction = dict[str, Any]
"""`higher_is_better` and `range`, as in a spec's `metrics`."""

Metrics = Callable[[str, Mapping[str, Any]], dict[str, Direction]]
"""From an evaluator's name in the spec, and its settings, to what is declared of each of its metrics."""

_FIELDS = {"higher_is_better", "range"}

Evaluator = TypeVar("Evaluator", bound=Callable[..., Any])


def declares(metrics: Metrics) -> Callable[[Evaluator], Evaluator]:
    """Gives an evaluator the attribute `metrics`; it stays the same function."""

    def declare(function: Evaluator) -> Evaluator:
        vars(function)["metrics"] = metrics
        return function

    return declare


def zero_to_one(*, higher_is_better: bool = True) -> Direction:
    """Of a yes or no, or a share."""
    return {"higher_is_better": higher_is_better, "range": [0.0, 1.0]}


def share(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """One metric from 0 (worst) to 1 (best)."""
    return {name: zero_to_one()}


def fault(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """One metric from 0 (best) to 1 (worst)."""
    return {name: zero_to_one(higher_is_better=False)}


def on_the_scale(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """The evaluator's own metric, and one for each criterion: from the worst of the scale, or of the labels' numbers,
    to the best. There is no range where labels have no numbers, nor for settings that the evaluator will refuse."""
    labels, criteria = settings.get("labels"), settings.get("criteria")
    metrics = [name, *(criteria if isinstance(criteria, Mapping) else ())]
    ends = settings.get("scale", SCALE) if labels is None else _numbers(labels)
    is_range = isinstance(ends, list | tuple) and all(is_number(end) for end in ends) and len({*ends}) > 1
    declared = {"range": [float(min(ends)), float(max(ends))]} if is_range else {}
    return {metric: {"higher_is_better": True, **declared} for metric in metrics}


def _numbers(labels: Any) -> list[Any]:
    return [*labels.values()] if isinstance(labels, Mapping) else []


def declared_by(found: Any, name: str, settings: Mapping[str, Any]) -> dict[str, MetricSpec]:
    """What the attribute `metrics` of an evaluator says: a mapping metric -> {"higher_is_better", "range"}, or a
    function of the score's name and the settings that gives one.

    In a mapping the function's own name stands for the name of its score too. Raises InputError for what is no such
    thing; of an object it is taken for something else that the object calls so.
    """
    function = found.func if isinstance(found, partial) else found
    if isinstance(found, partial):
        settings = {**found.keywords, **settings}
    try:
        return _said(getattr(function, "metrics", None), name, name_of(function), settings)
    except InputError:
        if isfunction(function):
            raise
        return {}


def _said(said: object, name: str, own: str, settings: Mapping[str, Any]) -> dict[str, MetricSpec]:
    where = f"evaluator {name!r}: what it declares as `metrics`"
    try:
        if isfunction(said):
            said = said(name, settings)
        if not isinstance(said, Mapping):
            return {}
        found = {str(metric): MetricSpec.model_validate(one) for metric, one in said.items()}
    except ValidationError as error:
        raise InputError(first_problem(error, where)) from error
    except (ValueError, TypeError) as error:  # of its settings
        raise InputError(f"evaluator {name!r}: {error}") from error
    if other := {field for one in found.values() for field in one.model_fields_set - _FIELDS}:
        raise InputError(f"{where}: got {min(other)}, wanted {' and '.join(sorted(_FIELDS))}; only a spec says others")
    return ({name: found[own]} if own in found else {}) | found
