"""An experiment as this process works on it: made ready once, shared by all its chunks."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from evaluators.call import Bound, Level
from llm.breaker import Breaker
from llm.budget import Budget
from llm.caller import Endpoint
from llm.complete import Completer
from llm.connect import completer, embedder
from llm.connections import resolve
from llm.embed import Embedder
from llm.ledger import Ledger
from specs.comparison import ComparisonSpec
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.metric import MetricSpec
from specs.protocols import Complete, Embed
from specs.score_config import ScoreConfigSpec
from specs.target import ChatTarget
from store.parquet import Store
from store.progress import spent_by_group
from store.records import ExampleRow, ExperimentRow, now
from store.snapshots import load_snapshot
from targets import Target
from tasks.chunk import in_running_order
from tasks.isolated import Isolated
from tasks.keys import key_for
from tasks.resolve import bind_evaluator, connection_name, evaluator_version, make_target
from tasks.sample import Sample, draw
from tasks.workers import Workers

FEWEST_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEvaluator:
    """An evaluator that can be called."""

    spec: FallbackSpec
    bound: Bound
    version: str
    complete: Complete | None
    embed: Embed | None
    breaker: Breaker
    metrics: Mapping[str, MetricSpec]  # what is declared of its metrics, and of others
    budget: Budget
    configs: Mapping[str, ScoreConfigSpec]  # what scores may be that name one
    fallback: "ReadyEvaluator | None" = None
    controls: int | None = None
    tiers: "Sequence[ReadyEvaluator]" = ()
    sample: Sample | None = None  # None: it judges every answer
    isolated: Isolated | None = None  # where its code runs in processes of its own

    @property
    def asked(self) -> frozenset[str]:
        """What it is handed, or its fallback."""
        return self.bound.asked | (self.fallback.bound.asked if self.fallback else frozenset())

    @property
    def asks_for_scores(self) -> bool:
        """Whether it is called when the others have judged."""
        return any(one.bound.asks_for("evaluations", "scores") for one in self.all)

    @property
    def all(self) -> "Iterator[ReadyEvaluator]":
        """Itself, and whoever judges in its place."""
        yield self
        yield from self.tiers
        if self.fallback is not None:
            yield self.fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What the chunks of one experiment share."""

    row: ExperimentRow
    store: Store
    examples: Sequence[ExampleRow]  # as they run
    target: Target
    target_complete: Complete | None
    target_breaker: Breaker
    spec: ExperimentSpec
    evaluators: Sequence[ReadyEvaluator]
    summary_evaluators: Sequence[ReadyEvaluator]
    answering: Workers
    judging: Workers
    answering_on: Sequence[Endpoint]  # where the target's calls go
    judging_on: Sequence[Endpoint]  # and the evaluators'
    budget: Budget
    made_at: datetime


_ready: dict[str, Experiment] = {}
_budgets: dict[str, Budget] = {}  # of a run group
_ledgers: dict[str, Ledger] = {}
_making = threading.Lock()


def experiment(experiment_id: str) -> Experiment:
    """The experiment of that id, made ready on first use in this process."""
    with _making:
        if experiment_id not in _ready:
            _ready[experiment_id] = _make(experiment_id)
        return _ready[experiment_id]


def is_ready(experiment_id: str) -> bool:
    """Whether this process has worked on it."""
    return experiment_id in _ready


def forget(experiment_id: str, run_group: str) -> None:
    """Let go of it, when it has ended, and before it is begun: its spec may name another object of code then."""
    with _making:
        ended = _ready.pop(experiment_id, None)
        _budgets.pop(run_group, None)
        _ledgers.pop(run_group, None)
    close(ended.evaluators if ended else ())


def close(evaluators: Iterable[ReadyEvaluator]) -> None:
    """End the processes that some evaluators run in."""
    for evaluator in evaluators:
        for one in evaluator.all:
            if one.isolated is not None:
                one.isolated.close()


def workers_width(spec: ExperimentSpec, connections: set[str]) -> int:
    """As wide as was asked for, else wide enough to keep the widest connection full, with some who wait already for
    the next place while others see to what was answered."""
    widths = [-(-5 * resolve(name, spec.connections).max_in_flight // 4) for name in connections]
    return spec.max_concurrency or max([FEWEST_WORKERS, *widths])


def _make(experiment_id: str) -> Experiment:
    store = Store()
    row: ExperimentRow = store.read("experiments", experiment_id)[0]
    spec = ExperimentSpec.model_validate_json(row.spec)
    making = Making(spec, _ledger(store, row, spec), _budget(store, row, spec))
    examples = in_running_order(row, load_snapshot(store, row.snapshot_id))
    target = next(target for target in spec.targets if target.name == row.target)
    complete = making.complete(target.connection) if isinstance(target, ChatTarget) else None
    ready = [making.evaluator(evaluator, "item", examples) for evaluator in spec.evaluators]
    summaries = [making.evaluator(evaluator, "run", examples) for evaluator in spec.summary_evaluators]
    judges = {name for e in ready for one in e.all if (name := connection_name(one.spec, one.bound))}
    asked = {target.connection} if isinstance(target, ChatTarget) else set()
    return Experiment(
        row=row,
        store=store,
        examples=examples,
        target=make_target(target, complete, examples, store),
        target_complete=complete,
        target_breaker=making.breaker(),
        spec=spec,
        evaluators=ready,
        summary_evaluators=summaries,
        answering=Workers(workers_width(spec, asked)),
        judging=Workers(workers_width(spec, judges)),
        answering_on=_places([complete]),
        judging_on=endpoints_of([*ready, *summaries]),
        budget=making.budget,
        made_at=now(),
    )


def _ledger(store: Store, row: ExperimentRow, spec: ExperimentSpec) -> Ledger:
    """One for all experiments of a start, so that what two of them ask is paid once; for fresh answers each its own."""
    if spec.fresh:
        return Ledger(store, row.experiment_id, fresh=True)
    if row.run_group not in _ledgers:
        _ledgers[row.run_group] = Ledger(store, row.experiment_id)
    return _ledgers[row.run_group]


def _budget(store: Store, row: ExperimentRow, spec: ExperimentSpec) -> Budget:
    """What the whole run may spend, with what its experiments have spent before."""
    if row.run_group not in _budgets:
        calls, usd, unpriced = spent_by_group(store, row.run_group)
        _budgets[row.run_group] = Budget(
            usd=spec.budget_usd, calls=spec.max_calls, spent_usd=usd, spent_calls=calls, unpriced=unpriced
        )
    return _budgets[row.run_group]


def endpoints_of(evaluators: Iterable[ReadyEvaluator]) -> list[Endpoint]:
    """Where the calls of evaluators go, and of those that judge in their place."""
    return _places([asks for e in evaluators for one in e.all for asks in (one.complete, one.embed)])


def _places(asked: Iterable[object]) -> list[Endpoint]:
    """Where calls go, each place once; what is asked on this machine without a server has none."""
    found = {one.endpoint.name: one.endpoint for one in asked if isinstance(one, Completer | Embedder)}
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Making:
    """What the parts of an experiment are made of, or of a comparison."""

    spec: ExperimentSpec | ComparisonSpec
    ledger: Ledger
    budget: Budget

    def evaluator(self, evaluator: EvaluatorSpec, level: Level, examples: Sequence[ExampleRow]) -> ReadyEvaluator:
        instead = evaluator.fallback
        return replace(
            self.judge(evaluator, level),
            fallback=self.judge(instead, level, evaluator.metric) if instead else None,
            tiers=[self.judge(tier, level, evaluator.metric) for tier in evaluator.tiers],
            controls=evaluator.controls,
            sample=draw(evaluator, examples),
        )

    def judge(self, evaluator: FallbackSpec, level: Level, name_of_score: str | None = None) -> ReadyEvaluator:
        """An evaluator by itself, without its tiers, its fallback and its sample."""
        of_runs = self.spec if isinstance(self.spec, ExperimentSpec) else None
        bound = bind_evaluator(evaluator, level)
        bound = replace(bound, name=name_of_score or bound.name)
        name, asks = connection_name(evaluator, bound), bound.asks_for("complete")
        return ReadyEvaluator(
            spec=evaluator,
            bound=bound,
            version=evaluator_version(evaluator, bound, self.spec.connections, level),
            complete=self.complete(name, evaluator.model) if name and asks else None,
            # Whoever asks for both has its model complete, and the connection's embed.
            embed=self._embed(name, None if asks else evaluator.model) if name and bound.asks_for("embed") else None,
            breaker=self.breaker(),
            metrics=of_runs.metrics if of_runs else {},
            budget=self.budget,
            configs=of_runs.score_configs if of_runs else {},
            isolated=None if bound.is_async or evaluator.timeout_s is None else Isolated(bound, evaluator.timeout_s),
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
