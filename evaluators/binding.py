"""Bind evaluators: find out before the first call which arguments a function requests, call it with them, and read
its metrics, its score sheet and its return value.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, isfunction
from json.encoder import encode_basestring
from statistics import fmean, median, stdev
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from evalflows.evaluators.score import (
    Conversation,
    Evaluations,
    ExampleView,
    ItemResult,
    Judgement,
    Preference,
    RunView,
    Score,
    answer_text,
    as_text,
    is_number,
    normalise,
    preferences,
    reference_value,
    unwrapped,
    with_attributes,
)
from evalflows.specs.errors import MEASURES, RETURNED_AS, InputError, first_problem, kept_apart
from evalflows.specs.evaluator import MetricSpec
from evalflows.specs.reference import is_async, name_of, parameters_of
from evalflows.store.records import DataType

Scope = Literal["item", "run", "pair"]

_LANGFUSE = ("input", "output", "expected_output", "metadata")
OFFERED: dict[Scope, tuple[str, ...]] = {
    "item": (
        *("inputs", "outputs", "reference_outputs", "metadata", "example", "run", "root_run", "attachments"),
        *("input", "output", "expected_output", "evaluations", "scores", "complete", "embed"),
    ),
    "run": ("inputs", "outputs", "reference_outputs", "runs", "examples", "item_results", "complete", "embed"),
    "pair": (
        *("inputs", "outputs", "reference_outputs", "metadata", "runs", "example", "attachments"),
        *("complete", "embed"),
    ),
}
"""Arguments that evaluators can request: for one run, for all runs of an experiment, for two runs of one example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An evaluator with a checked signature."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    scope: Scope = "item"
    positional: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of positional-only parameters, to keep their place
    names_stand: bool = False  # whether its scores may have the names of measures, which traces of production lack
    measures_used: Set[str] = frozenset()  # by rules of the spec: a score of such a name would be mistaken for it
    repeats: int = 1
    combine: "Combine | None" = None  # of the repeats

    @property
    def asked(self) -> frozenset[str]:
        """Names of the arguments it requests."""
        return frozenset({*self.positional, *self.named})

    def asks_for(self, *names: str) -> bool:
        return not self.asked.isdisjoint(names)

    def call(self, available: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Any:
        """Call the function, or another with the same parameters, with the arguments that it requests.

        Return its value, or an awaitable if it is async; of several repeats, their combined judgements.
        """
        if self.repeats > 1 and function is None:
            one = replace(self, repeats=1)
            offers = [_as_repeat(available, number) for number in range(self.repeats)]
            return (_gathered if self.is_async else _made)(one, offers)
        named = {name: available[name] for name in self.named}
        if not self.positional:
            return (function or self.function)(**named, **self.settings)
        positional = [self.defaults[name] if name in self.defaults else available[name] for name in self.positional]
        return (function or self.function)(*positional, **named, **self.settings)


REPEATS_WITHIN = 1000
"""The most repeats that an evaluator asks for itself; those of its own repeats follow."""


def _as_repeat(available: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the arguments of one repeat: its model calls are others than those of the repeats before."""
    complete = available.get("complete")
    if complete is None or number == 0:
        return available

    def again(*args: Any, repeat: int = 0, **kwargs: Any) -> Any:
        return complete(*args, repeat=repeat + REPEATS_WITHIN * number, **kwargs)

    return {**available, "complete": again}


def _made(bound: Bound, offers: Sequence[Mapping[str, Any]]) -> list[Judgement]:
    return combined_judgements(bound, [(bound.call(offer), offer) for offer in offers])


async def _gathered(bound: Bound, offers: Sequence[Mapping[str, Any]]) -> list[Judgement]:
    """Wait for all repeats, even if one fails, so that their cost counts for this judgement."""
    returned = await asyncio.gather(*(bound.call(offer) for offer in offers), return_exceptions=True)
    for value in returned:
        if isinstance(value, BaseException):
            raise value
    return combined_judgements(bound, [*zip(returned, offers, strict=True)])


def bind(
    function: Callable[..., Any], *, name: str = "", settings: Mapping[str, Any] | None = None, scope: Scope = "item"
) -> Bound:
    """Match a function's parameters with the available arguments.

    Raise InputError for a parameter that cannot be filled, and for a setting that the function does not take.
    """
    name, settings, available = name or name_of(function), settings or {}, OFFERED[scope]
    parameters = parameters_of(function, f"evaluator {name!r}")
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    single = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    for p in single:
        is_set = p.name in settings and p.kind is not p.POSITIONAL_ONLY
        if not is_set and p.name not in available and p.default is p.empty:
            raise InputError(f"evaluator {name!r}: asks for {p.name!r}, wanted any of {', '.join(available)}")
    unknown = settings.keys() - {p.name for p in single if p.kind is not p.POSITIONAL_ONLY}
    if unknown and not takes_any:
        known = ", ".join(p.name for p in single if p.name not in available) or "none"
        raise InputError(f"evaluator {name!r}: got the setting {min(unknown)!r}, wanted one of: {known}")
    settings = {**settings, **{p.name: _switch(settings[p.name], p) for p in single if p.name in settings}}
    preset = function.keywords if isinstance(function, partial) else {}
    left_out = {*settings, *preset}
    if isfunction(function) and UNUSED in vars(function):
        left_out |= vars(function)[UNUSED](settings)
    requested = [p for p in single if p.name in available and p.name not in left_out]
    defaults = {p.name: p.default for p in single if p.kind is p.POSITIONAL_ONLY and p.name not in available}
    named = [p.name for p in requested if p.kind is not p.POSITIONAL_ONLY]
    if takes_any and scope == "item":  # Langfuse passes these four to every evaluator
        named += [argument for argument in _LANGFUSE if argument not in {*named, *settings}]
    return Bound(
        name=name,
        function=function,
        is_async=is_async(function),
        scope=scope,
        positional=tuple(p.name for p in single if p.kind is p.POSITIONAL_ONLY),
        defaults=defaults,
        named=tuple(named),
        settings=settings,
    )


_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}


def _switch(setting: Any, parameter: Parameter) -> Any:
    """Return a setting, as a bool if it is `yes`, `no`, `on` or `off` for a parameter that wants one."""
    wants_bool = isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")
    return _SWITCHES.get(setting.lower(), setting) if wants_bool and isinstance(setting, str) else setting


LANGFUSE_FIELDS = {
    "input": ("inputs", "input"),
    "output": ("outputs", "output"),
    "expected_output": ("reference_outputs", "output"),
}
"""Langfuse's names: ours, and the key that is left off if it is the only one."""


def offer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of a run, under LangSmith's and Langfuse's names.

    As in Langfuse, the `input` of a conversation is the list of its messages.
    """
    langfuse = {
        name: with_attributes(unwrapped(fields[source], only))
        for name, (source, only) in LANGFUSE_FIELDS.items()
        if source in fields
    }
    if (inputs := fields.get("inputs")) and inputs.keys() == {"messages"} and isinstance(inputs["messages"], list):
        langfuse["input"] = Conversation(langfuse["input"]["messages"])
    return {**fields, **langfuse}


def offer_run(example: ExampleView, run: RunView, evaluations: Evaluations | None = None) -> dict[str, Any]:
    """Return the arguments for an item-level evaluator, under LangSmith's and Langfuse's names."""
    evaluations = evaluations if evaluations is not None else Evaluations()
    return {
        **offer_fields(
            {
                "inputs": example.inputs,
                "outputs": run.outputs,
                "reference_outputs": example.reference_outputs,
                "metadata": example.metadata,
            }
        ),
        "example": example,
        "run": run,
        "root_run": run,
        "attachments": example.attachments,
        "evaluations": evaluations,
        "scores": evaluations,
    }


def offer_experiment(results: list[ItemResult]) -> dict[str, Any]:
    """Return the arguments for a run-level evaluator: lists in the order of the runs.

    As in Langfuse, the `output` of `item_results` is the target's return value before it was wrapped.
    """
    return {
        "inputs": [result.item.inputs for result in results],
        "outputs": [result.run.outputs for result in results],
        "reference_outputs": [result.item.reference_outputs for result in results],
        "runs": [result.run for result in results],
        "examples": [result.item for result in results],
        "item_results": [replace(result, output=unwrapped(result.run.outputs, "output")) for result in results],
    }


def offer_pair(example: ExampleView, first: RunView, second: RunView) -> dict[str, Any]:
    """Return the arguments for a pairwise evaluator, in the order in which the two runs are shown."""
    return {
        "inputs": example.inputs,
        "outputs": [first.outputs, second.outputs],
        "reference_outputs": example.reference_outputs,
        "metadata": example.metadata,
        "runs": [first, second],
        "example": example,
        "attachments": example.attachments,
    }


Rule = TypeVar("Rule", bound=Callable[..., bool | None])

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)

MAX_TEXT = 60
MAX_TEXTS = 5
"""What a comment shows of what was wanted."""


def explained(why_false: Callable[..., str]) -> Callable[[Rule], Rule]:
    """Return a decorator that sets the attribute `why_false` of a rule and returns the same function.

    `why_false` takes the rule's arguments and returns the comment of a score that is false.
    """

    def explain(rule: Rule) -> Rule:
        vars(rule)["why_false"] = why_false
        return rule

    return explain


def with_comment(bound: Bound, returned: object, available: Mapping[str, Any]) -> object:
    """Return a rule's false as a judgement with its comment, and anything else unchanged."""
    why_false = getattr(bound.function, "why_false", None)
    if returned is not False or why_false is None:
        return returned
    comment = bound.call(available, why_false)
    return Judgement(metric=bound.name, value=0.0, data_type="BOOLEAN", comment=comment)


def quoted(value: Any) -> str:
    """Return a value as JSON on one line, shortened."""
    if isinstance(value, str) and len(value) >= MAX_TEXT:
        start = encode_basestring(value[:MAX_TEXT])
        if start.isascii() and "  " not in start:  # as it is: the rest would be cut off anyway
            return f"{start[: MAX_TEXT - 1]}…"
    return shortened(_ENCODER.encode(value))


def shortened(text: str) -> str:
    """Return a text on one line, cut at MAX_TEXT characters."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def listed(values: Sequence[Any]) -> str:
    """Return the first values as JSON, and the number of others."""
    more = f" and {len(values) - MAX_TEXTS} more" if len(values) > MAX_TEXTS else ""
    return ", ".join(map(quoted, values[:MAX_TEXTS])) + more


def read_returned(
    bound: Bound, returned: object, available: Mapping[str, Any]
) -> Sequence[Judgement] | Sequence[Preference]:
    """Return judgements, or for a pairwise evaluator preferences between the `runs` that it was given.

    A rule's false gets its comment, and a score called like a measure of every run a name of its own. Raise TypeError
    or ValueError for a return value that cannot be converted.
    """
    if bound.scope == "pair":
        return preferences(returned, bound.name, [run.id for run in available["runs"]])
    judgements = normalise(with_comment(bound, returned, available), bound.name)
    if bound.names_stand or not any(judgement.metric in MEASURES for judgement in judgements):
        return judgements
    return [_kept_apart(judgement, bound.measures_used) for judgement in judgements]


def _kept_apart(judgement: Judgement, measures_used: Set[str]) -> Judgement:
    """Give a score that is called like a measure a name of its own; other evaluators still see it by the first.

    Raise ValueError if rules of the spec use that measure: nobody could tell which of the two they mean.
    """
    if judgement.metric not in MEASURES:
        return judgement
    if judgement.metric in measures_used:
        used = f"returned the score {judgement.metric!r}, which the spec's rules use for the measure of every run"
        raise ValueError(f"{used}; wanted another name")
    metadata = {**(judgement.metadata or {}), RETURNED_AS: judgement.metric}
    return judgement._replace(metric=kept_apart(judgement.metric), metadata=metadata)


SCALE = (1, 5)
"""The default scale: worst and best."""

Combine = Literal["mean", "median", "majority"]
Reasoning = Literal["before", "after", "none"]
Verdict = Mapping[str, Any]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The values of several repeats combined into one."""

    number: float | None = None
    label: str | None = None
    spread: float | None = None
    nearest: int  # the first repeat with this value, or closest to it

    def score(self, verdicts: Sequence[Verdict], key: str | None) -> Score:
        comment = verdicts[self.nearest].get("reasoning")
        return Score(value=self.number, key=key, label=self.label, comment=comment, spread=self.spread)


def verdict_schema(title: str, fields: Mapping[str, Any], reasoning: Reasoning = "none") -> dict[str, Any]:
    """Return the JSON schema of a verdict: an object with exactly these fields, and the reasoning before or after them.

    A model writes the fields in order, so reasoning that comes first informs the verdict.
    """
    reasoning_field: dict[str, Any] = {} if reasoning == "none" else {"reasoning": {"type": "string"}}
    all_fields = {**fields, **reasoning_field} if reasoning == "after" else {**reasoning_field, **fields}
    return {
        "title": title,
        "type": "object",
        "properties": all_fields,
        "required": [*all_fields],
        "additionalProperties": False,
    }


def _majority(values: Sequence[Value]) -> Value:
    """Return the most frequent value; on a tie, the value that occurs first."""
    return Counter(values).most_common(1)[0][0]


_COMBINED: Mapping[Combine, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "median": median,
    "majority": _majority,
}


def combined(values: Sequence[float], combine: Combine) -> Combined:
    """Combine several numbers or bools into one."""
    number = float(_COMBINED[combine](values))
    return Combined(number=number, spread=spread_of(values), nearest=nearest_to(number, values))


def combined_judgements(bound: Bound, repeats: Sequence[tuple[Any, Mapping[str, Any]]]) -> list[Judgement]:
    """Combine what several repeats returned, each with its arguments, into one judgement per metric and turn.

    Raise ValueError if a metric was not given by all: fewer repeats would be another estimate.
    """
    found: dict[tuple[str, int | None], list[Judgement]] = {}
    for returned, available in repeats:
        for judgement in normalise(with_comment(bound, returned, available), bound.name):
            found.setdefault((judgement.metric, judgement.turn), []).append(judgement)
    return [_one_of(bound, judgements, len(repeats)) for judgements in found.values()]


def _one_of(bound: Bound, judgements: Sequence[Judgement], count: int) -> Judgement:
    first, scored = judgements[0], [one for one in judgements if one.status == "scored"]
    if failed := next((one for one in judgements if one.error is not None), None):
        return failed
    if not scored:
        return first
    if len(scored) < count:
        raise ValueError(f"{first.metric}: scored in {len(scored)} of {count} repeats, wanted all")
    numbers = [one.value for one in scored if one.value is not None]
    if len(numbers) < count:  # labels
        label = _majority([one.label for one in scored])
        one = next(one for one in scored if one.label == label)
        return one._replace(repeats=count, spread=spread_of(numbers))
    combine = bound.combine or ("majority" if first.data_type == "BOOLEAN" else "median")
    of_all = combined(numbers, combine)
    nearest = scored[of_all.nearest]
    is_kept = of_all.number == nearest.value
    kind: DataType | None = nearest.data_type if is_kept and combine != "mean" else "NUMERIC"
    label = nearest.label if is_kept else None
    return nearest._replace(value=of_all.number, label=label, data_type=kind, repeats=count, spread=of_all.spread)


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale of whole numbers from worst to best."""

    worst: int
    best: int
    combine: Combine
    field = "score"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.worst, "maximum": self.best}

    def answer_format(self) -> str:
        return f"a whole number from {self.worst} (worst) to {self.best} (best)"

    def number(self, value: int) -> float | None:
        return float(value)

    def combined(self, values: Sequence[int]) -> Combined:
        return combined(values, self.combine)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels, each with its number or None."""

    numbers: Mapping[str, float | None]
    field = "label"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": [*self.numbers]}

    def answer_format(self) -> str:
        return f"one of {_quoted(self.numbers)}"

    def number(self, value: str) -> float | None:
        return self.numbers[value]

    def combined(self, values: Sequence[str]) -> Combined:
        label = _majority(values)
        numbers = [number for text in values if (number := self.numbers[text]) is not None]
        return Combined(
            number=self.numbers[label], label=label, spread=spread_of(numbers), nearest=list(values).index(label)
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """One answer, or one per criterion; `weights` are the criteria's weights by name."""

    answers: Scale | Labels
    weights: Mapping[str, float] | None
    reasoning: Reasoning

    @property
    def _fields(self) -> list[str]:
        return [self.answers.field] if self.weights is None else [*self.weights]

    def answer_format(self) -> str:
        """Return the answer format, to follow "Give" in a prompt."""
        if self.weights is None:
            return f'"{self.answers.field}": {self.answers.answer_format()}'
        return f"for each criterion, by its name ({_quoted(self.weights)}): {self.answers.answer_format()}"

    def schema(self) -> dict[str, Any]:
        return verdict_schema("rubric", {name: self.answers.schema() for name in self._fields}, self.reasoning)

    def scores(self, verdicts: Sequence[Verdict]) -> list[Score]:
        """Return the overall score of verdicts that fit the schema, then the score of each criterion under its name."""
        by_field = {name: self.answers.combined([verdict[name] for verdict in verdicts]) for name in self._fields}
        if self.weights is None:
            return [by_field[self.answers.field].score(verdicts, None)]
        overall = self._weighted_mean([criterion.number for criterion in by_field.values()])
        means = [self._weighted_mean([self.answers.number(verdict[name]) for name in by_field]) for verdict in verdicts]
        overall_score = Combined(number=overall, spread=spread_of(means), nearest=nearest_to(overall, means))
        return [overall_score.score(verdicts, None), *(part.score(verdicts, name) for name, part in by_field.items())]

    def _weighted_mean(self, numbers: Iterable[float | None]) -> float:
        """Return the weighted mean over the criteria, in their order. Raise StatisticsError if a number is missing."""
        return fmean([number for number in numbers if number is not None], [*(self.weights or {}).values()])


def spread_of(numbers: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for a single number."""
    return stdev(numbers) if len(numbers) > 1 else None


def nearest_to(number: float, numbers: Sequence[float]) -> int:
    """Return the index of the first closest number; distances are rounded so that float noise does not decide."""
    distances = [round(abs(candidate - number), 9) for candidate in numbers]
    return distances.index(min(distances))


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)


Direction = dict[str, Any]
"""`higher_is_better` and `range`, as in a spec's `metrics`."""

Metrics = Callable[[str, Mapping[str, Any]], dict[str, Direction]]
"""A function from an evaluator's name in the spec and its settings to the declarations of its metrics."""

_FIELDS = {"higher_is_better", "range"}

Evaluator = TypeVar("Evaluator", bound=Callable[..., Any])


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


UNUSED = "unused"


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
        raise InputError(first_problem(error, where)) from error
    except (ValueError, TypeError) as error:  # about its settings
        raise InputError(f"evaluator {name!r}: {error}") from error
    if extra := {field for metric in metrics.values() for field in metric.model_fields_set - _FIELDS}:
        wanted = " and ".join(sorted(_FIELDS))
        raise InputError(f"{where}: got {min(extra)}, wanted {wanted}; other fields belong in the spec")
    own = {name: metrics[function_name]} if function_name in metrics else {}
    return own | {kept_apart(metric): declared for metric, declared in metrics.items()}


def why_too_long(
    outputs: dict[str, Any], reference_outputs: dict[str, Any], *, at_most: float = 2.0, key: str | None = None
) -> str:
    """Say how long the answer and the reference are."""
    wanted = len(as_text(reference_value(reference_outputs, key)).strip())
    return f"{len(answer_text(outputs, key).strip())} characters, wanted at most {at_most:g} times {wanted}"


@explained(why_too_long)
@needs_reference
def concision(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    at_most: float = 2.0,
    key: str | None = None,
) -> bool | None:
    """Whether the answer is at most `at_most` times as long as the reference, in characters without surrounding space.

    None without a reference, or with an empty one. It cannot see whether the answer is right or says anything: an empty
    answer is concise.
    """
    if not at_most > 0:
        raise ValueError(f"at_most: got {at_most}, wanted more than 0")
    reference = reference_value(reference_outputs, key)
    text = "" if reference is None else as_text(reference).strip()
    if not text:
        return None
    return len(answer_text(outputs, key).strip()) <= at_most * len(text)
