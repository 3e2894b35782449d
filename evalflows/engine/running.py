"""Running experiments: a prepared experiment with what its calls need, made once per process and shared by its chunks.

That is the examples, the target, runnable evaluators, clients, limits, budget and ledger. `prepared.py` holds what a
run needs to know beforehand; `running_comparison.py` is the same for comparisons.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from evalflows.evaluators.call import Bound
from evalflows.execution import quick_processes
from evalflows.execution.chunks import in_running_order
from evalflows.execution.evaluation_result import EvaluationResult
from evalflows.execution.evaluator_sample import Sample, draw
from evalflows.execution.isolation.process import IsolatedEvaluator
from evalflows.execution.prepared import connections_of, prepared_experiments
from evalflows.execution.prepared_evaluator import PreparedEvaluator, evaluator_version
from evalflows.execution.quick_processes import QuickProcesses
from evalflows.execution.resolve import make_target
from evalflows.execution.run_group import answering_workers, budget_of, forget_group, judging_workers, ledger_of
from evalflows.execution.secret_blocks import key_for
from evalflows.execution.unrecorded_calls import evaluator_may_call_unrecorded, target_may_call_unrecorded
from evalflows.execution.workers import Workers
from evalflows.llm.breaker import Breaker
from evalflows.llm.budget import Budget
from evalflows.llm.caller import Endpoint
from evalflows.llm.complete import Completer
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import resolve
from evalflows.llm.embed import Embedder
from evalflows.llm.ledger import Ledger
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MetricSpec
from evalflows.specs.protocols import Complete, Embed
from evalflows.specs.score_config import ScoreConfigSpec
from evalflows.specs.target import ChatTarget
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.store.examples import Examples
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow, ExperimentRow, now
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import load_snapshot
from evalflows.targets import Target


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
    is_quick = quick_processes.is_quick(prepared)
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
        processes=quick_processes.current() if quick_processes.pays(prepared, row.n_examples) else None,
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
