"""From a spec to the code that it names: targets and evaluators, checked, and with their versions."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import isclass

import evaluators
from evaluators.call import Bound, Level, bind
from evaluators.composite import combined
from evaluators.foreign import adapted
from evaluators.named import named
from llm.connections import resolve
from llm.local import identity_of
from llm.post import poster
from specs.columns import answer_row
from specs.connection import ConnectionSpec, LocalConnection
from specs.errors import InputError, describe
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.metric import CompositeSpec
from specs.paths import located
from specs.protocols import Complete
from specs.reference import FILES, load, name_of, refer, version_of
from specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec
from store.lookup import find_experiments
from store.parquet import Store
from store.records import ExampleRow
from store.rows import Numbered, read_rows
from targets import Target, chat, http, python, recorded, recorded_column, replayed

_BOUNDS = {"higher_is_better", "range"}

DEFAULT_CONNECTION = "openai"
"""Of an evaluator that asks for `complete` and names none."""


def make_target(spec: TargetSpec, complete: Complete | None, examples: Sequence[ExampleRow], store: Store) -> Target:
    """The target that a spec describes. Raises InputError for one that cannot be used."""
    match spec:
        case ChatTarget():
            if complete is None:
                raise TypeError("a chat target needs complete")
            return chat(spec, complete)
        case PythonTarget():
            return python(load(spec.function), shared_fields(examples))
        case HttpTarget():
            return http(spec, poster(spec))
        case RecordedTarget():
            return recording_of(spec, store)


def recording_of(spec: RecordedTarget, store: Store) -> Target:
    """Recorded answers, from where a spec says they are. Raises InputError."""
    if spec.column is not None:
        return recorded_column(spec.column)
    if spec.experiment is not None:
        (identity,) = find_experiments(store, spec.experiment)
        return replayed(store.read("outputs", identity), f"experiment {identity}")
    where = spec.path or ""
    return recorded(_answers(spec, where), where)


def _answers(spec: RecordedTarget, where: str) -> Numbered:
    for number, row in read_rows(where):
        try:
            yield number, row if spec.columns is None else answer_row(row, spec.columns)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error


def target_version(spec: TargetSpec, connections: Mapping[str, ConnectionSpec]) -> str:
    """A hash of a target's spec, of the code or the answers that it names, and of where its model is served."""
    settings = spec.model_dump_json(exclude={"name", "function", "path"})
    match spec:
        case PythonTarget():
            return version_of(load(spec.function), settings)
        case HttpTarget():
            return version_of(http, settings)
        case RecordedTarget():
            return version_of(recorded, settings, located(spec.path).read_bytes() if spec.path else b"")
        case ChatTarget():
            return version_of(chat, settings, served(spec.connection, connections, spec.model))


def served(name: str | None, connections: Mapping[str, ConnectionSpec], model: str | None) -> list[str | None]:
    """What decides the answers of a connection: where the model is served, and which it is."""
    if name is None:
        return []
    connection = resolve(name, connections)
    if isinstance(connection, LocalConnection):
        return [identity_of(connection)]
    return [connection.base_url.rstrip("/"), model or connection.model]


def bind_evaluator(spec: FallbackSpec, level: Level = "item") -> Bound:
    """Load and check an evaluator. Raises InputError for one that does not exist, or asks for what does not.

    One of another project gets an adapter; its single score bears the spec's name where that is another than its own.
    """
    if isinstance(spec, EvaluatorSpec) and spec.tiers:
        return _cascade(spec, level)
    found = named(spec.use)
    if is_ours(spec) and (level == "pair") != (spec.use in evaluators.PAIRWISE):
        compares, other = "compares two answers, wanted it under compare", "judges one answer, wanted one that compares"
        wanted = f"{other} two: {', '.join(evaluators.PAIRWISE)}" if level == "pair" else compares
        raise InputError(f"evaluator {spec.metric!r}: {spec.use} {wanted}")
    if level == "pair" and not isclass(found):
        return bind(found, name=spec.metric, settings=spec.args, level=level)
    renamed = bool(spec.name) and spec.name != name_of(found)
    one_run = level == "item"
    theirs = adapted(found, name=spec.metric, settings=spec.args, renamed=renamed, one_run=one_run)
    if theirs is None and isclass(found):
        return bind(_made(found, spec), name=spec.metric, level=level)
    return bind(theirs or found, name=spec.metric, settings={} if theirs else spec.args, level=level)


def _made(kind: type, spec: FallbackSpec) -> Callable[..., object]:
    """An object of the user's own class, which judges by being called; made with the settings."""
    who = f"evaluator {spec.metric!r}"
    if "__call__" not in dir(kind) or kind.__call__ is type.__call__:
        raise InputError(
            f"{who}: {spec.use!r} is a class that cannot be called, wanted a function, or one with __call__"
        )
    try:
        made: Callable[..., object] = kind(**spec.args)
    except Exception as error:  # whatever the user's constructor raises
        raise InputError(f"{who}: {spec.use!r} cannot be made with args: {describe(error)}") from error
    return made


def _cascade(spec: EvaluatorSpec, level: Level) -> Bound:
    """What stands for all tiers: the first of them, which is never called under this name."""
    first, *_ = [bind_evaluator(tier, level) for tier in spec.tiers]
    return replace(first, name=spec.metric)


def is_ours(spec: FallbackSpec) -> bool:
    return spec.use in evaluators.SHORT_NAMES


def reference_to(function: Callable[..., object]) -> str:
    """How a spec names a function: its short name if it is one of ours, else as `refer` does."""
    short = name_of(function)
    return short if getattr(evaluators, short, None) is function else refer(function)


def evaluator_version(
    spec: FallbackSpec, bound: Bound, connections: Mapping[str, ConnectionSpec], level: Level = "item"
) -> str:
    """A hash of an evaluator's source, constants and settings, of which model it asks, where, and of its fallback's."""
    if isinstance(spec, EvaluatorSpec) and spec.tiers:
        decides = [tier.model_dump(include={"decides", "decides_from", "decides_to"}) for tier in spec.tiers]
        tiers = [evaluator_version(tier, bind_evaluator(tier, level), connections, level) for tier in spec.tiers]
        return version_of(_cascade, decides, tiers)
    judge = served(connection_name(spec, bound), connections, spec.model)
    fallback = spec.fallback if isinstance(spec, EvaluatorSpec) else None
    instead = [evaluator_version(fallback, bind_evaluator(fallback, level), connections)] if fallback else []
    files = [located(spec.args[name]).read_bytes() for name in getattr(bound.function, FILES, ()) if name in spec.args]
    return version_of(bound.function, sorted(spec.args.items()), judge, *files, *instead)


def composite_version(composite: CompositeSpec, spec: ExperimentSpec) -> str:
    """A hash of a composite's weights and policy, and of the bounds of its parts."""
    bounds = {metric: spec.direction(metric).model_dump(include=_BOUNDS) for metric in sorted(composite.metrics)}
    own = [version_of(load(composite.function))] if composite.function else []
    return version_of(combined, composite.model_dump(exclude={"name", "function"}), bounds, *own)


def connection_name(spec: FallbackSpec, bound: Bound) -> str | None:
    """The connection that an evaluator uses, if it asks for one at all."""
    if isinstance(spec, EvaluatorSpec) and spec.tiers:
        return None
    return (spec.connection or DEFAULT_CONNECTION) if bound.asks_for("complete", "embed") else None


def shared_fields(examples: Sequence[ExampleRow]) -> frozenset[str]:
    """The fields that the inputs of every example have."""
    fields = [frozenset(json.loads(example.inputs)) for example in examples]
    return frozenset.intersection(*fields) if fields else frozenset()
