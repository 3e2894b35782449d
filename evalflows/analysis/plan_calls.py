"""The model calls that a spec's targets and judges will make: how many, how large and at what price, recorded in a dry
run that makes none of them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from inspect import isawaitable
from itertools import combinations
from math import ceil
from typing import Any, Literal, cast

from evalflows.engine.controls import control_pairs
from evalflows.engine.preflight import reference_as_answer
from evalflows.engine.prepare import PreparedExperiment
from evalflows.engine.running import draw
from evalflows.engine.spec_evaluators import PreparedEvaluator, evaluator_version, is_ours
from evalflows.engine.spec_targets import target_version
from evalflows.engine.views import example_view
from evalflows.evaluators.binding import Bound
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Caller, Completer, Embedder, Endpoint, Kind, Read
from evalflows.llm.client import Client
from evalflows.llm.connections import address, resolve
from evalflows.llm.ledger import Ledger
from evalflows.llm.limiter import Limiter
from evalflows.llm.local import LOCAL_MODEL, identity_of
from evalflows.llm.prices import LONG_ANSWER, Tokens, price_of, tokens_of_text
from evalflows.specs.comparison import CompareSpec
from evalflows.specs.connections import ConnectionSpec, LocalConnection
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import ChatTarget, PythonTarget
from evalflows.store.queries.past_calls import (
    CallsEach,
    PastCalls,
    asked_by_judge,
    asked_by_pairwise,
    asked_by_target,
    calls_of_judge,
    calls_of_target,
    calls_to_model,
    in_ledger,
)
from evalflows.store.records import CallRow, ExampleRow, to_json
from evalflows.store.store import Store
from evalflows.targets import chat

MAX_LEDGER_LOOKUPS = 20_000
"""The most runs of a chat target whose requests are all looked up in the ledger, at 0.1 ms each."""

MAX_DRY_RUNS = 200
"""The most requests that are built to estimate their size."""

CallKind = Literal["target", "judge", "controls", "summary", "pairwise"]

Evaluator = PreparedEvaluator[FallbackSpec]

ANSWERS_PER_CONTROL = 3
"""Each control has a right answer, a wrong one, and a wrong one that asks to be accepted."""

OPEN = "at most: only what earlier tiers leave open"


class RequestRecordedError(Exception):
    """Raised instead of making a model call; the text is the call's key."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A model request that was recorded instead of sent."""

    key: str
    tokens_in: int  # an upper estimate, as in budgets
    tokens_out: int


class _NoLedger(Ledger):
    """A ledger whose lookup ends every call."""

    def __init__(self) -> None:
        self.in_flight = {}

    async def find(self, key: str) -> CallRow | None:
        raise RequestRecordedError(key)


class RequestRecorder(Caller):
    """A caller that records requests instead of making them."""

    def __init__(self, name: str, connection: ConnectionSpec) -> None:
        endpoint = Endpoint(
            name=name,
            connection=connection,
            identity=identity(connection),
            client=cast("Client", None),  # neither is used: the ledger ends the call first
            limiter=cast("Limiter", None),
        )
        super().__init__(endpoint, _NoLedger(), Budget())
        self.requests: list[RecordedRequest] = []

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        try:
            return await super().call(kind, request, read, repeat)
        except RequestRecordedError as recorded:
            self.requests.append(RecordedRequest(str(recorded), *_tokens(kind, request)))
            raise


def identity(connection: ConnectionSpec) -> str:
    """Return the identity of a connection in ledger keys: its URL, or the identity of the local model."""
    return identity_of(connection) if isinstance(connection, LocalConnection) else address(connection).rstrip("/")


def model_of(connection: ConnectionSpec, named: str | None, *, embeds: bool = False) -> str:
    """Return the model that a target or evaluator uses: the one it names, else the connection's default."""
    if embeds:
        return named or connection.embedding_model or ""
    return named or connection.model or (LOCAL_MODEL if isinstance(connection, LocalConnection) else "")


def chat_requests(
    spec: ChatTarget, connection: ConnectionSpec, examples: Sequence[ExampleRow], repetitions: int
) -> list[RecordedRequest]:
    """Return the requests of a chat target, one per example and repetition."""
    recorder = RequestRecorder(spec.connection, connection)
    target = chat(spec, Completer(recorder, model_of(connection, None)))

    async def dry_run_all() -> None:
        for example in examples:
            view = example_view(example)
            fields = {"inputs": view.inputs, "metadata": view.metadata}
            for repetition in range(repetitions):
                await _dry_run(target.call, fields | {"repetition": repetition})

    _run_in_thread(dry_run_all())
    return recorder.requests


def judge_requests(
    bound: Bound, name: str, connection: ConnectionSpec, model: str | None, examples: Sequence[ExampleRow]
) -> list[list[RecordedRequest] | None]:
    """Return the requests of a built-in judge on each example, with the reference as the answer.

    None for an example on which the judge raised before any request.
    """
    recorder = RequestRecorder(name, connection)
    complete = Completer(recorder, model_of(connection, model))
    embed = Embedder(recorder, model_of(connection, model, embeds=True))
    by_example: list[list[RecordedRequest] | None] = []

    async def dry_run_all() -> None:
        for example in examples:
            recorder.requests = []
            available = {**reference_as_answer(bound, example), "complete": complete, "embed": embed}
            reached = await _dry_run(bound.call, available)
            by_example.append(recorder.requests if reached else None)

    _run_in_thread(dry_run_all())
    return by_example


async def _dry_run(call: Callable[[Mapping[str, Any]], Any], available: Mapping[str, Any]) -> bool:
    """Return whether the call made a model request or returned; False if it raised before either."""
    try:
        returned = call(available)
        if isawaitable(returned):
            await returned
    except RequestRecordedError:
        return True
    except Exception:  # a judge may fail on a reference, which is not a real answer
        return False
    return True


def _run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run in a new thread: the caller may already have a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def _tokens(kind: Kind, request: Mapping[str, Any]) -> tuple[int, int]:
    """Estimate tokens as a budget does before the first answer."""
    tokens_in = tokens_of_text(to_json(request))
    max_tokens = request.get("max_completion_tokens") or request.get("max_tokens")
    return tokens_in, 0 if kind == "embedding" else max_tokens if isinstance(max_tokens, int) else LONG_ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The average tokens and cost of a call."""

    tokens_in: float | None
    tokens_out: float | None
    usd: float | None  # None if the tokens or the price are unknown
    basis: str  # the source of the averages, in words
    price_note: str = ""  # where the price is from, if neither the address nor a connection tells


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCalls:
    """The calls of one target, or of one judge for one purpose."""

    caller: str
    kind: CallKind
    connection: str | None = None
    model: str | None = None
    per_run: float | None  # calls per example and repetition, over all targets; None if unknown
    fixed: int = 0  # calls that do not depend on the number of examples
    calls: int | None  # for the spec as it is; None if unknown
    at_most: bool = False  # whether `calls` is a maximum: equal requests are paid once, some answers are not judged
    in_ledger: int | None = None  # calls that the ledger has already; None if not looked up
    size: CallSize
    note: str | None = None

    def calls_at(self, examples: int, repetitions: int) -> int | None:
        return None if self.per_run is None else self.fixed + ceil(round(self.per_run * examples * repetitions, 6))

    def usd_at(self, examples: int, repetitions: int) -> float | None:
        return self._usd(self.calls_at(examples, repetitions))

    @property
    def usd(self) -> float | None:
        """The cost of the calls that are not in the ledger."""
        return self._usd(None if self.calls is None else self.calls - (self.in_ledger or 0))

    def _usd(self, calls: int | None) -> float | None:
        if calls == 0:
            return 0.0
        return None if calls is None or self.size.usd is None else calls * self.size.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The total of all known calls."""

    calls: int
    at_most: bool
    in_ledger: int
    usd: float | None  # None if a price or a number of calls is unknown
    usd_known: float  # the cost of the calls with a known price
    unknown: tuple[str, ...]  # the callers whose number of calls is unknown
    unpriced: tuple[str, ...]  # the callers whose price or tokens are unknown


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan of calls."""

    store: Store
    prepared: PreparedExperiment
    examples: Sequence[ExampleRow]

    @property
    def spec(self) -> ExperimentSpec:
        return self.prepared.spec

    @property
    def runs(self) -> int:
        """The runs of one target."""
        return len(self.examples) * self.spec.repetitions

    def connection(self, name: str) -> ConnectionSpec:
        return resolve(name, self.spec.connections)


def total_of(lines: Sequence[PlannedCalls]) -> Total:
    """Sum the calls of the spec as it is."""
    unpriced = tuple(line.caller for line in lines if line.calls is not None and line.usd is None)
    unknown = tuple(line.caller for line in lines if line.calls is None)
    known = sum((line.usd or 0.0 for line in lines), 0.0)
    return Total(
        calls=sum(line.calls or 0 for line in lines),
        at_most=any(line.at_most for line in lines if line.calls),
        in_ledger=sum(line.in_ledger or 0 for line in lines),
        usd=None if unpriced or unknown else known,
        usd_known=known,
        unknown=unknown,
        unpriced=unpriced,
    )


def calls_at(lines: Iterable[PlannedCalls], examples: int, repetitions: int) -> int:
    """Return the known calls for another number of examples and repetitions, with an empty ledger."""
    return sum(line.calls_at(examples, repetitions) or 0 for line in lines)


def usd_at(lines: Iterable[PlannedCalls], examples: int, repetitions: int) -> float | None:
    """Return the cost of these calls; None if the cost of any is unknown."""
    costs = [line.usd_at(examples, repetitions) for line in lines]
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)


def calls_of_targets(inputs: PlanInputs) -> Iterator[PlannedCalls]:
    """Yield one line per chat or Python target: recorded answers are free, and calls behind HTTP are unknown."""
    seen_keys: set[str] = set()
    for target in inputs.spec.targets:
        if isinstance(target, ChatTarget):
            yield _of_chat(inputs, target, seen_keys)
        elif isinstance(target, PythonTarget):
            yield _of_python(inputs, target)


def _of_chat(inputs: PlanInputs, target: ChatTarget, seen_keys: set[str]) -> PlannedCalls:
    connection = inputs.connection(target.connection)
    model = model_of(connection, target.model)
    is_looked_up = inputs.runs <= MAX_LEDGER_LOOKUPS
    examples = inputs.examples if is_looked_up else inputs.examples[:MAX_DRY_RUNS]
    requests = chat_requests(target, connection, examples, inputs.spec.repetitions if is_looked_up else 1)
    past = calls_of_target(inputs.store, target_version(target, inputs.spec.connections))
    return PlannedCalls(
        caller=target.name,
        kind="target",
        connection=target.connection,
        model=model,
        per_run=1.0,
        calls=inputs.runs,
        at_most=not is_looked_up,
        in_ledger=_n_in_ledger(inputs, requests, seen_keys) if is_looked_up else None,
        size=size_of(inputs, connection, model, past, requests, by="target"),
    )


def _n_in_ledger(inputs: PlanInputs, requests: Sequence[RecordedRequest], seen_keys: set[str]) -> int:
    """Return how many calls need no payment: the ledger has them, or an earlier request of the same run is equal."""
    keys = {request.key for request in requests}
    if not inputs.spec.use_cache:
        return len(requests) - len(keys)
    repeated = len(requests) - len(keys - seen_keys)
    new = keys - seen_keys
    seen_keys |= keys
    return repeated + in_ledger(inputs.store, new)


def _of_python(inputs: PlanInputs, target: PythonTarget) -> PlannedCalls:
    version = target_version(target, inputs.spec.connections)
    history, past = asked_by_target(inputs.store, version), calls_of_target(inputs.store, version)
    per_run = history.calls_each if history else None
    unknown = "its calls are unknown: run it on a few examples first"
    return PlannedCalls(
        caller=target.name,
        kind="target",
        per_run=per_run,
        calls=None if per_run is None else ceil(round(per_run * inputs.runs, 6)),
        size=_size_as_before(past, past.usd if past else None, "of this target") if past else _UNKNOWN_SIZE,
        note=unknown
        if history is None
        else f"{per_run:g} calls per run, as in {history.times} earlier runs of this target",
    )


_UNKNOWN_SIZE = CallSize(tokens_in=None, tokens_out=None, usd=None, basis="unknown")


def size_of(
    inputs: PlanInputs,
    connection: ConnectionSpec,
    model: str,
    past: PastCalls | None,
    requests: Sequence[RecordedRequest],
    *,
    by: Literal["target", "judge"],
) -> CallSize:
    """Return the size of a call, from earlier calls of the same version, else from earlier calls to the same model,
    else from the recorded requests; with a note on its price, if there is one."""
    whose = f"of this {by}"
    if past is None:
        past = calls_to_model(inputs.store, identity(connection), model, by_target=by == "target")
        whose = f"of other {by}s to this model"
    if past is not None:
        size = _size_as_before(past, _usd(connection, model, past.tokens_in, past.tokens_out), whose)
    elif requests:
        tokens_in = sum(request.tokens_in for request in requests) / len(requests)
        tokens_out = sum(request.tokens_out for request in requests) / len(requests)
        usd = _usd(connection, model, tokens_in, tokens_out)
        size = CallSize(tokens_in=tokens_in, tokens_out=tokens_out, usd=usd, basis="upper estimate")
    else:
        return _UNKNOWN_SIZE
    price = price_of(connection, model)
    return size if price is None or size.usd is None else replace(size, price_note=price.note(model))


def _size_as_before(past: PastCalls, usd: float | None, whose: str) -> CallSize:
    return CallSize(
        tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=usd, basis=f"{past.calls} earlier calls {whose}"
    )


def _usd(connection: ConnectionSpec, model: str, tokens_in: float, tokens_out: float) -> float | None:
    """Return the cost of a call, with tokens rounded up."""
    price = price_of(connection, model)
    return price.cost(Tokens(ceil(tokens_in), None, ceil(tokens_out))) if price else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """A judge that calls a model, and the number and size of its calls."""

    name: str  # as in its scores
    connection: str
    model: str
    calls_per_judgement: float
    size: CallSize
    note: str | None


def calls_of_judges(inputs: PlanInputs) -> Iterator[PlannedCalls]:
    """Yield one line per judge that calls a model, with its controls; then summary evaluators and pairwise judges.

    Evaluators without a model have no line, nor do fallbacks, which are used only on failure.
    """
    for evaluator in inputs.prepared.evaluators:
        yield from _of_evaluator(inputs, evaluator)
    for evaluator in inputs.prepared.summary_evaluators:
        yield from _of_summary(inputs, evaluator)
    if inputs.spec.compare is not None:
        for judge in inputs.prepared.pairwise:
            yield from _of_pairwise(inputs, inputs.spec.compare, judge)


def _of_evaluator(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    sample = draw(evaluator.spec, inputs.examples)
    judged = [example for example in inputs.examples if sample is None or example.example_id in sample.drawn]
    share, judge = len(judged) / len(inputs.examples), None
    for number, tier in enumerate(evaluator.judges):
        judge = _judge(inputs, tier, judged, evaluator)
        if judge is not None:
            notes = [judge.note, OPEN if number else None, None if share == 1 else f"a sample of {share:.0%}"]
            caller = judge.name if tier is evaluator else f"{judge.name}: {tier.name}"
            per_run = len(inputs.spec.targets) * share * judge.calls_per_judgement
            yield _line(inputs, judge, caller, per_run=per_run, note="; ".join(note for note in notes if note) or None)
    if evaluator.spec.controls and judge is not None:  # the controls of a cascade go to its last tier
        yield _of_controls(inputs, judge, evaluator.spec.controls)


def _of_controls(inputs: PlanInputs, judge: _Judge, controls: int) -> PlannedCalls:
    pairs = len(control_pairs(inputs.examples, controls))
    fixed = ceil(ANSWERS_PER_CONTROL * pairs * judge.calls_per_judgement)
    return _line(inputs, judge, f"{judge.name}: controls", fixed=fixed, kind="controls")


def _of_summary(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    if not evaluator.bound.asks_for("complete", "embed"):
        return
    judge = _judge(inputs, evaluator, [], evaluator)
    if judge is not None:
        fixed = ceil(len(inputs.spec.targets) * judge.calls_per_judgement)
        yield _line(inputs, judge, judge.name, fixed=fixed, kind="summary", note=judge.note)


def _of_pairwise(
    inputs: PlanInputs, compare: CompareSpec, judge: PreparedEvaluator[JudgeSpec]
) -> Iterator[PlannedCalls]:
    planned = _judge(inputs, judge, inputs.examples, judge)
    if planned is not None:
        targets = inputs.spec.targets
        pairs = len(list(combinations(targets, 2))) if compare.pairs == "all" else len(targets) - 1
        per_run = pairs * (2 if compare.both_orders else 1) * planned.calls_per_judgement
        yield _line(inputs, planned, planned.name, per_run=per_run, kind="pairwise", note=planned.note)
        if judge.spec.controls:
            yield _of_controls(inputs, planned, judge.spec.controls)


def _judge(inputs: PlanInputs, evaluator: Evaluator, judged: Sequence[ExampleRow], cascade: Evaluator) -> _Judge | None:
    """Return the judge, or None if it calls no model.

    `cascade` contains it as a tier; for other judges, it is the judge.
    """
    spec, name, is_tier = evaluator.spec, evaluator.connection, cascade is not evaluator
    version = evaluator_version(cascade, inputs.spec.connections)
    history, past = None, None  # those of a cascade say nothing about one tier
    if not is_tier:
        calls_per_judgement_of = asked_by_pairwise if cascade.scope == "pair" else asked_by_judge
        history = calls_per_judgement_of(inputs.store, cascade.name, version)
        past = calls_of_judge(inputs.store, cascade.name, version)
    if name is None:
        return None if is_tier else _with_own_client(cascade.name, history, past)
    connection, embeds = inputs.connection(name), not evaluator.bound.asks_for("complete")
    if embeds and isinstance(connection, LocalConnection):
        return None  # vectors are made in this process
    model = model_of(connection, spec.model or (spec.args.get("model") if embeds else None), embeds=embeds)
    measured, requests = _judges_dry_run(inputs, evaluator, name, judged)
    repeats = spec.args.get("repeats", 1)
    assumed = history.calls_each if history else float(repeats if isinstance(repeats, int) else 1)
    return _Judge(
        name=cascade.name,
        connection=name,
        model=model,
        calls_per_judgement=assumed if measured is None else measured,
        size=size_of(inputs, connection, model, past, requests, by="judge"),
        note=None if measured is not None else _note(history),
    )


def _with_own_client(name: str, history: CallsEach | None, past: PastCalls | None) -> _Judge | None:
    """Return a judge that calls a model with its own client; None if the store has no calls of it."""
    if history is None or not history.calls_each or past is None:
        return None
    return _Judge(
        name=name,
        connection="",
        model="",
        calls_per_judgement=history.calls_each,
        size=_size_as_before(past, past.usd, "of this judge"),
        note=_note(history),
    )


def _judges_dry_run(
    inputs: PlanInputs, evaluator: Evaluator, name: str, judged: Sequence[ExampleRow]
) -> tuple[float | None, list[RecordedRequest]]:
    """Return the calls per judgement of a built-in judge, and its requests; None if they cannot be known before the
    run."""
    spec, bound = evaluator.spec, evaluator.bound
    if not is_ours(spec) or not bound.is_async or not judged:
        return None, []
    step = -(-len(judged) // MAX_DRY_RUNS)
    by_example = judge_requests(bound, name, inputs.connection(name), spec.model, judged[::step])
    known = [requests for requests in by_example if requests is not None]
    requests = [request for requests in known for request in requests]
    return (len(requests) / len(known) if requests else None), requests


def _note(history: CallsEach | None) -> str:
    if history is not None:
        return f"{history.calls_each:g} calls per judgement, as in {history.times} earlier judgements"
    return "assumed: one call per judgement"


def _line(
    inputs: PlanInputs,
    judge: _Judge,
    caller: str,
    *,
    per_run: float = 0.0,
    fixed: int = 0,
    kind: CallKind = "judge",
    note: str | None = None,
) -> PlannedCalls:
    return PlannedCalls(
        caller=caller,
        kind=kind,
        connection=judge.connection or None,
        model=judge.model or None,
        per_run=per_run,
        fixed=fixed,
        calls=fixed + ceil(round(per_run * inputs.runs, 6)),
        at_most=True,
        size=judge.size,
        note=note,
    )
