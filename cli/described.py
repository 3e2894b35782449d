"""What can be said of an evaluator before it is called: read off its parameters, its docstring, what it declares."""

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import evaluators
from evaluators.asking import PROMPTS
from evaluators.call import OFFERED
from evaluators.direction import declared_by
from evaluators.foreign import origin_of
from evaluators.named import named
from specs.errors import InputError, short
from specs.metric import MetricSpec
from specs.reference import name_of, parameters_of

Level = Literal["run", "experiment", "pair"]
"""Whether it judges one run, all runs of an experiment at once, or two runs of an example."""

_OFFERED: Mapping[Level, Collection[str]] = {
    "run": OFFERED["item"],
    "experiment": OFFERED["run"],
    "pair": OFFERED["pair"],
}
_ALL_RUNS = ("runs", "examples", "item_results")
_REFERENCE = ("reference_outputs", "expected_output")
_NEEDED = re.compile(r"\b[Nn]one (?:without(?! one)\b|where an? [^.;,]*no reference|where the [^.;,]*no reference)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An evaluator as it is listed."""

    name: str
    judges_by: str  # rule, model, embeddings; or the project that it is of
    level: Level
    asks_for: Sequence[str]
    settings: Mapping[str, str]  # with their defaults, as they are shown
    metrics: Mapping[str, MetricSpec]
    doc: str

    @property
    def reference(self) -> str:
        """Whether it needs a reference: its docstring says that without one there is no score."""
        if not {*_REFERENCE} & {*self.asks_for}:
            return ""
        return "needed" if _NEEDED.search(" ".join(self.doc.split())) else "asked for"

    @property
    def about(self) -> str:
        """The first sentence of its docstring."""
        return re.split(r"(?<=[.!?])\s", " ".join(self.doc.partition("\n\n")[0].split()))[0]

    @property
    def returns(self) -> list[str]:
        """Its metrics: range and direction; the name of those that do not bear its own. Of a pair, which is better."""
        if self.level == "pair":
            return ["first, second or tie"]
        return [_said(name, one, beside=name != self.name) for name, one in self.metrics.items()]


def described(name: str, settings: Mapping[str, Any] | None = None) -> Described:
    """The evaluator of a short name, or of `module:name`, with the metrics that it has by its settings.

    Raises InputError where there is none, for a setting that it does not take, and for metrics that it cannot declare.
    """
    found = named(name)
    project = origin_of(found)
    parameters = [] if project else parameters_of(found, f"evaluator {name!r}")
    level = "pair" if name in evaluators.PAIRWISE else _level(parameters)
    asked = [one for one in parameters if one.name in _OFFERED[level]]
    own = [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one not in asked]
    called = name_of(found)
    takes_any = project or any(one.kind is one.VAR_KEYWORD for one in parameters)
    if (unknown := (settings or {}).keys() - {one.name for one in own}) and not takes_any:
        known = ", ".join(one.name for one in own) or "none"
        raise InputError(f"evaluator {called!r}: got the setting {min(unknown)!r}, wanted one of: {known}")
    return Described(
        name=called,
        judges_by=project or _by([one.name for one in asked]),
        level=level,
        asks_for=[one.name for one in asked],
        settings={one.name: _default(one.default) for one in own},
        metrics={} if level == "pair" else _metrics(found, called, settings or {}),
        doc=inspect.getdoc(found) or "",
    )


def ours() -> Iterator[Described]:
    """All that have a short name."""
    return (described(name) for name in evaluators.SHORT_NAMES)


def _level(parameters: Sequence[inspect.Parameter]) -> Level:
    """Whoever asks for all runs, or whose `outputs` are a list, judges them all at once."""
    names = {one.name for one in parameters}
    of_all = any(one.name == "outputs" and _is_list(one.annotation) for one in parameters)
    return "experiment" if names & {*_ALL_RUNS} or of_all else "run"


def _is_list(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.lower().startswith(("list", "sequence"))
    kind = get_origin(annotation) or annotation
    return inspect.isclass(kind) and issubclass(kind, Sequence) and not issubclass(kind, str)


def _by(asked: Sequence[str]) -> str:
    kinds = {"complete": "model", "embed": "embeddings"}
    return ", ".join(kind for name, kind in kinds.items() if name in asked) or "rule"


def _metrics(found: Any, name: str, settings: Mapping[str, Any]) -> dict[str, MetricSpec]:
    """What it declares. What it does not: higher is better, and yes or no is from 0 to 1."""
    said = declared_by(found, name, settings)
    return said or {name: MetricSpec(range=(0.0, 1.0) if _is_yes_or_no(found) else None)}


def _is_yes_or_no(found: Callable[..., Any]) -> bool:
    returned = getattr(found, "__annotations__", {}).get("return")
    return returned is bool or {*get_args(returned)} - {type(None)} == {bool}


def _said(name: str, metric: MetricSpec, beside: bool) -> str:
    which = "higher is better" if metric.is_higher_better(name) else "lower is better"
    said = f"{metric.range[0]:g} to {metric.range[1]:g}, {which}" if metric.range else which
    return f"{name}: {said}" if beside else said


def _default(value: Any) -> str:
    """A default as YAML has it; a prompt that ships by its file."""
    if value is inspect.Parameter.empty:
        return "needed"
    if isinstance(value, str) and value in _prompts():
        return _prompts()[value]
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return short(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


@cache
def _prompts() -> dict[str, str]:
    return {path.read_text(encoding="utf-8"): f"evaluators/prompts/{path.name}" for path in PROMPTS.glob("*.md")}
