"""An experiment as this process works on it: made ready once, shared by all its chunks."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.call import Bound, Level
from llm.connect import completer
from llm.connections import resolve
from llm.ledger import Ledger
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec
from specs.metric import MetricSpec
from specs.protocols import Complete
from specs.target import ChatTarget
from store.parquet import Store
from store.records import ExampleRow, ExperimentRow
from store.snapshots import load_snapshot
from targets import Target
from tasks.resolve import bind_evaluator, connection_name, evaluator_version, make_target
from tasks.workers import Workers

FEWEST_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEvaluator:
    """An evaluator that can be called."""

    spec: EvaluatorSpec
    bound: Bound
    version: str
    complete: Complete | None
    metrics: Mapping[str, MetricSpec]  # what is declared of its metrics, and of others


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What the chunks of one experiment share."""

    row: ExperimentRow
    store: Store
    examples: Sequence[ExampleRow]
    target: Target
    target_complete: Complete | None
    spec: ExperimentSpec
    evaluators: Sequence[ReadyEvaluator]
    summary_evaluators: Sequence[ReadyEvaluator]
    answering: Workers
    judging: Workers


_ready: dict[str, Experiment] = {}
_making = threading.Lock()


def experiment(experiment_id: str) -> Experiment:
    """The experiment of that id, made ready on first use in this process."""
    with _making:
        if experiment_id not in _ready:
            _ready[experiment_id] = _make(experiment_id)
        return _ready[experiment_id]


def forget(experiment_id: str) -> None:
    """Let go of it, when it has ended, and before it is begun: its spec may name another object of code then."""
    with _making:
        _ready.pop(experiment_id, None)


def workers_width(spec: ExperimentSpec, connections: set[str]) -> int:
    """As wide as was asked for, else wide enough to keep the widest connection full."""
    widths = [resolve(name, spec.connections).max_in_flight for name in connections]
    return spec.max_concurrency or max([FEWEST_WORKERS, *widths])


def _make(experiment_id: str) -> Experiment:
    store = Store()
    row: ExperimentRow = store.read("experiments", experiment_id)[0]
    spec = ExperimentSpec.model_validate_json(row.spec)
    ledger = Ledger(store, experiment_id, fresh=spec.fresh)
    examples = load_snapshot(store, row.snapshot_id)
    target = next(target for target in spec.targets if target.name == row.target)
    complete = _completer(target.connection, spec, ledger) if isinstance(target, ChatTarget) else None
    ready = [_ready_evaluator(evaluator, spec, ledger, "item") for evaluator in spec.evaluators]
    judges = {name for e in ready if (name := connection_name(e.spec, e.bound))}
    asked = {target.connection} if isinstance(target, ChatTarget) else set()
    return Experiment(
        row=row,
        store=store,
        examples=examples,
        target=make_target(target, complete, examples, store),
        target_complete=complete,
        spec=spec,
        evaluators=ready,
        summary_evaluators=[_ready_evaluator(judge, spec, ledger, "run") for judge in spec.summary_evaluators],
        answering=Workers(workers_width(spec, asked)),
        judging=Workers(workers_width(spec, judges)),
    )


def _ready_evaluator(evaluator: EvaluatorSpec, spec: ExperimentSpec, ledger: Ledger, level: Level) -> ReadyEvaluator:
    bound = bind_evaluator(evaluator, level)
    name = connection_name(evaluator, bound)
    complete = _completer(name, spec, ledger, evaluator.model) if name else None
    return ReadyEvaluator(
        spec=evaluator,
        bound=bound,
        version=evaluator_version(evaluator, bound, spec.connections),
        complete=complete,
        metrics=spec.metrics,
    )


def _completer(name: str, spec: ExperimentSpec, ledger: Ledger, model: str | None = None) -> Complete:
    return completer(name, resolve(name, spec.connections), ledger, model=model)
