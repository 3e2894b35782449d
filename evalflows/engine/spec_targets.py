"""Targets of specs: made so that they can be called, and their versions."""

import hashlib
import inspect
import json
import operator
from collections.abc import Mapping, Sequence, Set
from functools import partial, reduce

from evalflows.engine.contents import opening
from evalflows.llm.connections import resolve
from evalflows.llm.local import identity_of
from evalflows.specs.columns import answer_row
from evalflows.specs.connections import ConnectionSpec, LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.files import located
from evalflows.specs.protocols import Completes, Post
from evalflows.specs.reference import is_called, load, name_of, parameters_of, parts_of, version_of
from evalflows.specs.target import (
    OF_REASONING,
    ChatTarget,
    ConversationTarget,
    HttpTarget,
    PythonTarget,
    RecordedTarget,
    TargetSpec,
    asked,
)
from evalflows.store.attachments import content_in, has_any
from evalflows.store.file_formats import Numbered, read_rows
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExampleRow, Json, to_json
from evalflows.store.schemas import is_erased
from evalflows.store.store import Store
from evalflows.targets import (
    OFFERED,
    Target,
    chat,
    chat_with_attachments,
    http,
    python,
    recorded,
    recorded_column,
    replayed,
)

NOT_IN_VERSION = {
    *("name", "factors", "function", "path", "version", "version_url", "version_header", "usage", "mode", "answers_of")
}
"""Fields of a target that do not change its answers, or whose content counts instead."""


def make_target(spec: TargetSpec, completes: Completes, examples: Sequence[ExampleRow], store: Store) -> Target:
    """Return the target that a spec describes. Raise InputError if it cannot be used."""
    match spec:
        case ChatTarget():
            return chat_with_attachments(spec.as_sent, completes(spec.connection))
        case PythonTarget():
            made = python(load(spec.function), fields_of_all(examples), spec.timeout_s)
            return _with_answers_of(spec.answers_of, _opening(made, store), store)
        case ConversationTarget():
            from evalflows.engine.dialogue import conversation  # late: it loads judges

            return conversation(spec, completes, posts_of, fields_of_all(examples))
        case HttpTarget():
            return _with_answers_of(spec.answers_of, _opening(http(spec, posts_of(spec)), store), store)
        case RecordedTarget():
            return recording_of(spec, store)


def _with_answers_of(experiment: str | None, target: Target, store: Store) -> Target:
    return target if experiment is None else _replayed(experiment, store, target)


def _opening(target: Target, store: Store) -> Target:
    return opening(target, partial(content_in, store)) if has_any(store) else target


def posts_of(spec: HttpTarget) -> Post:
    """Return what posts to an application."""
    from evalflows.llm.post import poster  # late: only these targets need its HTTP client

    return poster(spec)


def fields_of_all(examples: Sequence[ExampleRow]) -> frozenset[str]:
    """Return the fields that the inputs of all examples have."""
    fields = (frozenset(json.loads(example.inputs)) for example in examples)
    return reduce(frozenset.intersection, fields, next(fields, frozenset()))


def text_field(target: object) -> str | None:
    """Return the name under which a target's only parameter gets an example that is a text; None for the default."""
    if not callable(target):
        return None
    try:
        parameters = parameters_of(target, f"target {name_of(target)!r}")
    except InputError:  # the target itself says so
        return None
    others = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in others]
    known = (*OFFERED, "input")
    return needed[0].name if len(needed) == 1 and needed[0].name not in known else None


def recording_of(spec: RecordedTarget, store: Store) -> Target:
    """Return a target that replays recorded answers. Raise InputError if they cannot be found."""
    if spec.column is not None:
        return recorded_column(spec.column)
    if spec.experiment is not None:
        return _replayed(spec.experiment, store)
    where = spec.path or ""
    return recorded(_answers(spec, where), where)


def _replayed(experiment: str, store: Store, otherwise: Target | None = None) -> Target:
    (identity,) = find_experiments(store, experiment)
    outputs = (row for row in store.rows("outputs", identity) if not is_erased(row.outputs))
    return replayed(outputs, f"experiment {identity}", otherwise)


def _answers(spec: RecordedTarget, where: str) -> Numbered:
    for number, row in read_rows(where):
        try:
            yield number, row if spec.columns is None else answer_row(row, spec.columns)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error


def target_version(spec: TargetSpec, connections: Mapping[str, ConnectionSpec]) -> str:
    """Return a hash of a target's spec, of the code or answers that it names, and of the endpoint of its model.

    What an HTTP application says its version is does not count: see `application_version`.
    """
    settings = _settings(spec, NOT_IN_VERSION)
    match spec:
        case PythonTarget():
            settings = spec.model_dump_json(exclude=NOT_IN_VERSION | {"timeout_s"})
            return version_of(load(spec.function, is_called), settings)
        case HttpTarget():
            return version_of(http, settings)
        case RecordedTarget():
            return version_of(recorded, settings, _file_digest(spec.path) if spec.path else "")
        case ChatTarget():
            return version_of(chat, settings, served(spec.connection, connections, spec.model))
        case ConversationTarget():
            from evalflows.engine.dialogue import SIMULATED_USER_PROMPT, conversation  # late: it loads judges

            settings = _settings(spec, {*NOT_IN_VERSION, "target"})
            code = [version_of(load(reference)) for field, reference in spec.code if field != "target"]
            models = [served(name, connections, model) for name, model in spec.connections]
            inner = target_version(spec.target, connections)
            return version_of(conversation, settings, SIMULATED_USER_PROMPT, inner, code, models)


def _settings(spec: TargetSpec, left_out: Set[str]) -> str:
    if isinstance(spec, ChatTarget):
        return spec.as_sent.model_dump_json(exclude={*left_out, *OF_REASONING})
    return spec.model_dump_json(exclude={*left_out})


def target_code(spec: TargetSpec) -> Json | None:
    """Return a hash of each part of the user's code that a target runs; None for a target without code of the user."""
    return to_json(parts) if (parts := _parts_of(spec)) is not None else None


def _parts_of(spec: TargetSpec) -> dict[str, str] | None:
    if isinstance(spec, ConversationTarget):
        parts = [parts_of(load(reference, is_called)) for _, reference in spec.code]
        return reduce(operator.or_, parts) if parts else None
    return parts_of(load(spec.function)) if isinstance(spec, PythonTarget) else None


def said_version(spec: TargetSpec) -> str | None:
    """Return the version that the spec gives, or that an HTTP application says; None if neither does."""
    inner = asked(spec)
    if spec.version is not None or not isinstance(inner, HttpTarget):
        return spec.version
    from evalflows.llm.post import application_version

    return application_version(inner)


def served(name: str | None, connections: Mapping[str, ConnectionSpec], model: str | None) -> list[str | None]:
    """Return what identifies a connection's answers: the endpoint and the model."""
    if name is None:
        return []
    connection = resolve(name, connections)
    if isinstance(connection, LocalConnection):
        return [identity_of(connection)]
    return [connection.base_url.rstrip("/"), model or connection.model]


def _file_digest(path: str) -> str:
    with located(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
