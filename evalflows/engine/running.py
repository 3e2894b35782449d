"""Running experiments and comparisons: what is prepared with what its calls need, made once per process and shared
by the chunks of a run group; and how a run is interrupted.

That is the examples, the target, runnable evaluators, clients, limits, budget and ledger. `prepare.py` holds what a
run needs to know beforehand.

Python raises KeyboardInterrupt in whatever the main thread is doing. Inside a finalizer, or in a library that catches
everything, the exception is lost and the run would continue. So the interrupt is also recorded, and checked before the
first call and later.
"""

import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import FrameType

from evalflows.engine import workers
from evalflows.engine.chunks import Sample, draw, in_running_order
from evalflows.engine.prepare import (
    PreparedEvaluator,
    connections_of,
    evaluator_version,
    make_target,
    prepared_comparisons,
    prepared_experiments,
    target_version,
)
from evalflows.engine.results import EvaluationResult
from evalflows.engine.secret_blocks import key_for
from evalflows.engine.unrecorded_calls import evaluator_may_call_unrecorded, target_may_call_unrecorded
from evalflows.engine.workers import IsolatedEvaluator, QuickProcesses, Workers
from evalflows.evaluators.binding import Bound
from evalflows.llm import loop
from evalflows.llm.budget import Budget, DividedBudget, is_divided
from evalflows.llm.calls import Completer, Embedder, Endpoint
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import resolve
from evalflows.llm.ledger import Ledger
from evalflows.llm.rate_limits import Breaker
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import Complete, Embed, InputError
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec, MetricSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.running import ScoreConfigSpec
from evalflows.specs.target import ChatTarget
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.progress import Paid, item_metrics, paid, spent_by_group
from evalflows.store.queries.values import shared_examples
from evalflows.store.records import (
    ComparisonSetRow,
    ExampleRow,
    ExperimentRow,
    LimitRow,
    OutputRow,
    derived_id,
    now,
    to_json,
)
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.snapshots import Examples, load_snapshot
from evalflows.store.spilled import SpilledRows
from evalflows.store.store import Store
from evalflows.targets import Target

_pressed = threading.Event()


def note_interrupt() -> None:
    """Record an interrupt. A handler that raises KeyboardInterrupt calls this first."""
    _pressed.set()


def forget_interrupts() -> None:
    """Drop a recorded interrupt: what it was meant for has ended."""
    _pressed.clear()


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Record Ctrl-C during the block, in addition to its usual handling. Raise KeyboardInterrupt if one was recorded
    before.
    """
    raise_if_pressed()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        note_interrupt()
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
        raise_if_pressed()
    finally:
        signal.signal(signal.SIGINT, before)
        forget_interrupts()


def raise_if_pressed() -> None:
    """Raise KeyboardInterrupt if an interrupt was recorded."""
    if _pressed.is_set():
        raise KeyboardInterrupt


def limit_rows(experiment_id: str, endpoints: list[Endpoint], since: datetime) -> list[LimitRow]:
    """Return the width of each endpoint's limiter: the state at `since`, and every change after it."""
    unique = {endpoint.name: endpoint for endpoint in endpoints}.values()
    return [row for endpoint in unique for row in _of_endpoint(experiment_id, endpoint, since)]


def _of_endpoint(experiment_id: str, endpoint: Endpoint, since: datetime) -> list[LimitRow]:
    process = f"{socket.gethostname()}:{os.getpid()}"
    changes = loop.call(endpoint.limiter.changes)
    before = [change for change in changes if change.at < since][-1:]
    return [
        LimitRow(
            limit_id=derived_id(experiment_id, endpoint.name, process, change.at.isoformat(), number),
            experiment_id=experiment_id,
            connection=endpoint.name,
            process=process,
            width=change.width,
            in_flight=change.in_flight,
            reason=change.reason,
            retry_after_s=change.retry_after_s,
            changed_at=change.at,
        )
        for number, change in enumerate([*before, *(change for change in changes if change.at >= since)])
    ]


MIN_WORKERS = 16

_budgets: dict[str, Budget] = {}  # by run group
_ledgers: dict[str, Ledger] = {}
_answering: dict[str, Workers] = {}  # by run group: its targets take turns


def forget_group(run_group: str) -> None:
    """Drop what the experiments of a run group share."""
    for shared in (_budgets, _ledgers, _answering):
        shared.pop(run_group, None)


def ledger_of(store: Store, row: ExperimentRow, spec: ExperimentSpec, *, are_made: bool) -> Ledger:
    """Return the ledger of the run group, so that a call of two experiments is paid once; without cache one each.

    If no calls are made, it is empty: reading the index of all calls takes longer than most rules.
    """
    if not spec.use_cache or not are_made:
        return Ledger(store, row.experiment_id, fresh=True, are_made=are_made)
    if row.run_group not in _ledgers:
        _ledgers[row.run_group] = Ledger(store, row.experiment_id)
    return _ledgers[row.run_group]


def budget_of(store: Store, row: ExperimentRow, spec: ExperimentSpec) -> Budget:
    """Return the budget of the run group; one with limits knows what its experiments have already spent.

    In a process that chunks are sent to, it is divided: each chunk has its part.
    """
    if is_divided():
        return DividedBudget(row.experiment_id)
    if row.run_group not in _budgets:
        is_limited = spec.budget_usd is not None or spec.max_calls is not None
        _budgets[row.run_group] = _budget_of(spec, spent_by_group(store, row.run_group)) if is_limited else Budget()
    return _budgets[row.run_group]


def _budget_of(spec: ExperimentSpec | ComparisonSpec, spent: Paid) -> Budget:
    return Budget.after(spent, usd=spec.budget_usd, calls=spec.max_calls, counts_unknown=spec.budget_counts_unknown)


def answering_workers(row: ExperimentRow, spec: ExperimentSpec) -> Workers:
    """Return the workers of the run group: as many as keep each connection full, and some per other target."""
    if row.run_group not in _answering:
        chats = {target.connection for target in spec.targets if isinstance(target, ChatTarget)}
        others = sum(not isinstance(target, ChatTarget) for target in spec.targets)
        width = sum(_width(name, spec) for name in chats) + others * MIN_WORKERS
        _answering[row.run_group] = Workers(spec.max_concurrency or max(MIN_WORKERS, width))
    return _answering[row.run_group]


def judging_workers(spec: ExperimentSpec | TraceEvaluationSpec, connections: set[str]) -> Workers:
    """Return as many workers as keep the widest connection full."""
    return Workers(spec.max_concurrency or max([MIN_WORKERS, *(_width(name, spec) for name in connections)]))


def _width(connection: str, spec: ExperimentSpec | TraceEvaluationSpec) -> int:
    """Return a quarter more than a connection's limit: some already wait for a slot while others process answers."""
    return -(-5 * resolve(connection, spec.connections).max_in_flight // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableEvaluator:
    """A prepared evaluator with the model calls, budget and breaker of this process, so that it can be called."""

    spec: FallbackSpec
    bound: Bound
    version: str
    complete: Complete | None
    embed: Embed | None
    breaker: Breaker
    may_call: bool  # whether its code may call models without being recorded
    metrics: Mapping[str, MetricSpec]  # of the whole spec
    budget: Budget
    configs: Mapping[str, ScoreConfigSpec]  # score configs by id
    fallback: "RunnableEvaluator | None" = None
    controls: int | None = None
    tiers: "Sequence[RunnableEvaluator]" = ()
    sample: Sample | None = None  # None: judges every answer
    isolated: IsolatedEvaluator | None = None  # set if its code runs in separate processes
    yes_and_no: dict[bool, list[EvaluationResult]] = field(default_factory=dict)  # results of a rule, made once

    @property
    def requested(self) -> frozenset[str]:
        """Names of the arguments that it or its fallback requests."""
        return self.bound.asked | (self.fallback.bound.asked if self.fallback else frozenset())

    @property
    def is_rule(self) -> bool:
        """Whether it is a plain function that asks for no model and has no time limit, tiers or fallback."""
        is_alone = self.fallback is None and not self.tiers and self.isolated is None
        return is_alone and not self.bound.is_async and not self.bound.asks_for("complete", "embed")

    @property
    def may_have_called(self) -> bool:
        """Whether code that judged for it may have called models without being recorded."""
        if self.may_call or not (self.tiers or self.fallback):
            return self.may_call
        return any(judge.may_call for judge in self.all)

    @property
    def asks_for_scores(self) -> bool:
        """Whether it needs the scores of others, so that it is called after them."""
        return any(judge.bound.asks_for("evaluations", "scores") for judge in self.all)

    @property
    def all(self) -> "Iterator[RunnableEvaluator]":
        """The evaluator, its tiers and its fallback."""
        yield self
        yield from self.tiers
        if self.fallback is not None:
            yield self.fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningExperiment:
    """What the chunks of one experiment share."""

    row: ExperimentRow
    store: Store
    examples: Examples  # in running order
    target: Target
    target_complete: Complete | None
    target_breaker: Breaker
    target_may_call: bool  # whether its code may call models without being recorded
    spec: ExperimentSpec
    evaluators: Sequence[RunnableEvaluator]
    summary_evaluators: Sequence[RunnableEvaluator]
    answering: Workers  # of all experiments of the run group
    judging: Workers
    answering_on: Sequence[Endpoint]  # endpoints of the target
    judging_on: Sequence[Endpoint]  # endpoints of the evaluators
    budget: Budget
    ledger: Ledger
    made_at: datetime
    is_quick: bool  # whether its answers are looked up and judged by rules, in one pass and on this machine
    processes: QuickProcesses | None = None  # if its chunks are worked on in processes of their own
    judged: dict[str, int] = field(default_factory=dict)
    """By part, the judgements that a retry may bring: of chunks that were judged as their answers were looked up."""


_running: dict[str, RunningExperiment] = {}
_lock = threading.Lock()


def running_experiment(experiment_id: str) -> RunningExperiment:
    """Return the running experiment, made on first use in this process."""
    with _lock:
        if experiment_id not in _running:
            _running[experiment_id] = _make(experiment_id)
        return _running[experiment_id]


def forget_earlier(experiment_id: str, attempt: datetime) -> None:
    """Drop the experiment if it was made before it was resumed: its spec, or what it has spent, has changed."""
    earlier = _running.get(experiment_id)
    if earlier is not None and earlier.row.recorded_at != attempt:
        forget_experiment(experiment_id, earlier.row.run_group)


def forget_ended(store: Store) -> None:
    """Drop the experiments that have ended: a process of a cluster outlives the runs that send it chunks."""
    for experiment_id, running in _running.copy().items():
        if store.is_sealed("experiments", experiment_id):
            forget_experiment(experiment_id, running.row.run_group)


def is_running(experiment_id: str) -> bool:
    """Whether this process has worked on the experiment."""
    return experiment_id in _running


def forget_experiment(experiment_id: str, run_group: str) -> None:
    """Drop the experiment, after it has ended and before it starts: its spec may name other code then."""
    with _lock:
        ended = _running.pop(experiment_id, None)
        forget_group(run_group)
    close(ended.evaluators if ended else ())


def close(evaluators: Iterable[RunnableEvaluator]) -> None:
    """End the processes of isolated evaluators."""
    for evaluator in evaluators:
        for judge in evaluator.all:
            if judge.isolated is not None:
                judge.isolated.close()


def _make(experiment_id: str) -> RunningExperiment:
    store = Store()
    row: ExperimentRow = store.read("experiments", experiment_id)[0]
    prepared = prepared_experiments.of(experiment_spec(row))
    spec = prepared.spec
    is_quick = workers.is_quick(prepared)
    ledger = ledger_of(store, row, spec, are_made=not is_quick or bool(prepared.summary_evaluators))
    factory = EvaluatorFactory(spec, ledger, budget_of(store, row, spec))
    examples = in_running_order(row, load_snapshot(store, row.snapshot_id))
    target = next(target for target in spec.targets if target.name == row.target)
    complete = factory.complete(target.connection) if isinstance(target, ChatTarget) else None
    evaluators = [factory.evaluator(evaluator, examples) for evaluator in prepared.evaluators]
    summaries = [factory.evaluator(evaluator, examples) for evaluator in prepared.summary_evaluators]
    return RunningExperiment(
        row=row,
        store=store,
        examples=examples,
        target=make_target(target, complete, examples, store),
        target_complete=complete,
        target_breaker=factory.breaker(),
        target_may_call=target_may_call_unrecorded(target),
        spec=spec,
        evaluators=evaluators,
        summary_evaluators=summaries,
        answering=answering_workers(row, spec),
        judging=judging_workers(spec, connections_of(prepared.evaluators)),
        answering_on=_endpoints([complete]),
        judging_on=endpoints_of([*evaluators, *summaries]),
        budget=factory.budget,
        ledger=factory.ledger,
        made_at=now(),
        is_quick=is_quick and not spec.task_runner.is_elsewhere,
        processes=workers.current() if workers.pays(prepared, row.n_examples) else None,
    )


def endpoints_of(evaluators: Iterable[RunnableEvaluator]) -> list[Endpoint]:
    """Return the endpoints of evaluators, with those of their tiers and fallbacks."""
    return _endpoints([call for e in evaluators for judge in e.all for call in (judge.complete, judge.embed)])


def _endpoints(calls: Iterable[object]) -> list[Endpoint]:
    """Return the endpoints of model calls, each once; models in this process have none."""
    endpoints = {call.endpoint.name: call.endpoint for call in calls if isinstance(call, Completer | Embedder)}
    return list(endpoints.values())


@dataclass(frozen=True, slots=True)
class EvaluatorFactory:
    """Makes runnable evaluators that share a ledger and a budget: of an experiment, or another kind of spec."""

    spec: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec
    ledger: Ledger
    budget: Budget

    def evaluator(
        self, evaluator: PreparedEvaluator[EvaluatorSpec], examples: Sequence[ExampleRow] | None
    ) -> RunnableEvaluator:
        """Return an evaluator with its tiers, fallback, controls and sample; without examples, none is drawn."""
        fallback, name = evaluator.fallback, evaluator.name
        return replace(
            self.judge(evaluator),
            fallback=self.judge(fallback, name) if fallback else None,
            tiers=[self.judge(tier, name) for tier in evaluator.tiers],
            controls=evaluator.spec.controls,
            sample=None if examples is None else draw(evaluator.spec, examples),
        )

    def judge(self, evaluator: PreparedEvaluator[FallbackSpec], score_name: str | None = None) -> RunnableEvaluator:
        """Return a single evaluator, without tiers, fallback, controls and sample."""
        of_items = None if isinstance(self.spec, ComparisonSpec) else self.spec
        spec, name, bound = evaluator.spec, evaluator.connection, evaluator.bound
        names_stand = isinstance(self.spec, TraceEvaluationSpec)
        bound = replace(bound, name=score_name or bound.name, names_stand=names_stand)
        completes = bound.asks_for("complete")
        return RunnableEvaluator(
            spec=spec,
            bound=bound,
            version=evaluator_version(evaluator, self.spec.connections),
            complete=self.complete(name, spec.model) if name and completes else None,
            # With both requested, `model` is for complete, and embed uses the connection's embedding model.
            embed=self._embed(name, None if completes else spec.model) if name and bound.asks_for("embed") else None,
            breaker=self.breaker(),
            may_call=evaluator_may_call_unrecorded(evaluator),
            metrics=of_items.metrics if of_items else {},
            budget=self.budget,
            configs=of_items.score_configs if of_items else {},
            isolated=None if bound.is_async or spec.timeout_s is None else IsolatedEvaluator(bound, spec.timeout_s),
        )

    def complete(self, name: str, model: str | None = None) -> Completer:
        connection = resolve(name, self.spec.connections)
        key = key_for(name, connection)
        return completer(name, connection, self.ledger, key=key, model=model, budget=self.budget)

    def _embed(self, name: str, model: str | None) -> Embed:
        connection = resolve(name, self.spec.connections)
        key = key_for(name, connection)
        return embedder(name, connection, self.ledger, key=key, model=model, budget=self.budget)

    def breaker(self) -> Breaker:
        return Breaker(self.spec.breaker_window, self.spec.breaker_pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningComparison:
    """What the chunks of one comparison share."""

    row: ComparisonSetRow
    store: Store
    spec: ComparisonSpec
    experiments: Mapping[str, ExperimentRow]
    examples: Sequence[ExampleRow]  # shared by all experiments
    outputs: SpilledRows[str, OutputRow]  # by run
    evaluators: Sequence[RunnableEvaluator]
    item_metrics: frozenset[str]  # names that no preference may have
    judging: Workers
    judging_on: Sequence[Endpoint]
    ledger: Ledger
    made_at: datetime


_running_comparison: dict[str, RunningComparison] = {}


def running_comparison(comparison_id: str) -> RunningComparison:
    """Return the running comparison, made on first use in this process."""
    with _lock:
        if comparison_id not in _running_comparison:
            _running_comparison[comparison_id] = _make_comparison(comparison_id)
        return _running_comparison[comparison_id]


def forget_comparison(comparison_id: str) -> RunningComparison | None:
    """Drop a comparison, after it has ended and before it starts. Return it if this process has worked on it."""
    with _lock:
        ended = _running_comparison.pop(comparison_id, None)
    close(ended.evaluators if ended else ())
    return ended


def forget_earlier_comparison(comparison_id: str, attempt: datetime) -> None:
    """Drop a comparison that was made before it was resumed."""
    earlier = _running_comparison.get(comparison_id)
    if earlier is not None and earlier.row.recorded_at != attempt:
        forget_comparison(comparison_id)


def experiments_of(store: Store, identities: Sequence[str]) -> list[ExperimentRow]:
    """Return the rows of experiments, in the given order."""
    return [store.read("experiments", identity)[0] for identity in identities]


def _make_comparison(comparison_id: str) -> RunningComparison:
    store = Store()
    row: ComparisonSetRow = store.read("comparison_sets", comparison_id)[0]
    prepared = prepared_comparisons.of(comparison_spec(row))
    spec = prepared.spec
    experiments = experiments_of(store, row.experiments)
    ledger = Ledger(store, comparison_id, fresh=not spec.use_cache)
    factory = EvaluatorFactory(spec, ledger, _budget(store, row, spec))
    evaluators = [factory.judge(evaluator) for evaluator in prepared.evaluators]
    return RunningComparison(
        row=row,
        store=store,
        spec=spec,
        experiments={experiment.experiment_id: experiment for experiment in experiments},
        examples=shared_examples(store, experiments).examples,
        outputs=_outputs(store, row.experiments),
        evaluators=evaluators,
        item_metrics=frozenset(item_metrics(store, row.experiments)),
        judging=Workers(spec.max_concurrency),
        judging_on=endpoints_of(evaluators),
        ledger=ledger,
        made_at=now(),
    )


def _outputs(store: Store, experiments: Sequence[str]) -> SpilledRows[str, OutputRow]:
    outputs = SpilledRows[str, OutputRow]()
    for identity in experiments:
        for output in store.rows("outputs", identity):
            outputs[output.run_id] = output
    return outputs


def _budget(store: Store, row: ComparisonSetRow, spec: ComparisonSpec) -> Budget:
    """Return the budget, with what the comparison has already spent; in a process that chunks are sent to, divided."""
    if is_divided():
        return DividedBudget(row.comparison_id)
    return _budget_of(spec, paid(store, row.comparison_id))


def check_code_of_experiment(experiment: RunningExperiment, *, in_cluster: bool = True) -> None:
    """Raise InputError if the target or an evaluator differs here from the run's.

    The error says what to do about a process of a cluster, or of the run's machine.
    """
    spec, row = experiment.spec, experiment.row
    target = next(target for target in spec.targets if target.name == row.target)
    here = target_version(target, spec.connections)
    check_code(row.experiment_id, f"target {target.name!r}", row.target_version, here, in_cluster=in_cluster)
    described = to_json([*prepared_experiments.of(spec).described.values()])
    check_code(row.experiment_id, "evaluators", row.evaluators, described, in_cluster=in_cluster)


def check_code(owner: str, what: str, of_run: str, here: str, *, in_cluster: bool = True) -> None:
    """Raise InputError if the version of something differs here from the run's."""
    if of_run != here:
        place = socket.gethostname() if in_cluster else f"process {os.getpid()} of this machine"
        remedy = (
            "the same files and packages; restart the processes of the cluster after a change"
            if in_cluster
            else "the same files; start the run again after a change, or with task_runner: threads"
        )
        raise InputError(f"{place}: {what} of {owner}: got other code than that of the run, wanted {remedy}")
