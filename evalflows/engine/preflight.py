"""Checks before a run: find mistakes in a spec, in the settings of evaluators and in the engine before anything is
written or paid."""

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import isawaitable, signature
from itertools import islice
from threading import Thread
from typing import Any

from evalflows.engine import may_call_models
from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.controls import Control, controls_of
from evalflows.engine.isolated import check_picklable
from evalflows.engine.prepare import PreparedExperiment, PreparedTraces, prepare
from evalflows.engine.quick_processes import check_quick
from evalflows.engine.running import draw
from evalflows.engine.secret_blocks import key_for
from evalflows.engine.spec_evaluators import PreparedEvaluator, is_ours
from evalflows.engine.spec_targets import make_target, target_version
from evalflows.engine.views import RequestedInputs, example_view
from evalflows.evaluators.binding import Bound
from evalflows.evaluators.declarations import CHECK
from evalflows.evaluators.views import RunView, offer_pair, offer_run
from evalflows.llm import local
from evalflows.llm.connections import known, require_sdk, resolve
from evalflows.llm.ledger import Recorder, recording
from evalflows.llm.local import gguf_of
from evalflows.llm.prices import price_of
from evalflows.specs.attachments import has_reference
from evalflows.specs.code_versions import check_loaded
from evalflows.specs.connections import (
    AnthropicConnection,
    ConnectionSpec,
    GoogleConnection,
    LocalConnection,
    RemoteConnection,
)
from evalflows.specs.dialogue import ScriptedUser
from evalflows.specs.errors import CallError, InputError, describe, names_to_choose
from evalflows.specs.escaping import print_note
from evalflows.specs.evaluator import PAIR_LABELS, EvaluatorSpec, FallbackSpec, JudgeSpec, TierSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import MEASURES, base_metric, kept_apart, metric_of
from evalflows.specs.metrics import CompositeSpec
from evalflows.specs.reference import is_called, load
from evalflows.specs.running import TaskRunnerSpec, check_task_runner
from evalflows.specs.target import (
    ChatTarget,
    ConversationTarget,
    HttpTarget,
    PythonTarget,
    RecordedTarget,
    TargetSpec,
    asked,
)
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.specs.watch import MEASURED, TRACES
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.shared_examples import check_slices, has_value
from evalflows.store.queries.traces import condition
from evalflows.store.records import CallRow, ExampleRow, from_json
from evalflows.store.snapshots import Examples
from evalflows.store.store import Store
from evalflows.targets import (
    NoRecordedAnswerError,
    Target,
    attached_parts,
    awaited,
    check_body,
    check_fields,
    check_tools,
)

FIRST_CALL_S = 5.0
"""Seconds until a target that has made no model call is taken to make none."""

MAX_EXAMPLES = 3
"""Examples to try: some settings are only read if an example has the field that they concern."""

_OF_A_RUN = ("inputs.", "outputs.", "reference_outputs.", "metadata.")


def check_engine(
    runner: TaskRunnerSpec,
    targets: Iterable[TargetSpec],
    evaluators: Iterable[PreparedEvaluator[FallbackSpec]],
    others: Iterable[tuple[str, str]] = (),
) -> None:
    """Raise InputError for an engine that is not installed, and for a function that only this process has.

    `others` are references to further functions that chunks call, each after who calls it.
    """
    check_task_runner(runner)
    if not runner.imports_code:
        return
    functions = [(f"target {target.name!r}", reference) for target in targets for _, reference in target.code]
    functions += [
        (f"evaluator {evaluator.name!r}", judge.spec.use) for evaluator in evaluators for judge in evaluator.all
    ]
    for who, reference in (*functions, *others):
        if reference.startswith("live:"):
            raise InputError(
                f"{who}: got a function that only this process has; with task_runner {runner.kind} wanted "
                "'module:name', which its processes can import"
            )


def check_settings(bound: Bound, examples: Sequence[ExampleRow]) -> None:
    """Raise InputError if an evaluator rejects one of its settings.

    The evaluator is called on the first examples with the reference as the answer, and with a model that never answers.
    Its scores are ignored, and so are errors about paths into the answer.
    """
    for example in examples[:MAX_EXAMPLES]:
        try:
            with ThreadPoolExecutor(1) as thread:  # the caller may already run an event loop
                thread.submit(lambda row: asyncio.run(_call(bound, row)), example).result()
        except (ValueError, re.error, TypeError) as error:
            if problem := _setting_error(bound, error):
                raise InputError(f"evaluator {bound.name!r}: {problem}") from error
        except Exception:
            continue


def _check_examples(bound: Bound, examples: Sequence[ExampleRow]) -> None:
    """Raise InputError for an example that an evaluator could not judge, if its function checks them."""
    if (check := getattr(bound.function, CHECK, None)) is None or bound.scope == "pair":
        return
    try:
        note: str | None = check(map(example_view, examples), bound.settings)
    except ValueError as error:
        raise InputError(f"evaluator {bound.name!r}: {error}") from error
    if note is not None:
        print_note(f"evaluator {bound.name!r}: {note}")


def _check_resampled(evaluator: PreparedEvaluator[EvaluatorSpec]) -> None:
    """Raise InputError for an evaluator that says `resample` and is no pure function of its lists."""
    bound = evaluator.bound
    if evaluator.spec.resample and (bound.is_async or bound.asks_for("complete", "embed")):
        got = "an async function" if bound.is_async else "one that calls a model"
        raise InputError(f"evaluator {bound.name!r}: resample: got {got}, wanted a plain function of the lists")


async def _call(bound: Bound, example: ExampleRow) -> None:
    returned = bound.call({**reference_as_answer(bound, example), "complete": _never, "embed": _never})
    if isawaitable(returned):
        await returned


def reference_as_answer(bound: Bound, example: ExampleRow) -> dict[str, Any]:
    """Return the arguments of an evaluator, with an example's reference as the answer, or a placeholder without one."""
    view = example_view(example)
    run = RunView(id="", inputs=view.inputs, outputs=json.loads(json.dumps(view.reference_outputs or {"output": "."})))
    return offer_pair(view, run, run) if bound.scope == "pair" else offer_run(view, run)


async def _never(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no model is called while a spec is checked")


def _setting_error(bound: Bound, error: Exception) -> str | None:
    """Return what is wrong with a setting; None if the error is not about a setting, whose name it would start with."""
    text = str(error)
    name = re.split(r"[:.\s]", text, maxsplit=1)[0]
    if isinstance(error, re.error) and "pattern" in bound.settings:
        name, text = "pattern", f"pattern: {describe(error)}"
    value = bound.settings.get(name)
    is_path = isinstance(value, str) and value.startswith(_OF_A_RUN)
    return text if name in bound.settings and not is_path else None


def check_spec(prepared: PreparedExperiment, examples: Sequence[ExampleRow], store: Store) -> None:
    """Raise InputError, in one line, for the first part of a spec that cannot work on these examples."""
    spec = prepared.spec
    check_engine(spec.task_runner, spec.targets, [*prepared.evaluators, *prepared.pairwise])
    for identity, text in _stored_inputs(examples):
        _inputs(identity, text)
    for target in spec.targets:
        _check_target(target, spec, examples, store)
        for _, reference in target.code:
            check_loaded(f"target {target.name!r}", load(reference, is_called))
    for evaluator in prepared.of_runs:
        for judge in evaluator.all:
            _check_judge(judge, spec)
        _check_controls(evaluator, examples)
    for evaluator in prepared.evaluators:
        draw(evaluator.spec, examples)
        for judge in evaluator.judges:
            if is_ours(judge.spec):
                check_settings(judge.bound, examples)
    for evaluator in prepared.of_runs:
        for judge in evaluator.judges:
            if is_ours(judge.spec):
                _check_examples(judge.bound, examples)
    for evaluator in prepared.summary_evaluators:
        _check_resampled(evaluator)
    _check_actions(prepared, examples)
    _check_needs(prepared.evaluators)
    _check_shared(prepared.of_runs)
    _check_kept_apart(prepared)
    _check_names(prepared)
    check_slices(spec.gates, examples)
    check_panels(prepared)
    for composite in spec.composites:
        _check_composite(composite, prepared)
    if spec.compare is not None:
        metrics = prepared.given_metrics or spec.judges
        item_metrics = [*metrics, *(composite.name for composite in spec.composites), *MEASURES]
        check_pairwise(prepared.pairwise, spec.compare.slice_by, spec, examples, item_metrics)


def check_traces(spec: TraceEvaluationSpec) -> PreparedTraces:
    """Prepare and check the spec of a trace evaluation.

    Raise InputError for a filter, a mapper, an evaluator or a connection that cannot be used, and for a composite of or
    a watch rule on a metric that nothing gives; evaluators of users may give any.
    """
    from evalflows.engine.items import load_mapper  # late: it loads OpenAI's SDK

    prepared = prepare(spec)
    composed = [
        (f"composite {composite.name!r}", composite.function) for composite in spec.composites if composite.function
    ]
    mapped = [("mapper", spec.mapper)] if isinstance(spec.mapper, str) else []
    check_engine(spec.task_runner, (), prepared.evaluators, [*mapped, *composed])
    if spec.task_runner.kind == "processes":
        check_quick(prepared)
    for evaluator in prepared.evaluators:
        for judge in evaluator.all:
            _check_judge(judge, prepared.spec)
    _check_needs(prepared.evaluators)
    check_panels(prepared)
    if prepared.given_metrics is not None:
        _check_given(prepared.spec, {*prepared.given_metrics})
    condition(spec.filter, spec.scope)
    load_mapper(spec.mapper)
    if isinstance(spec.mapper, str):
        check_loaded("mapper", load(spec.mapper))
    return prepared


def _check_given(spec: TraceEvaluationSpec, metrics: set[str]) -> None:
    """Raise InputError for a composite of a metric, or a watch rule on one, that is not among those given."""
    parts = metrics | {*MEASURES} | {composite.name for composite in spec.composites if composite.panel}
    for composite in spec.composites:
        if unknown := composite.metrics - parts:
            got, wanted = min(unknown), ", ".join(sorted(parts))
            raise InputError(f"composite {composite.name!r}: no evaluator gives {got!r}, wanted one of {wanted}")
    known = metrics | {*MEASURED} | {composite.name for composite in spec.composites}
    for rule in spec.watch:
        of_rule = known | {TRACES} if rule.kind == "failure_share" else known
        if rule.metric not in of_rule:
            raise InputError(f"watch: no evaluator gives {rule.metric!r}, wanted one of {', '.join(sorted(of_rule))}")


def check_pairwise(
    judges: Sequence[PreparedEvaluator[JudgeSpec]],
    slice_by: Sequence[str],
    spec: AnySpec,
    examples: Sequence[ExampleRow],
    item_metrics: Collection[str],
) -> None:
    """Check the evaluators and slices of a comparison.

    Raise InputError for evaluators that cannot be used or have the name of an item metric, and for slices by a field
    that no example has.
    """
    for judge in judges:
        _check_controls(judge, examples)
        for member in judge.all:
            _check_judge(member, spec)
            if is_ours(member.spec):
                check_settings(member.bound, examples)
        for tier in judge.tiers:
            _check_decides_pairs(judge.name, tier.spec)
        if (name := judge.bound.name) in item_metrics:
            wanted = f"wanted another name, such as pairwise_{name} or ranked_{name}"
            raise InputError(f"evaluator {name!r}: the experiments have an item metric of this name; {wanted}")
    for path in slice_by:
        if not any(has_value(example, path) for example in examples):
            raise InputError(f"slice_by: no example has {path!r}, wanted split, or a path such as metadata.topic")


def _check_decides_pairs(name: str, tier: TierSpec) -> None:
    """Raise InputError for a tier whose final scores are none that a pair can have."""
    bounds = [bound for bound in (tier.decides_from, tier.decides_to) if bound is not None]
    if bounds or not {*tier.decides} <= {*PAIR_LABELS}:
        got = next(iter(bounds), None) or next(label for label in tier.decides if label not in PAIR_LABELS)
        raise InputError(f"evaluator {name!r}: tier {tier.metric}: decides: got {got!r}, wanted win or tie for pairs")


def _stored_inputs(examples: Sequence[ExampleRow]) -> Iterable[tuple[str, str]]:
    """Return the ids and inputs of examples, except of drafts, whose inputs are mappings."""
    if not isinstance(examples, Examples):
        return ((example.example_id, example.inputs) for example in examples)
    return () if examples.is_draft else zip(examples.ids, examples.texts("inputs"), strict=True)


def _inputs(identity: str, text: str) -> dict[str, Any]:
    """Return the inputs of an example, which another program may have written to the store."""
    try:
        inputs = from_json(text)
    except ValueError as error:
        raise InputError(f"example {identity!r}: its inputs are not JSON: {error}") from error
    if not isinstance(inputs, dict):
        raise InputError(f"example {identity!r}: its inputs are {type(inputs).__name__}, wanted a mapping")
    return inputs


def _check_target(target: TargetSpec, spec: ExperimentSpec, examples: Sequence[ExampleRow], store: Store) -> None:
    if isinstance(target, ChatTarget):
        _check_connection(target.connection, target.model, f"target {target.name!r}", spec)
        for example in examples:
            inputs, where = _inputs(example.example_id, example.inputs), f"example {example.example_id!r}"
            check_fields(target, inputs, where)
            _check_attachments(target, example)
            check_tools(target, {"inputs": inputs, "metadata": from_json(example.metadata) or {}}, where)
    if isinstance(inner := asked(target), ChatTarget):
        _check_parameters(f"target {target.name!r}", inner, spec)
    if isinstance(target, HttpTarget | PythonTarget) and target.answers_of is not None:
        (identity,) = find_experiments(store, target.answers_of)
        (before,) = store.read("experiments", identity)
        if before.target_version != target_version(target, spec.connections):
            got = f"answers_of: {identity} asked another version of {before.target!r}"
            raise InputError(f"target {target.name!r}: {got}, wanted the same code and settings, or no answers_of")
    if isinstance(target, HttpTarget):
        for example in examples:
            check_body(target, _inputs(example.example_id, example.inputs), f"example {example.example_id!r}")
    if may_call_models.target_may_call_unrecorded(target) and not may_call_models.reports_usage(target):
        _check_calls_are_recorded(f"target {target.name!r}", spec)
    made = make_target(target, lambda _: _never, examples, store)
    if isinstance(target, ConversationTarget):
        for name, model in dict.fromkeys(target.connections):
            _check_connection(name, model, f"target {target.name!r}", spec)
        if not isinstance(target.target, ChatTarget) and any(has_reference(example.inputs) for example in examples):
            got = f"messages with files for a {target.target.kind} target"
            raise InputError(f"target {target.name!r}: got {got}, wanted a chat model, the only kind that gets them")
        check_conversations(target, examples)
    if isinstance(target, PythonTarget) and examples and may_call_models.records_calls(load(target.function)):
        _check_price_of_first_call(target, made, spec, examples[0])
    if isinstance(target, RecordedTarget) and all(_missing_answer(made, example) for example in examples):
        reason = _missing_answer(made, examples[0])
        raise InputError(f"target {target.name!r}: {reason}; no answer for any of {len(examples)} examples")


def _check_attachments(target: ChatTarget, example: ExampleRow) -> None:
    """Raise InputError for an attachment that a chat target cannot send."""
    try:
        attached_parts(from_json(example.attachments))
    except InputError as error:
        raise InputError(f"target {target.name!r}: example {example.example_id!r}: {error}") from error


def _check_actions(prepared: PreparedExperiment, examples: Sequence[ExampleRow]) -> None:
    """Raise InputError for a reference that `actions_match` cannot read. Say which tools it names that no world has."""
    targets = [target for target in prepared.spec.targets if isinstance(target, ConversationTarget)]
    if not targets:
        return
    from evalflows.engine.worlds import world_class  # late: it loads the clients of models
    from evalflows.evaluators.agents.outcomes import actions_match

    tools = {name for target in targets if (world := world_class(target)) for name in world.tools}
    bounds = [judge.bound for each in prepared.evaluators for judge in each.judges]
    for bound in bounds if tools else ():
        for example in examples if bound.function is actions_match else ():
            view = example_view(example)
            where = f"evaluator {bound.name!r}: example {example.example_id!r}"
            try:
                bound.call(offer_run(view, RunView(id="", inputs=view.inputs, outputs={"tool_calls": []})))
            except ValueError as error:
                raise InputError(f"{where}: {error}") from error
            wanted = (
                {} if bound.settings.keys() & {"required", "forbidden", "at_most"} else view.reference_outputs or {}
            )
            actions = [item.get("name") if isinstance(item, dict) else item for item in wanted.get("actions") or ()]
            named = (*actions, *(wanted.get("forbidden") or ()), *(wanted.get("at_most") or ()))
            for name in (name for name in named if name not in {*tools, None}):
                print_note(f"{where}: {name!r} is not a tool of the world, wanted {names_to_choose(name, tools)}")
                return


def check_conversations(target: ConversationTarget, examples: Sequence[ExampleRow]) -> None:
    """Raise InputError for the first example without what a conversation needs, before anything is paid. Say which
    scripts are cut."""
    from evalflows.engine.dialogue import check_conversation, script_of  # late: it loads judges
    from evalflows.engine.worlds import world_class

    world, cut = world_class(target), list[str]()
    for example in examples:
        inputs, metadata = _inputs(example.example_id, example.inputs), from_json(example.metadata) or {}
        available = {"inputs": inputs, "metadata": metadata, "example_id": example.example_id}
        try:
            check_conversation(target, world, available)
            if target.max_turns is not None and isinstance(target.user, ScriptedUser):
                n_said = len(script_of(target.user, available))
                cut += [f"{example.example_id!r} with {n_said} messages"] if n_said > target.max_turns else []
        except (InputError, CallError) as error:
            raise InputError(f"target {target.name!r}: example {example.example_id!r}: {error}") from error
    if cut:
        which = f"{len(cut)} of {len(examples)} scripts, the first {cut[0]}"
        print_note(f"target {target.name!r}: max_turns: {target.max_turns} cuts {which}")


class _FirstCall(BaseException):
    """Raised instead of making the first model call of a target or a judge. It is no error: the user's code must not
    catch it and call again."""


def _check_price_of_first_call(target: PythonTarget, made: Target, spec: ExperimentSpec, example: ExampleRow) -> None:
    """Raise InputError if budget_usd cannot be enforced, since the model that a target calls first has no known price.

    The target runs on the first example until that call, which is not made.
    """
    if spec.budget_usd is None or not spec.budget_counts_unknown:
        return
    calls: list[CallRow] = []

    def keep(call: CallRow) -> None:
        calls.append(call)
        raise _FirstCall

    def run() -> None:
        recorder = Recorder(keep=keep, note=keep, connections=[*known(spec.connections).values()])
        with suppress(BaseException), recording(recorder):
            returned = made.call(RequestedInputs(example, 0))
            if isawaitable(returned):
                asyncio.run(awaited(returned))

    thread = Thread(target=run, daemon=True)  # what does not come to a call is not waited for
    thread.start()
    thread.join(FIRST_CALL_S)
    if calls and calls[0].estimated_usd is None:
        raise InputError(
            f"target {target.name!r}: budget_usd cannot be enforced without the price of {calls[0].model!r} at "
            f"{calls[0].base_url}; wanted wrap(client, prices=…), a connection with this base_url and its prices, or "
            "budget_counts_unknown: false"
        )


def _missing_answer(recording: Target, example: ExampleRow) -> str:
    """Return why a recording has no answer for an example; empty if it has one."""
    try:
        recording.call(RequestedInputs(example, 0))
    except NoRecordedAnswerError as error:
        return str(error)
    return ""


def _check_controls(
    evaluator: PreparedEvaluator[JudgeSpec] | PreparedEvaluator[EvaluatorSpec], examples: Sequence[ExampleRow]
) -> None:
    """Raise InputError for controls that cannot be judged: the judge is called with the first ones, and a model that
    never answers. Those of comparisons are known when their experiments are."""
    judge = evaluator.judges[-1]
    tested = judge.bound
    if evaluator.spec.controls and (not tested.asks_for("complete") or evaluator.scope == "run"):
        raise InputError(
            f"evaluator {evaluator.name!r}: controls need a model that judges one answer or pair at a time, got none"
        )
    if not evaluator.spec.controls:
        return
    try:
        made = controls_of(judge.spec, examples, evaluator.spec.controls, owner="", of_pairs=tested.scope == "pair")
        tried = [_is_asked(tested, control) for control in islice(made, 3 * MAX_EXAMPLES)]
    except InputError as error:
        raise InputError(f"evaluator {evaluator.name!r}: {error}") from error
    if tried and not any(tried):
        wanted = "a field of the example, or of the answer, that references have too"
        raise InputError(f"evaluator {evaluator.name!r}: controls: it judges none of the first {len(tried)}; {wanted}")


def _is_asked(bound: Bound, control: Control) -> bool:
    """Return whether a judge asks its model about a control. Raise InputError if it fails before."""

    def ask(*args: Any, **kwargs: Any) -> Any:  # raises before it returns anything that a sync judge would wait for
        raise _FirstCall

    def judge() -> bool:
        returned = bound.call({**control.arguments, "complete": ask, "embed": ask})
        return (asyncio.run(awaited(returned)) if isawaitable(returned) else returned) is not None

    try:
        with ThreadPoolExecutor(1) as thread:  # the caller may already run an event loop
            return thread.submit(judge).result()
    except _FirstCall:
        return True
    except Exception as error:
        raise InputError(f"controls: a reference as the answer cannot be judged: {describe(error)}") from error


def _check_judge(judge: PreparedEvaluator[FallbackSpec], spec: AnySpec) -> None:
    """Check one evaluator, without tiers and fallback. Raise InputError if it or its connection cannot be used."""
    bound, name, settings = judge.bound, judge.connection, judge.spec
    who = f"evaluator {bound.name!r}"
    if not is_ours(settings):
        check_loaded(who, bound.function)
    if settings.timeout_s is not None and not bound.is_async:
        check_picklable(bound)
    if may_call_models.evaluator_may_call_unrecorded(judge):
        _check_calls_are_recorded(who, spec)
    if name and bound.asks_for("complete"):
        _check_connection(name, settings.model, who, spec)
    if name and bound.asks_for("embed"):
        _check_connection(name, settings.model or settings.args.get("model"), who, spec, embeds=True)


def _check_connection(name: str, model: str | None, who: str, spec: AnySpec, *, embeds: bool = False) -> None:
    connection = resolve(name, spec.connections)
    if isinstance(connection, LocalConnection):
        if embeds:
            local.require_installed()
        else:
            gguf_of(connection)
        return
    try:
        require_sdk(name, connection)
        key_for(name, connection)
    except InputError as error:
        raise InputError(f"{who}: {error}") from error
    if spec.mode == "batch" and isinstance(connection, GoogleConnection):
        print_note(f"{who}: connection {name!r}: {connection.api} is called directly, since it has no batches here")
    if embeds and isinstance(connection, AnthropicConnection):
        raise InputError(f"{who}: connection {name!r}: {connection.api} has no embeddings, wanted another connection")
    model = model or (connection.embedding_model if embeds else connection.model)
    if not model:
        lacks = "embedding_model, wanted one, or `model`" if embeds else "default model, wanted `model`"
        raise InputError(f"{who}: connection {name!r} has no {lacks}")
    _check_price(name, connection, model, who, spec)


def _check_parameters(who: str, target: ChatTarget, spec: AnySpec) -> None:
    """Raise InputError for a parameter that the connection's protocol does not have."""
    connection = resolve(target.connection, spec.connections)
    if isinstance(connection, RemoteConnection) and (
        lacks := connection.refusal({"seed": target.seed, **target.extra})
    ):
        raise InputError(f"{who}: connection {target.connection!r}: {lacks}, wanted none")


def _check_price(name: str, connection: ConnectionSpec, model: str, who: str, spec: AnySpec) -> None:
    """Raise InputError if budget_usd cannot be enforced, since the price is unknown."""
    if spec.budget_usd is None or not spec.budget_counts_unknown:
        return
    if price := price_of(connection, model):
        if note := price.note(model):
            print_note(f"{who}: {note}")
        return
    raise InputError(
        f"{who}: budget_usd cannot be enforced without the price of {model!r} on connection {name!r}; wanted "
        "usd_per_million_input_tokens and usd_per_million_output_tokens there, a price_list, or "
        "budget_counts_unknown: false"
    )


def _check_calls_are_recorded(who: str, spec: AnySpec) -> None:
    """Raise InputError if budget_usd cannot be enforced, for a target or evaluator that may call models unrecorded."""
    if spec.budget_usd is not None and spec.budget_counts_unknown:
        raise InputError(
            f"{who}: budget_usd cannot be enforced, since its model calls are not recorded; "
            f"{may_call_models.HOW_TO_RECORD}, or set budget_counts_unknown: false"
        )


def _check_needs(evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> None:
    """Raise InputError for a score that one needs and that no other evaluator gives before, as far as that is known."""
    for evaluator in evaluators:
        others = [other for other in evaluators if other is not evaluator]
        needs = evaluator.spec.needs if isinstance(evaluator.spec, EvaluatorSpec) else {}
        called_late = [
            metric
            for other in others
            if (isinstance(other.spec, EvaluatorSpec) and other.spec.needs)
            or any(judge.bound.asks_for("evaluations", "scores") for judge in other.all)
            for metric in (other.name, *other.metrics)
        ]
        if late := [metric for metric in needs if metric in called_late]:
            wanted = "the metric of an evaluator that needs no scores itself"
            raise InputError(f"evaluator {evaluator.name!r}: needs: got {late[0]!r}, wanted {wanted}")
        if not all(other.is_ours for other in others):
            continue
        known = [metric for other in others for metric in other.metrics]
        if unknown := [metric for metric in needs if metric not in known]:
            wanted = f"wanted one of {', '.join(dict.fromkeys(known))}" if known else "wanted another evaluator"
            raise InputError(f"evaluator {evaluator.name!r}: needs: no evaluator gives {unknown[0]!r}, {wanted}")
        for judge in evaluator.all:
            for metric in (judge.spec.args.get("needs") or {}) if judge.spec.use == "failure_modes" else ():
                if metric not in known:
                    wanted = f"wanted one of {', '.join(dict.fromkeys(known))}" if known else "wanted another evaluator"
                    raise InputError(f"evaluator {evaluator.name!r}: needs: no evaluator gives {metric!r}, {wanted}")


def _check_shared(evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> None:
    """Raise InputError for two evaluators that declare the same metric, which the second may not give."""
    given: dict[str, str] = {}
    for evaluator in evaluators:
        for metric in evaluator.metrics if evaluator.is_ours else ():
            if (first := given.setdefault(metric, evaluator.name)) != evaluator.name:
                takes = "prefix" in signature(evaluator.bound.function).parameters
                wanted = "a `prefix`" if takes else "settings with which only one of them does"
                raise InputError(f"evaluator {evaluator.name!r}: gives {metric!r}, as {first!r} does; wanted {wanted}")


def _check_kept_apart(prepared: PreparedExperiment) -> None:
    """Raise InputError for a rule or a weight on a measure that an evaluator's function has the name of."""
    spec = prepared.spec
    apart = {measure: kept_apart(measure) for measure in MEASURES if kept_apart(measure) in spec.judges}
    used: list[tuple[str, Iterable[str]]] = [
        (f"gate {gate.name!r}", map(metric_of, gate.metrics)) for gate in spec.gates
    ]
    used += [(f"composite {composite.name!r}", composite.metrics) for composite in spec.composites]
    for where, metrics in [*used, ("metrics", spec.metrics)]:
        for measure in sorted(apart.keys() & {base_metric(metric) for metric in metrics}):
            got = f"{measure!r} is the measure of every run, and the evaluator's metric is {apart[measure]!r}"
            raise InputError(f"{where}: {got}; wanted one of them, with a `name` for the evaluator")


def _check_names(prepared: PreparedExperiment) -> None:
    """Raise InputError for a gate rule on, or settings of, a metric that does not exist, most likely a typo.

    Where a user's evaluator may give any, print a note instead on those that none is called like.
    """
    spec, given = prepared.spec, prepared.given_metrics
    names = given or [metric for evaluator in prepared.of_runs for metric in evaluator.metrics]
    names = [*names, *(composite.name for composite in spec.composites), *MEASURES]
    of_gates = [(f"gate {gate.name!r}", metric_of(name)) for gate in spec.gates for name in gate.metrics]
    for where, metric in [*of_gates, *(("metrics", metric) for metric in spec.metrics)]:
        if base_metric(metric) in names:  # a pass@k metric counts as its base metric
            continue
        if given is not None:
            raise InputError(f"{where}: no evaluator gives {metric!r}, wanted one of {', '.join(names)}")
        wanted = names_to_choose(metric, dict.fromkeys(names))
        without = "the declaration has no effect" if where == "metrics" else "its rule stays open"
        print_note(
            f"{where}: no evaluator is called {metric!r}, wanted {wanted}; {without} unless an evaluator returns a "
            "score of that name"
        )


def check_panels(prepared: PreparedExperiment | PreparedTraces) -> None:
    """Raise InputError for a panel with a judge that gives several metrics, of which the panel would have only one."""
    given = {evaluator.name: evaluator.metrics for evaluator in prepared.evaluators}
    for composite in prepared.spec.composites:
        for metric in composite.panel:
            if others := [other for other in given.get(metric, ()) if other != metric]:
                raise InputError(
                    f"panel {composite.name!r}: {metric!r} gives {others[0]!r} too, wanted one metric each"
                )


def _check_composite(composite: CompositeSpec, prepared: PreparedExperiment) -> None:
    """Raise InputError for a composite with unknown or unbounded parts, or with samples that do not nest."""
    name, spec, known = composite.name, prepared.spec, prepared.given_metrics
    if known is not None:
        known = [*known, *(other.name for other in spec.composites if other.panel and other is not composite)]
    for metric in composite.metrics:
        if metric in MEASURES and metric in composite.weights and spec.direction(metric).range is None:
            wanted = f"metrics: {{{metric}: {{range: [0, …]}}}}"
            raise InputError(f"composite {name!r}: {metric} has no bounds, wanted {wanted}")
        if known is not None and metric not in (*known, *MEASURES):
            wanted = ", ".join([*known, *MEASURES])
            raise InputError(f"composite {name!r}: no evaluator gives {metric!r}, wanted one of {wanted}")
    if composite.function:
        load(composite.function)
    sampled = [
        evaluator.spec
        for evaluator in prepared.evaluators
        if evaluator.spec.is_sampled and not composite.metrics.isdisjoint(evaluator.metrics)
    ]
    if len({(e.sample_seed, e.sample_by, frozenset(e.sample_rates)) for e in sampled}) > 1:
        names = " and ".join(e.metric for e in sampled)
        wanted = "the same sample_seed, sample_by and sample_rates keys, so that one sample contains the other"
        raise InputError(f"composite {name!r}: the samples of {names} are drawn in different ways, wanted {wanted}")
