"""Resolve a spec to code: load and check its targets and evaluators, and compute their versions."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from inspect import isclass

from evalflows import evaluators
from evalflows.evaluators.call import Bound, Scope, bind
from evalflows.evaluators.composite import combined
from evalflows.evaluators.foreign import adapted, evaluator_name
from evalflows.evaluators.named import named
from evalflows.llm.application_version import application_version
from evalflows.llm.connections import resolve
from evalflows.llm.local import identity_of
from evalflows.llm.post import poster
from evalflows.specs.columns import answer_row
from evalflows.specs.connection import ConnectionSpec, LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import FallbackSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import CompositeSpec
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.paths import located
from evalflows.specs.protocols import Complete
from evalflows.specs.reference import load, parts_of, refer, version_of
from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.specs.user_frames import fault_text
from evalflows.store.erased import is_erased
from evalflows.store.ingest.file_formats import Numbered, read_rows
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExampleRow
from evalflows.targets import Target, chat, http, python, recorded, recorded_column, replayed

_BOUNDS = {"higher_is_better", "range"}


def make_target(spec: TargetSpec, complete: Complete | None, examples: Sequence[ExampleRow], store: Store) -> Target:
    """Return the target that a spec describes. Raise InputError if it cannot be used."""
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
    """Return a target that replays recorded answers. Raise InputError if they cannot be found."""
    if spec.column is not None:
        return recorded_column(spec.column)
    if spec.experiment is not None:
        (identity,) = find_experiments(store, spec.experiment)
        outputs = (row for row in store.rows("outputs", identity) if not is_erased(row.outputs))
        return replayed(outputs, f"experiment {identity}")
    where = spec.path or ""
    return recorded(_answers(spec, where), where)


def _answers(spec: RecordedTarget, where: str) -> Numbered:
    for number, row in read_rows(where):
        try:
            yield number, row if spec.columns is None else answer_row(row, spec.columns)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error


NOT_IN_VERSION = {"name", "function", "path", "version", "version_url", "version_header", "usage"}
"""Fields of a target that do not change its answers, or whose content counts instead."""


def target_version(spec: TargetSpec, connections: Mapping[str, ConnectionSpec]) -> str:
    """Return a hash of a target's spec, of the code or answers that it names, and of the endpoint of its model.

    What an HTTP application says its version is does not count: see `application_version`.
    """
    settings = spec.model_dump_json(exclude=NOT_IN_VERSION)
    match spec:
        case PythonTarget():
            return version_of(load(spec.function), settings)
        case HttpTarget():
            return version_of(http, settings)
        case RecordedTarget():
            return version_of(recorded, settings, _file_digest(spec.path) if spec.path else "")
        case ChatTarget():
            return version_of(chat, settings, served(spec.connection, connections, spec.model))


def target_code(spec: TargetSpec) -> dict[str, str] | None:
    """Return a hash of each part of the user's code that a target runs; None for a target without code of the user."""
    return parts_of(load(spec.function)) if isinstance(spec, PythonTarget) else None


def said_version(spec: TargetSpec) -> str | None:
    """Return the version that an HTTP application says it has; None if it does not, and for other targets."""
    return application_version(spec) if isinstance(spec, HttpTarget) else None


def served(name: str | None, connections: Mapping[str, ConnectionSpec], model: str | None) -> list[str | None]:
    """Return what identifies a connection's answers: the endpoint and the model."""
    if name is None:
        return []
    connection = resolve(name, connections)
    if isinstance(connection, LocalConnection):
        return [identity_of(connection)]
    return [connection.base_url.rstrip("/"), model or connection.model]


def bind_evaluator(spec: FallbackSpec, scope: Scope = "item") -> Bound:
    """Load and check an evaluator. Raise InputError if it does not exist or asks for unknown arguments.

    An evaluator of another project gets an adapter; its single score gets the spec's name if that differs.
    """
    loaded = named(spec.use)
    if is_ours(spec) and (scope == "pair") != (spec.use in evaluators.PAIRWISE):
        compares, other = "compares two answers, wanted it under compare", "judges one answer, wanted one that compares"
        wanted = f"{other} two: {', '.join(evaluators.PAIRWISE)}" if scope == "pair" else compares
        raise InputError(f"evaluator {spec.metric!r}: {spec.use} {wanted}")
    if scope == "pair" and not isclass(loaded):
        return bind(loaded, name=spec.metric, settings=spec.args, scope=scope)
    renamed = bool(spec.name) and spec.name != evaluator_name(loaded)
    one_run = scope == "item"
    adapter = adapted(loaded, name=spec.metric, settings=spec.args, renamed=renamed, one_run=one_run)
    if adapter is None and isclass(loaded):
        return bind(_instance(loaded, spec), name=spec.metric, scope=scope)
    return bind(adapter or loaded, name=spec.metric, settings={} if adapter else spec.args, scope=scope)


def _instance(kind: type, spec: FallbackSpec) -> Callable[..., object]:
    """Return an instance of a user's class, constructed with the settings; it judges by being called."""
    who = f"evaluator {spec.metric!r}"
    if "__call__" not in dir(kind) or kind.__call__ is type.__call__:
        raise InputError(
            f"{who}: {spec.use!r} is a class that cannot be called, wanted a function, or one with __call__"
        )
    try:
        instance: Callable[..., object] = kind(**spec.args)
    except Exception as error:  # whatever the user's constructor raises
        raise InputError(f"{who}: {spec.use!r} cannot be constructed with args: {fault_text(error)}") from error
    return instance


def is_ours(spec: FallbackSpec) -> bool:
    return spec.use in evaluators.SHORT_NAMES


def reference_to(function: Callable[..., object]) -> str:
    """Return how a spec names a function: the short name of one of ours, otherwise the result of `refer`."""
    short = evaluator_name(function)
    return short if getattr(evaluators, short, None) is function else refer(function)


def named_reference(function: Callable[..., object], name: str | None = None) -> dict[str, str]:
    """Return an evaluator function as fields of a spec; its name by default as other projects call its score."""
    return {"use": reference_to(function), "name": name or kept_apart(evaluator_name(function))}


def composite_version(composite: CompositeSpec, spec: ExperimentSpec | TraceEvaluationSpec) -> str:
    """Return a hash of a composite's weights and policy, and of the bounds of its parts."""
    bounds = {metric: spec.direction(metric).model_dump(include=_BOUNDS) for metric in sorted(composite.metrics)}
    own = [version_of(load(composite.function))] if composite.function else []
    return version_of(combined, composite.model_dump(exclude={"name", "function"}), bounds, *own)


def _file_digest(path: str) -> str:
    with located(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shared_fields(examples: Sequence[ExampleRow]) -> frozenset[str]:
    """Return the fields that the inputs of all examples have in common."""
    common: frozenset[str] | None = None
    for example in examples:
        fields = frozenset(json.loads(example.inputs))
        common = fields if common is None else common & fields
    return common or frozenset()
