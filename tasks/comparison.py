"""A comparison as this process works on it: made ready once, shared by all its chunks."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from llm.budget import Budget
from llm.caller import Endpoint
from llm.ledger import Ledger
from specs.comparison import ComparisonSpec
from store.comparisons import item_metrics, paid
from store.parquet import Store
from store.records import ComparisonSetRow, ExampleRow, ExperimentRow, OutputRow, now
from tasks.experiment import Making, ReadyEvaluator, close, endpoints_of
from tasks.shared_examples import shared_examples
from tasks.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the chunks of one comparison share."""

    row: ComparisonSetRow
    store: Store
    spec: ComparisonSpec
    experiments: Mapping[str, ExperimentRow]
    examples: Sequence[ExampleRow]  # that all of them have
    outputs: Mapping[str, OutputRow]  # by run
    evaluators: Sequence[ReadyEvaluator]
    taken: frozenset[str]  # names of item metrics: no preference may bear one
    judging: Workers
    judging_on: Sequence[Endpoint]
    made_at: datetime


_ready: dict[str, Comparison] = {}
_making = threading.Lock()


def comparison(comparison_id: str) -> Comparison:
    """The comparison of that id, made ready on first use in this process."""
    with _making:
        if comparison_id not in _ready:
            _ready[comparison_id] = _make(comparison_id)
        return _ready[comparison_id]


def forget_comparison(comparison_id: str) -> Comparison | None:
    """Let go of it, when it has ended, and before it is begun. Returns it, if this process has worked on it."""
    with _making:
        ended = _ready.pop(comparison_id, None)
    close(ended.evaluators if ended else ())
    return ended


def experiments_of(store: Store, identities: Sequence[str]) -> list[ExperimentRow]:
    """Their rows, in the given order."""
    return [store.read("experiments", identity)[0] for identity in identities]


def _make(comparison_id: str) -> Comparison:
    store = Store()
    row: ComparisonSetRow = store.read("comparison_sets", comparison_id)[0]
    spec = ComparisonSpec.model_validate_json(row.spec)
    experiments = experiments_of(store, row.experiments)
    making = Making(spec, Ledger(store, comparison_id, fresh=spec.fresh), _budget(store, row, spec))
    evaluators = [making.judge(evaluator, "pair") for evaluator in spec.evaluators]
    return Comparison(
        row=row,
        store=store,
        spec=spec,
        experiments={one.experiment_id: one for one in experiments},
        examples=shared_examples(store, experiments).examples,
        outputs={output.run_id: output for one in row.experiments for output in store.read("outputs", one)},
        evaluators=evaluators,
        taken=frozenset(item_metrics(store, row.experiments)),
        judging=Workers(spec.max_concurrency),
        judging_on=endpoints_of(evaluators),
        made_at=now(),
    )


def _budget(store: Store, row: ComparisonSetRow, spec: ComparisonSpec) -> Budget:
    """What it may spend, with what it has spent before."""
    calls, usd, unpriced = paid(store, row.comparison_id)
    return Budget(usd=spec.budget_usd, calls=spec.max_calls, spent_usd=usd, spent_calls=calls, unpriced=unpriced)
