"""Running comparisons: a prepared comparison with what its calls need, made once per process and shared by its chunks.

`prepared.py` holds what a run needs to know beforehand; `running_experiment.py` is the same for experiments.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.execution.prepared import prepared_comparisons
from evalflows.execution.running_experiment import EvaluatorFactory, RunnableEvaluator, close, endpoints_of
from evalflows.execution.workers import Workers
from evalflows.llm.budget import Budget
from evalflows.llm.caller import Endpoint
from evalflows.llm.divided_budget import DividedBudget, is_divided
from evalflows.llm.ledger import Ledger
from evalflows.specs.comparison import ComparisonSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.comparisons import item_metrics, paid
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow, ExampleRow, ExperimentRow, OutputRow, now
from evalflows.store.row_specs import comparison_spec
from evalflows.store.spilled_lines import SpilledRows


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


_running: dict[str, RunningComparison] = {}
_lock = threading.Lock()


def running_comparison(comparison_id: str) -> RunningComparison:
    """Return the running comparison, made on first use in this process."""
    with _lock:
        if comparison_id not in _running:
            _running[comparison_id] = _make(comparison_id)
        return _running[comparison_id]


def forget_comparison(comparison_id: str) -> RunningComparison | None:
    """Drop a comparison, after it has ended and before it starts. Return it if this process has worked on it."""
    with _lock:
        ended = _running.pop(comparison_id, None)
    close(ended.evaluators if ended else ())
    return ended


def forget_earlier_comparison(comparison_id: str, attempt: datetime) -> None:
    """Drop a comparison that was made before it was resumed."""
    earlier = _running.get(comparison_id)
    if earlier is not None and earlier.row.recorded_at != attempt:
        forget_comparison(comparison_id)


def experiments_of(store: Store, identities: Sequence[str]) -> list[ExperimentRow]:
    """Return the rows of experiments, in the given order."""
    return [store.read("experiments", identity)[0] for identity in identities]


def _make(comparison_id: str) -> RunningComparison:
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
    calls, usd, unpriced = paid(store, row.comparison_id)
    return Budget(usd=spec.budget_usd, calls=spec.max_calls, spent_usd=usd, spent_calls=calls, unpriced=unpriced)
