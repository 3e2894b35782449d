"""The result of a batched evaluation of traces."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from evalflows.engine.views import evaluations_view
from evalflows.evaluators.views import Evaluation
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.described import from_described
from evalflows.store.queries.traces import batch_row, batch_scores, processed_with_earlier
from evalflows.store.records import JudgementRow, from_json
from evalflows.store.store import Store
from evalflows.store.trace_records import SUBJECT_KINDS, WatermarkRow

__all__ = ["BatchEvaluationResult", "BatchEvaluationResumeToken", "EvaluatorStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorStats:
    """How one evaluator did on the items of a batch."""

    name: str
    total_runs: int = 0
    successful_runs: int = 0  # scored, or does not apply
    failed_runs: int = 0
    total_scores_created: int = 0


@dataclass(frozen=True, kw_only=True)  # no slots: Langfuse's users save vars(token) as JSON
class BatchEvaluationResumeToken:
    """Where a batch stopped: pass it as `resume_from` to judge the rest."""

    filter: str | None
    last_processed_timestamp: str
    last_processed_id: str
    items_processed: int  # with those of the batches that were resumed
    scope: str | None = None
    cursor: str | None = None  # the batch's id; a batch goes on from a token that has one
    last_page_ids: Sequence[str] | None = None


class BatchEvaluationResult:
    """What a batch judged. Items that an evaluator of the same version had judged before are included."""

    def __init__(self, batch_id: str, composites: Collection[str] = ()) -> None:
        self._store = Store()
        self._row: WatermarkRow = batch_row(self._store, batch_id)
        self._composites = frozenset(composites)

    @property
    def batch_id(self) -> str:
        return self._row.batch_id

    @property
    def composites(self) -> frozenset[str]:
        """The names of the composites among the evaluators."""
        return self._composites

    @property
    def total_items_fetched(self) -> int:
        return self._row.items_fetched

    @property
    def total_items_processed(self) -> int:
        return self._row.items_processed

    @property
    def total_items_failed(self) -> int:
        return self._row.items_failed

    @property
    def total_scores_created(self) -> int:
        """Scores of the item evaluators that this batch created; those that were stored before do not count."""
        return self._row.scores_created - self._by_functions

    @property
    def total_composite_scores_created(self) -> int:
        return self._row.composite_scores_created + self._by_functions

    @property
    def total_evaluations_failed(self) -> int:
        return sum(stats.failed_runs for stats in self.evaluator_stats)

    @property
    def duration_seconds(self) -> float:
        ended = self._row.ended_at or self._row.recorded_at
        return max(0.0, (ended - self._row.started_at).total_seconds())

    @property
    def completed(self) -> bool:
        return self._row.state == "completed"

    @property
    def has_more_items(self) -> bool:
        """Whether the batch stopped at its most items, or its budget, before the last one."""
        return self._row.until_id is not None

    @property
    def resume_token(self) -> BatchEvaluationResumeToken | None:
        """Where to go on; None if the batch reached its last item."""
        row = self._row
        if row.until is None or row.until_id is None:
            return None
        return BatchEvaluationResumeToken(
            filter=_filter(row),
            scope=row.scope,
            cursor=row.batch_id,
            last_processed_timestamp=row.until.isoformat(),
            last_processed_id=row.until_id,
            items_processed=processed_with_earlier(self._store, row),
        )

    @property
    def evaluator_stats(self) -> list[EvaluatorStats]:
        names = [judge.name for judge in from_described(self._row.evaluators) if judge.scope != "mapper"]
        return [_stats(name, self._of_evaluator(name)) for name in names if name not in self._composites]

    @property
    def error_summary(self) -> dict[str, int]:
        """The number of failed judgements of each kind of error, without composites that failed for a failed part."""
        failed = [[row for row in rows if row.status in _FAILED] for rows in self._by_item.values()]
        counted = ([row for row in rows if row.evaluator not in self._composites] or rows for rows in failed)
        return dict(Counter(self._error_type(row) for rows in counted for row in rows))

    def _error_type(self, row: JudgementRow) -> str:
        return row.error_kind or "error"

    @property
    def failed_item_ids(self) -> list[str]:
        """The items of which no evaluator gave a score."""
        return [item for item, rows in self._by_item.items() if all(row.status in _FAILED for row in rows)]

    @property
    def item_evaluations(self) -> dict[str, list[Evaluation]]:
        """The evaluations of each item, by the item's id; composites are among them."""
        return {
            item: [*evaluations_view(row for row in rows if row.status not in _FAILED)]
            for item, rows in self._by_item.items()
        }

    def __repr__(self) -> str:
        return f"BatchEvaluationResult({self.batch_id}, {self.total_items_processed} items, {self._row.state})"

    def __str__(self) -> str:
        lines = [
            f"{'completed' if self.completed else 'incomplete'} in {self.duration_seconds:.1f} s",
            f"items: {self.total_items_fetched} fetched, {self.total_items_processed} processed, "
            f"{self.total_items_failed} failed",
            f"scores: {self.total_scores_created}, composite scores: {self.total_composite_scores_created}",
        ]
        lines += [
            f"  {stats.name}: {stats.successful_runs} of {stats.total_runs} judged, {stats.total_scores_created} scores"
            for stats in self.evaluator_stats
        ]
        lines += [f"  {kind}: {count} failed" for kind, count in self.error_summary.items()]
        return "\n".join(lines)

    @cached_property
    def _scores(self) -> list[JudgementRow]:
        return batch_scores(self._store, self._row, SUBJECT_KINDS[self._row.scope])

    @cached_property
    def _by_item(self) -> Mapping[str, list[JudgementRow]]:
        return grouped((row.subject_id, row) for row in self._scores)

    @cached_property
    def _by_functions(self) -> int:
        """Scores that composites given as functions created in this batch."""
        created = (row for row in self._scores if row.recorded_at >= self._row.started_at)
        functions = self._composites - {
            judge.name for judge in from_described(self._row.evaluators) if judge.scope == "composite"
        }
        return sum(row.evaluator in functions and row.status == "scored" for row in created)

    def _of_evaluator(self, name: str) -> list[JudgementRow]:
        return [row for row in self._scores if row.evaluator == name]


_FAILED = ("failed", "not_attempted")


def _filter(row: WatermarkRow) -> str | None:
    """Return a filter as it was given, if that was a text; else as JSON."""
    given = from_json(row.filter)
    return given if isinstance(given, str) else row.filter


def _stats(name: str, rows: Sequence[JudgementRow]) -> EvaluatorStats:
    items = {row.subject_id for row in rows}
    failed = {row.subject_id for row in rows if row.status in _FAILED}
    return EvaluatorStats(
        name=name,
        total_runs=len(items),
        successful_runs=len(items - failed),
        failed_runs=len(failed),
        total_scores_created=sum(row.status == "scored" for row in rows),
    )
