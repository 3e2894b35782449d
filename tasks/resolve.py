"""From a spec to the code that it names: targets and evaluators, checked, and with their versions."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import evaluators
from evaluators.call import Bound, bind
from specs.errors import InputError
from specs.evaluator import EvaluatorSpec
from specs.protocols import Complete
from specs.reference import load, name_of, refer, version_of
from specs.target import ChatTarget, PythonTarget, RecordedTarget, TargetSpec
from store.jsonl import read_jsonl
from store.records import ExampleRow
from targets import Target, chat, python, recorded

DEFAULT_CONNECTION = "openai"
"""Of an evaluator that asks for `complete` and names none."""


def make_target(spec: TargetSpec, complete: Complete | None, examples: Sequence[ExampleRow]) -> Target:
    """The target that a spec describes. Raises InputError for one that cannot be used."""
    match spec:
        case ChatTarget():
            if complete is None:
                raise TypeError("a chat target needs complete")
            return chat(spec, complete)
        case PythonTarget():
            return python(load(spec.function), shared_fields(examples))
        case RecordedTarget():
            return recorded(read_jsonl(spec.path), spec.path)


def target_version(spec: TargetSpec) -> str:
    """A hash of a target's spec, and of the code or the answers that it names."""
    settings = spec.model_dump_json(exclude={"name", "function", "path"})
    match spec:
        case PythonTarget():
            return version_of(load(spec.function), settings)
        case RecordedTarget():
            return version_of(recorded, settings, Path(spec.path).read_bytes())
        case ChatTarget():
            return version_of(chat, settings)


def bind_evaluator(spec: EvaluatorSpec) -> Bound:
    """Load and check an evaluator. Raises InputError for one that does not exist, or asks for what does not."""
    short = spec.use in evaluators.SHORT_NAMES
    if not short and ":" not in spec.use:
        known = ", ".join(evaluators.SHORT_NAMES)
        raise InputError(f"evaluator {spec.use!r}: wanted 'module:name' or one of {known}")
    function = load(f"evaluators:{spec.use}" if short else spec.use)
    return bind(function, name=spec.metric, settings=spec.args)


def reference_to(function: Callable[..., object]) -> str:
    """How a spec names a function: its short name if it is one of ours, else as `refer` does."""
    short = name_of(function)
    return short if getattr(evaluators, short, None) is function else refer(function)


def evaluator_version(spec: EvaluatorSpec, bound: Bound) -> str:
    """A hash of an evaluator's source, constants and settings, and of which model it asks."""
    return version_of(bound.function, sorted(spec.args.items()), connection_name(spec, bound), spec.model)


def connection_name(spec: EvaluatorSpec, bound: Bound) -> str | None:
    """The connection that an evaluator uses, if it asks for one at all."""
    return (spec.connection or DEFAULT_CONNECTION) if bound.asks_for("complete", "embed") else None


def shared_fields(examples: Sequence[ExampleRow]) -> frozenset[str]:
    """The fields that the inputs of every example have."""
    fields = [frozenset(json.loads(example.inputs)) for example in examples]
    return frozenset.intersection(*fields) if fields else frozenset()
