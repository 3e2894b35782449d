"""What an evaluator declares beside its signature: its metrics with their directions, and what it needs."""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from inspect import isfunction
from typing import Any, TypeVar

from pydantic import ValidationError

from evalflows.evaluators.scales import SCALE
from evalflows.evaluators.settings import is_number
from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.metrics import MetricSpec
from evalflows.specs.reference import name_of

Direction = dict[str, Any]
"""`higher_is_better` and `range`, as in a spec's `metrics`."""

Metrics = Callable[[str, Mapping[str, Any]], dict[str, Direction]]
"""A function from an evaluator's name in the spec and its settings to the declarations of its metrics."""

_FIELDS = {"higher_is_better", "range"}

Evaluator = TypeVar("Evaluator", bound=Callable[..., Any])

UNUSED = "unused"

CHECK = "check_examples"

PACKAGES = "packages"


def declares(metrics: Metrics) -> Callable[[Evaluator], Evaluator]:
    """Return a decorator that sets the attribute `metrics` of an evaluator and returns the same function."""

    def declare(function: Evaluator) -> Evaluator:
        vars(function)["metrics"] = metrics
        return function

    return declare


def needs_reference(function: Evaluator) -> Evaluator:
    """Set the attribute `needs_reference` of an evaluator: it returns no score without a reference."""
    vars(function)["needs_reference"] = True
    return function


def checks_examples(
    check: Callable[[Iterable[ExampleView], Mapping[str, Any]], str | None],
) -> Callable[[Evaluator], Evaluator]:
    """Return a decorator that sets what checks all examples before a run. With the evaluator's settings, it raises
    ValueError for an example that could not be judged, whatever the answer, and returns what a person should know."""

    def add(function: Evaluator) -> Evaluator:
        vars(function)[CHECK] = check
        return function

    return add


def needs_packages(extra: str, *names: str) -> Callable[[Evaluator], Evaluator]:
    """Return a decorator that sets which packages of an extra an evaluator needs: see `package_versions`."""

    def add(function: Evaluator) -> Evaluator:
        vars(function)[PACKAGES] = (extra, *names)
        return function

    return add


def package_versions(function: Any) -> list[str]:
    """Return the versions of the packages that an evaluator needs, which decide its scores as its settings do.

    Raise InputError if one is not installed.
    """
    extra, *names = vars(function).get(PACKAGES, ("",)) if isfunction(function) else ("",)
    try:
        return [f"{name} {version(name)}" for name in names]
    except PackageNotFoundError as error:
        wanted = f"wanted `pip install 'evalflows[{extra}]'`"
        raise InputError(f"evaluator {name_of(function)!r}: got no package {error.name}, {wanted}") from error


def unused_with(unused: Callable[[Mapping[str, Any]], Set[str]]) -> Callable[[Evaluator], Evaluator]:
    """Return a decorator that sets which optional arguments of an evaluator it does not request with some settings."""

    def leave_out(function: Evaluator) -> Evaluator:
        vars(function)[UNUSED] = unused
        return function

    return leave_out


def zero_to_one(*, higher_is_better: bool = True) -> Direction:
    """Declare a metric from 0 to 1: a yes or no, or a share."""
    return {"higher_is_better": higher_is_better, "range": [0.0, 1.0]}


def share(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """Declare one metric from 0 (worst) to 1 (best)."""
    return {name: zero_to_one()}


def fault(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """Declare one metric from 0 (best) to 1 (worst)."""
    return {name: zero_to_one(higher_is_better=False)}


def on_the_scale(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """Declare the evaluator's own metric and one per criterion, with the range of the scale or of the labels' numbers.

    The range is omitted if labels have no numbers, and for settings that the evaluator will reject.
    """
    labels, criteria = settings.get("labels"), settings.get("criteria")
    metrics = [name, *(criteria if isinstance(criteria, Mapping) else ())]
    ends = settings.get("scale", SCALE) if labels is None else _numbers(labels)
    is_range = isinstance(ends, list | tuple) and all(is_number(end) for end in ends) and len({*ends}) > 1
    declared = {"range": [float(min(ends)), float(max(ends))]} if is_range else {}
    return {metric: {"higher_is_better": True, **declared} for metric in metrics}


def _numbers(labels: Any) -> list[Any]:
    return [*labels.values()] if isinstance(labels, Mapping) else []


def declared_by(evaluator: Any, name: str, settings: Mapping[str, Any]) -> dict[str, MetricSpec]:
    """Read the attribute `metrics` of an evaluator: a mapping from metrics to {"higher_is_better", "range"}, or a
    function of the score's name and the settings that returns one.

    In a mapping, the function's own name also stands for the name of its score. Raise InputError for an invalid
    declaration; on an object it is ignored instead, since its attribute may mean something else.
    """
    function = evaluator.func if isinstance(evaluator, partial) else evaluator
    if isinstance(evaluator, partial):
        settings = {**evaluator.keywords, **settings}
    try:
        return _read(getattr(function, "metrics", None), name, name_of(function), settings)
    except InputError:
        if isfunction(function):
            raise
        return {}


def _read(declaration: object, name: str, function_name: str, settings: Mapping[str, Any]) -> dict[str, MetricSpec]:
    where = f"evaluator {name!r}: its attribute `metrics`"
    try:
        if isfunction(declaration):
            declaration = declaration(name, settings)
        if not isinstance(declaration, Mapping):
            return {}
        metrics = {str(metric): MetricSpec.model_validate(fields) for metric, fields in declaration.items()}
    except ValidationError as error:
        raise InputError(first_problem(error, where, MetricSpec)) from error
    except (ValueError, TypeError) as error:  # about its settings
        raise InputError(f"evaluator {name!r}: {error}") from error
    if extra := {field for metric in metrics.values() for field in metric.model_fields_set - _FIELDS}:
        wanted = " and ".join(sorted(_FIELDS))
        raise InputError(f"{where}: got {min(extra)}, wanted {wanted}; other fields belong in the spec")
    own = {name: metrics[function_name]} if function_name in metrics else {}
    return own | {kept_apart(metric): declared for metric, declared in metrics.items()}
