"""Parts of a budget for chunks in several processes.

The budget is divided by the number of items, so that all processes together cannot overspend it, and none has to ask
another before a call. What some chunks leave over goes to those whose part was too small.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from evalflows.engine.chunks import NOTHING_PAID, Chunk, Dispatch
from evalflows.llm.budget import Budget
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.spending import Paid, costs_of_part, paid, spent_by_group, spent_on_part, spent_since
from evalflows.store.records import ComparisonSetRow, ExperimentRow
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow

Sent = TypeVar("Sent", bound=Chunk)
AnySpec = ExperimentSpec | ComparisonSpec | TraceEvaluationSpec
Started = ExperimentRow | ComparisonSetRow | WatermarkRow
"""The row of an experiment, a comparison, or a batch of a trace evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left of a budget."""

    usd: float | None
    calls: int | None
    counts_unknown: bool

    @property
    def is_limited(self) -> bool:
        return self.usd is not None or self.calls is not None

    @property
    def is_spent(self) -> bool:
        return (self.usd is not None and self.usd <= 0.0) or (self.calls is not None and self.calls <= 0)

    def share(self, before: int, until: int, of: int) -> "Left":
        """Return the share of the items from `before` up to `until` of so many; all parts add up to the whole."""
        usd = None if self.usd is None else max(0.0, self.usd) * (until - before) / of
        whole = None if self.calls is None else max(0, self.calls)
        calls = None if whole is None else whole * until // of - whole * before // of
        return Left(usd=usd, calls=calls, counts_unknown=self.counts_unknown)


def spent_by(store: Store, row: Started) -> Paid:
    """Return what a run has paid for model calls: a run group, a comparison, or a batch."""
    if isinstance(row, ExperimentRow):
        return spent_by_group(store, row.run_group)
    if isinstance(row, ComparisonSetRow):
        return paid(store, row.comparison_id)
    return spent_since(store, f"{row.evaluation_id}-", row.started_at)


def run_of(row: Started) -> str:
    """Return the name of a run that its resumptions share: a run group, a comparison, or a trace evaluation."""
    if isinstance(row, ExperimentRow):
        return row.run_group
    return row.comparison_id if isinstance(row, ComparisonSetRow) else row.evaluation_id


def owners_of(store: Store, row: Started) -> list[str]:
    """Return the ids that the calls of a run are kept under."""
    if isinstance(row, ExperimentRow):
        query = "select experiment_id from source.experiments where run_group = ?"
        return [identity for (identity,) in store.query(query, [row.run_group])]
    if isinstance(row, ComparisonSetRow):
        return [row.comparison_id]
    query = "select distinct experiment_id from source.calls where starts_with(experiment_id, ?)"
    return [identity for (identity,) in store.query(query, [f"{row.evaluation_id}-"])]


def left_of(spec: AnySpec, spent: Paid) -> Left:
    """Return what is left of the limits of a spec."""
    usd, calls, counts_unknown = spec.budget_usd, spec.max_calls, spec.budget_counts_unknown
    if usd is not None:
        usd = 0.0 if spent.unknown and counts_unknown else max(0.0, usd - spent.usd)
    return Left(usd=usd, calls=None if calls is None else max(0, calls - spent.calls), counts_unknown=counts_unknown)


def with_dispatch(store: Store, chunks: Sequence[Sent], attempt: datetime, left: Left, items: int) -> list[Sent]:
    """Return the chunks with what they bring along.

    Args:
        store: Where what they have already spent is recorded.
        chunks: Chunks of one run.
        attempt: When it was started or resumed.
        left: What is left of the budget for these and later chunks.
        items: Number of items that it is for, at least those of the chunks.
    """
    sent, before = [], 0
    for chunk in chunks:
        until = before + chunk.n_items
        share = left.share(before, until, items)
        already = spent_on_part(store, chunk.owner, chunk.part_name) if left.is_limited else NOTHING_PAID
        dispatch = Dispatch(
            attempt=attempt,
            paid_before=frozenset(costs_of_part(store, chunk.owner, chunk.part_name)),
            usd=None if share.usd is None else already.usd + share.usd,
            calls=None if share.calls is None else already.calls + share.calls,
            counts_unknown=left.counts_unknown,
        )
        sent.append(replace(chunk, dispatch=dispatch))
        before = until
    return sent


def budget_of_part(store: Store, chunk: Chunk) -> Budget:
    """Return the budget of a chunk that was sent to this process, with what it has spent in any process."""
    dispatch = chunk.dispatch
    if dispatch is None:
        raise ValueError(f"{chunk.part_name}: got a chunk that was not sent")
    if dispatch.usd is None and dispatch.calls is None:
        return Budget()
    spent = spent_on_part(store, chunk.owner, chunk.part_name)
    return Budget.after(spent, usd=dispatch.usd, calls=dispatch.calls, counts_unknown=dispatch.counts_unknown)
