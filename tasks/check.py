"""Everything that can be wrong is found here, before anything is written or paid."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evaluators.call import Bound, Level
from llm import minilm
from llm.connections import resolve
from llm.local import gguf_of
from llm.prices import price_of
from specs.comparison import CompareSpec, ComparisonSpec
from specs.connection import ConnectionSpec, LocalConnection
from specs.errors import InputError
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.metric import MEASURES, CompositeSpec
from specs.protocols import Completion
from specs.reference import load
from specs.target import ChatTarget, HttpTarget, RecordedTarget, TargetSpec
from store.parquet import Store
from store.records import ExampleRow
from targets import NoRecordedAnswerError, Target, check_body, check_fields
from tasks.declared import given_metrics, judges_of, metrics_of
from tasks.isolated import check_movable
from tasks.keys import key_for
from tasks.probe import check_settings
from tasks.resolve import bind_evaluator, connection_name, is_ours, make_target
from tasks.sample import draw
from tasks.subject import example_view, has_value

Spec = ExperimentSpec | ComparisonSpec


def check_spec(spec: ExperimentSpec, examples: Sequence[ExampleRow], store: Store) -> None:
    """Raises InputError, in one line, for the first thing in a spec that cannot work on these examples."""
    inputs = {example.example_id: _inputs(example) for example in examples}
    for target in spec.targets:
        _check_target(target, spec, examples, inputs, store)
    for evaluator in spec.evaluators:
        _check_evaluator(evaluator, spec, "item")
        draw(evaluator, examples)
        for judge in judges_of(evaluator):
            if is_ours(judge):
                check_settings(bind_evaluator(judge), examples)
    for evaluator in spec.summary_evaluators:
        _check_evaluator(evaluator, spec, "run")
    _check_metrics(spec)
    _check_gates(spec)
    for composite in spec.composites:
        _check_composite(composite, spec)
    if spec.compare is not None:
        known = [*(given_metrics(spec) or spec.judges), *(composite.name for composite in spec.composites), *MEASURES]
        check_pairwise(spec.compare, spec, examples, known)


def check_pairwise(
    compare: CompareSpec, spec: Spec, examples: Sequence[ExampleRow], item_metrics: Collection[str]
) -> None:
    """Raises InputError for pairwise evaluators that cannot work, or are called as an item metric is, and for slices by
    what no example has.
    """
    for judge in compare.evaluators:
        bound = check_judge(judge, spec, "pair")
        if is_ours(judge):
            check_settings(bound, examples)
        if bound.name in item_metrics:
            wanted = f"wanted another name, such as pairwise_{bound.name} or ranked_{bound.name}"
            raise InputError(f"evaluator {bound.name!r}: an item metric of the experiments is called so; {wanted}")
    for path in compare.by:
        if not any(has_value(example, path) for example in examples):
            raise InputError(f"by: no example has {path!r}, wanted split, or a path such as metadata.topic")


def _inputs(example: ExampleRow) -> dict[str, Any]:
    """What another program has put into the store may be anything."""
    try:
        inputs = json.loads(example.inputs)
    except ValueError as error:
        raise InputError(f"example {example.example_id!r}: its inputs are not JSON: {error}") from error
    if not isinstance(inputs, dict):
        raise InputError(f"example {example.example_id!r}: its inputs are {type(inputs).__name__}, wanted a mapping")
    return inputs


def _check_target(
    target: TargetSpec,
    spec: ExperimentSpec,
    examples: Sequence[ExampleRow],
    inputs: Mapping[str, dict[str, Any]],
    store: Store,
) -> None:
    if isinstance(target, ChatTarget):
        _check_connection(target.connection, target.model, f"target {target.name!r}", spec)
        for identity, fields in inputs.items():
            check_fields(target, fields, f"example {identity!r}")
    if isinstance(target, HttpTarget):
        for identity, fields in inputs.items():
            check_body(target, fields, f"example {identity!r}")
    made = make_target(target, _never, examples, store)
    if isinstance(target, RecordedTarget) and not any(_is_answered(made, example) for example in examples):
        raise InputError(f"target {target.name!r}: {_said(made, examples[0])}, nor for any other of {len(examples)}")


def _is_answered(recording: Target, example: ExampleRow) -> bool:
    return _said(recording, example) == ""


def _said(recording: Target, example: ExampleRow) -> str:
    """Why a recording has no answer for an example; nothing if it has one."""
    view = example_view(example)
    offered = {
        "example": view,
        "example_id": view.id,
        "inputs": view.inputs,
        "metadata": view.metadata,
        "repetition": 0,
    }
    try:
        recording.call(offered)
    except NoRecordedAnswerError as error:
        return str(error)
    return ""


def _check_evaluator(evaluator: EvaluatorSpec, spec: ExperimentSpec, level: Level) -> None:
    bound = check_judge(evaluator, spec, level)
    for tier in evaluator.tiers:
        check_judge(tier, spec, level)
    if evaluator.fallback is not None:
        check_judge(evaluator.fallback, spec, level)
    tried = bind_evaluator(evaluator.tiers[-1], level) if evaluator.tiers else bound
    if evaluator.controls and (not tried.asks_for("complete") or level == "run"):
        raise InputError(f"evaluator {bound.name!r}: controls try a model that judges one answer, and this asks none")


def check_judge(evaluator: FallbackSpec, spec: Spec, level: Level) -> Bound:
    """An evaluator, without what judges in its place. Raises InputError where it, or what it asks, cannot be used."""
    bound = bind_evaluator(evaluator, level)
    who, name = f"evaluator {bound.name!r}", connection_name(evaluator, bound)
    if evaluator.timeout_s is not None and not bound.is_async:
        check_movable(bound)
    if name and bound.asks_for("complete"):
        _check_connection(name, evaluator.model, who, spec)
    if name and bound.asks_for("embed"):
        _check_embedding(name, evaluator.model or evaluator.args.get("model"), who, spec)
    return bound


def _check_connection(name: str, model: str | None, who: str, spec: Spec) -> None:
    connection = resolve(name, spec.connections)
    if isinstance(connection, LocalConnection):
        gguf_of(connection)
        return
    _check_key(name, connection, who)
    if not model and not connection.model:
        raise InputError(f"{who}: connection {name!r} has no model of its own, wanted a model to be named")
    _check_price(name, connection, model or connection.model or "", who, spec)


def _check_embedding(name: str, model: str | None, who: str, spec: Spec) -> None:
    connection = resolve(name, spec.connections)
    if isinstance(connection, LocalConnection):
        minilm.available()
        return
    _check_key(name, connection, who)
    if not model and not connection.embedding_model:
        raise InputError(f"{who}: connection {name!r} has no embedding_model, wanted one, or a model to be named")
    _check_price(name, connection, model or connection.embedding_model or "", who, spec)


def _check_key(name: str, connection: ConnectionSpec, who: str) -> None:
    try:
        key_for(name, connection)
    except InputError as error:
        raise InputError(f"{who}: {error}") from error


def _check_price(name: str, connection: ConnectionSpec, model: str, who: str, spec: Spec) -> None:
    """A budget of money holds only where prices are known; a budget of calls holds besides."""
    if spec.budget_usd is None or spec.max_calls is not None or price_of(connection, model) is not None:
        return
    raise InputError(
        f"{who}: budget_usd cannot hold, as nobody knows the price of {model!r} on connection {name!r}; wanted "
        f"usd_per_million_input_tokens and usd_per_million_output_tokens there, a price_list, or max_calls"
    )


def _check_metrics(spec: ExperimentSpec) -> None:
    """What is said of a metric that there is not is a slip, and would leave another one without it."""
    known = given_metrics(spec)
    if known is None:
        return
    known = [*known, *(composite.name for composite in spec.composites), *MEASURES]
    for metric in spec.metrics:
        if re.sub(r" pass[@^]\d+$", "", metric) not in known:  # what is made of its repetitions may be spoken of too
            raise InputError(f"metrics: nothing gives {metric!r}, wanted some of {', '.join(known)}")


def _check_gates(spec: ExperimentSpec) -> None:
    """A rule on a metric that there is not would never hold."""
    known = given_metrics(spec)
    if known is None:
        return
    known = [*known, *(composite.name for composite in spec.composites), *MEASURES]
    for gate in spec.gates:
        for metric in gate.metrics:
            if re.sub(r" pass[@^]\d+$", "", metric) not in known:
                raise InputError(f"gate {gate.name!r}: nothing gives {metric!r}, wanted some of {', '.join(known)}")


def _check_composite(composite: CompositeSpec, spec: ExperimentSpec) -> None:
    """An evaluator of the user's may give metrics that only its scores will name; one of ours says which it gives."""
    name, known = composite.name, given_metrics(spec)
    for metric in composite.metrics:
        if metric in MEASURES and metric in composite.weights and spec.direction(metric).range is None:
            wanted = f"metrics: {{{metric}: {{range: [0, …]}}}}"
            raise InputError(f"composite {name!r}: {metric} has no bounds, wanted {wanted}")
        if known is not None and metric not in (*known, *MEASURES):
            wanted = ", ".join([*known, *MEASURES])
            raise InputError(f"composite {name!r}: no evaluator gives {metric!r}, wanted some of {wanted}")
    if composite.function:
        load(composite.function)
    drawn = [e for e in spec.evaluators if e.is_sampled and not composite.metrics.isdisjoint(metrics_of(e))]
    if len({(e.sample_seed, e.sample_by, frozenset(e.sample_rates)) for e in drawn}) > 1:
        names = " and ".join(e.metric for e in drawn)
        wanted = "the same sample_seed, sample_by and values of it, so that one sample is part of the other"
        raise InputError(f"composite {name!r}: the samples of {names} are drawn in different ways, wanted {wanted}")


async def _never(*args: object, **kwargs: object) -> Completion:
    raise AssertionError("nothing is called while a spec is checked")
