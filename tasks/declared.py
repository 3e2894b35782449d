"""What evaluators declare of their metrics themselves: which they give, which way is better, between which bounds."""

from collections.abc import Mapping, Sequence
from functools import partial
from inspect import isfunction
from typing import Any

from pydantic import ValidationError

from evaluators.call import Level
from specs.errors import InputError, first_problem
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.metric import MetricSpec
from specs.reference import name_of
from tasks.resolve import bind_evaluator, is_ours

Declared = dict[str, MetricSpec]

_FIELDS = {"higher_is_better", "range"}


def with_metrics(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec with what its evaluators declare of their metrics; what the spec says itself comes first.

    Raises InputError for a declaration that is none.
    """
    found: Declared = {}
    levels: list[tuple[Level, list[EvaluatorSpec]]] = [("item", spec.evaluators), ("run", spec.summary_evaluators)]
    for level, evaluators in levels:
        for evaluator in evaluators:
            for judge in judges_of(evaluator):
                found = declared(judge, level, evaluator.metric) | found
    metrics = {name: spec.metrics[name].or_else(one) if name in spec.metrics else one for name, one in found.items()}
    return spec.model_copy(update={"metrics": {**spec.metrics, **metrics}})


def judges_of(evaluator: EvaluatorSpec) -> Sequence[FallbackSpec]:
    """Itself, or its tiers."""
    return evaluator.tiers or [evaluator]


def declared(judge: FallbackSpec, level: Level, name: str) -> Declared:
    """What the function's attribute `metrics` says: a mapping metric -> {"higher_is_better", "range"}, or a function
    of the score's name and the settings that gives one.

    In a mapping the function's own name stands for the name of its score too. Raises InputError for what is no such
    thing; of an object it is taken for something else that the object calls so.
    """
    found, settings = bind_evaluator(judge, level).function, judge.args
    function = found.func if isinstance(found, partial) else found
    if isinstance(found, partial):
        settings = {**found.keywords, **settings}
    try:
        return _said(getattr(function, "metrics", None), name, name_of(function), settings)
    except InputError:
        if isfunction(function):
            raise
        return {}


def _said(said: object, name: str, own: str, settings: Mapping[str, Any]) -> Declared:
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


def given_metrics(spec: ExperimentSpec) -> list[str] | None:
    """The metrics that the evaluators of a run give; None where one is not ours, which may name others."""
    judges = [(evaluator, judge) for evaluator in spec.evaluators for judge in judges_of(evaluator)]
    if not all(is_ours(judge) for _, judge in judges):
        return None
    found = {metric: None for evaluator, judge in judges for metric in _given(evaluator, judge)}
    return list(found)


def _given(evaluator: EvaluatorSpec, judge: FallbackSpec) -> list[str]:
    return [evaluator.metric, *declared(judge, "item", evaluator.metric)]
