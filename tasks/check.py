"""Everything that can be wrong is found here, before anything is written or paid."""

import json
from collections.abc import Sequence

from llm.connections import key_of, resolve
from llm.local import gguf_of
from specs.connection import LocalConnection
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.protocols import Completion
from specs.target import ChatTarget, TargetSpec
from store.records import ExampleRow
from targets import check_fields
from tasks.resolve import bind_evaluator, connection_name, make_target


def check_spec(spec: ExperimentSpec, examples: Sequence[ExampleRow]) -> None:
    """Raises InputError, in one line, for the first thing in a spec that cannot work on these examples."""
    for target in spec.targets:
        _check_target(target, spec, examples)
    for evaluator in spec.evaluators:
        bound = bind_evaluator(evaluator)
        if bound.asks_for("embed"):
            raise InputError(f"evaluator {bound.name!r}: asks for 'embed', and no connection gives embeddings yet")
        if name := connection_name(evaluator, bound):
            _check_connection(name, evaluator.model, f"evaluator {bound.name!r}", spec)


def _check_target(target: TargetSpec, spec: ExperimentSpec, examples: Sequence[ExampleRow]) -> None:
    if isinstance(target, ChatTarget):
        _check_connection(target.connection, target.model, f"target {target.name!r}", spec)
        for example in examples:
            check_fields(target, json.loads(example.inputs), f"example {example.example_id!r}")
    make_target(target, _never, examples)


def _check_connection(name: str, model: str | None, who: str, spec: ExperimentSpec) -> None:
    connection = resolve(name, spec.connections)
    if isinstance(connection, LocalConnection):
        gguf_of(connection)
        return
    try:
        key_of(name, connection)
    except InputError as error:
        raise InputError(f"{who}: {error}") from error
    if not model and not connection.model:
        raise InputError(f"{who}: connection {name!r} has no model of its own, wanted a model to be named")


async def _never(*args: object, **kwargs: object) -> Completion:
    raise AssertionError("nothing is called while a spec is checked")
