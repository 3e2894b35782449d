"""Describe an evaluator without calling it: from its parameters, its docstring and the metrics it declares."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args, get_origin

from evalflows import evaluators
from evalflows.evaluators.binding import OFFERED
from evalflows.evaluators.declarations import declared_by
from evalflows.evaluators.foreign import evaluator_name, origin_of
from evalflows.evaluators.named import load_named
from evalflows.evaluators.prompt_texts import PROMPTS
from evalflows.specs.errors import InputError, short
from evalflows.specs.escaping import json_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import MetricSpec
from evalflows.specs.reference import parameters_of

Scope = Literal["run", "experiment", "pair"]
"""Whether an evaluator scores one run, all runs of an experiment at once, or compares two runs of an example."""

_OFFERED: Mapping[Scope, Collection[str]] = {
    "run": OFFERED["item"],
    "experiment": OFFERED["run"],
    "pair": OFFERED["pair"],
}
_ALL_RUNS = ("runs", "examples", "item_results")
_REFERENCE = ("reference_outputs", "expected_output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An evaluator as listed by `evalflows evaluators`."""

    name: str
    judges_by: str  # rule, model, embeddings; or the project it comes from
    scope: Scope
    asks_for: Sequence[str]
    needs_reference: bool  # whether it gives no score without a reference
    settings: Mapping[str, str]  # default of each setting, as shown
    metrics: Mapping[str, MetricSpec]
    doc: str

    @property
    def reference(self) -> str:
        """Whether the reference is needed, or only requested; empty if the evaluator does not use it."""
        if not {*_REFERENCE} & {*self.asks_for}:
            return ""
        return "needed" if self.needs_reference else "asked for"

    @property
    def about(self) -> str:
        """The first sentence of its docstring."""
        return re.split(r"(?<=[.!?])\s", " ".join(self.doc.partition("\n\n")[0].split()))[0]

    @property
    def returns(self) -> list[str]:
        """Range and direction of each metric, named if it has another name than the evaluator; verdicts of a pair."""
        if self.scope == "pair":
            return ["first, second or tie"]
        return [_metric_text(name, metric, with_name=name != self.name) for name, metric in self.metrics.items()]


def described(name: str, settings: Mapping[str, Any] | None = None) -> Described:
    """Describe the evaluator with this short name or `module:name`; its metrics may depend on the settings.

    Raise InputError if there is no such evaluator, it does not take a setting, or its metrics cannot be declared.
    """
    evaluator = load_named(name)
    project = origin_of(evaluator)
    parameters = [] if project else parameters_of(evaluator, f"evaluator {name!r}")
    scope = "pair" if name in evaluators.PAIRWISE else _scope(parameters)
    requested = [parameter for parameter in parameters if parameter.name in _OFFERED[scope]]
    own = [
        parameter
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) and parameter not in requested
    ]
    full_name = evaluator_name(evaluator)
    takes_any = project or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    if (unknown := (settings or {}).keys() - {parameter.name for parameter in own}) and not takes_any:
        known = ", ".join(parameter.name for parameter in own) or "none"
        raise InputError(f"evaluator {full_name!r}: got the setting {min(unknown)!r}, wanted one of: {known}")
    return Described(
        name=full_name,
        judges_by=project or _judged_by([parameter.name for parameter in requested]),
        scope=scope,
        asks_for=[parameter.name for parameter in requested],
        needs_reference=getattr(evaluator, "needs_reference", False) is True,
        settings={parameter.name: _default(parameter.default) for parameter in own},
        metrics={} if scope == "pair" else _metrics(evaluator, full_name, settings or {}),
        doc=inspect.getdoc(evaluator) or "",
    )


def built_in() -> Iterator[Described]:
    """Describe every evaluator that has a short name."""
    return (described(name) for name in evaluators.SHORT_NAMES)


def _scope(parameters: Sequence[inspect.Parameter]) -> Scope:
    """Return the scope "pair" if it requests all candidates, "experiment" if it requests all runs or annotates
    `outputs` as a list, else "run"."""
    names = {parameter.name for parameter in parameters}
    if "candidates" in names:
        return "pair"
    takes_list = any(parameter.name == "outputs" and _is_list(parameter.annotation) for parameter in parameters)
    return "experiment" if names & {*_ALL_RUNS} or takes_list else "run"


def _is_list(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.lower().startswith(("list", "sequence"))
    kind = get_origin(annotation) or annotation
    return inspect.isclass(kind) and issubclass(kind, Sequence) and not issubclass(kind, str)


def _judged_by(requested: Sequence[str]) -> str:
    kinds = {"complete": "model", "embed": "embeddings"}
    return ", ".join(kind for name, kind in kinds.items() if name in requested) or "rule"


def _metrics(evaluator: Any, name: str, settings: Mapping[str, Any]) -> dict[str, MetricSpec]:
    """Return the declared metrics; by default one metric, higher is better, with range 0 to 1 if it returns a bool."""
    metrics = declared_by(evaluator, name, settings)
    return metrics or {name: MetricSpec(range=(0.0, 1.0) if _returns_bool(evaluator) else None)}


def _returns_bool(evaluator: Callable[..., Any]) -> bool:
    returned = getattr(evaluator, "__annotations__", {}).get("return")
    return returned is bool or {*get_args(returned)} - {type(None)} == {bool}


def _metric_text(name: str, metric: MetricSpec, with_name: bool) -> str:
    direction = "higher is better" if metric.is_higher_better(name) else "lower is better"
    text = f"{metric.range[0]:g} to {metric.range[1]:g}, {direction}" if metric.range else direction
    return f"{name}: {text}" if with_name else text


def _default(value: Any) -> str:
    """Return a default as YAML; a shipped prompt is shown by its file name."""
    if value is inspect.Parameter.empty:
        return "needed"
    if isinstance(value, str) and value in _prompts():
        return _prompts()[value]
    try:
        text = json_text(value)
    except (TypeError, ValueError):
        return short(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


@cache
def _prompts() -> dict[str, str]:
    return {path.read_text(encoding="utf-8"): f"evaluators/prompts/{path.name}" for path in PROMPTS.glob("*.md")}
