"""Send the chunks of a run to other processes with parts of its budget, and find those whose part was too small."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice

from evalflows.execution.chunks import Rounds
from evalflows.execution.dispatch import Left, dispatched, left_of
from evalflows.execution.pair_chunks import PairChunk
from evalflows.execution.running_comparison import forget_comparison
from evalflows.execution.running_experiment import forget_experiment
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.comparisons import paid
from evalflows.store.queries.progress import spent_by_group
from evalflows.store.queries.spent_parts import Spent, was_over_budget
from evalflows.store.records import ComparisonSetRow, ExperimentRow


def sent_rounds(
    spec: ExperimentSpec, experiments: Sequence[ExperimentRow], wave: Sequence[Rounds], ahead: int
) -> Sequence[Rounds]:
    """Return the chunks of a wave as they are sent to the processes of an engine; unchanged if it is threads.

    `ahead` is the number of items in this and later waves: their share of the budget is kept for them.
    """
    if not spec.task_runner.is_elsewhere:
        return wave
    attempts = {row.experiment_id: row.recorded_at for row in experiments}
    chunks = [chunk for rounds in wave for chunk in rounds.chunks]
    sent = iter(dispatched(Store(), chunks, attempts, _left(spec, experiments), ahead))
    return [replace(rounds, chunks=tuple(islice(sent, len(rounds.chunks)))) for rounds in wave]


def items_of(waves: Sequence[Sequence[Rounds]]) -> int:
    """Return the number of runs in some waves."""
    return sum(chunk.stop - chunk.start for rounds in chain(*waves) for chunk in rounds.chunks)


def short_of_budget(
    spec: ExperimentSpec, experiments: Sequence[ExperimentRow], wave: Sequence[Rounds]
) -> Sequence[Rounds]:
    """Return the chunks of a wave, given as they are, whose part of the budget was too small although some is left.

    What this process knew of the budget and of paid calls is dropped, since other processes have spent meanwhile.
    """
    if not spec.task_runner.is_elsewhere:
        return []
    for row in experiments:
        forget_experiment(row.experiment_id, row.run_group)
    left, store = _left(spec, experiments), Store()
    if not left.is_limited or left.is_spent:
        return []
    return [
        rounds for rounds in wave if any(was_over_budget(store, chunk.owner, chunk.part) for chunk in rounds.chunks)
    ]


def sent_pairs(spec: ComparisonSpec, row: ComparisonSetRow, chunks: Sequence[PairChunk]) -> Sequence[PairChunk]:
    """Return the chunks of a comparison as they are sent to the processes of an engine; unchanged if it is threads."""
    if not spec.task_runner.is_elsewhere:
        return chunks
    items = sum(chunk.stop - chunk.start for chunk in chunks)
    return dispatched(Store(), chunks, {row.comparison_id: row.recorded_at}, _left_of_pairs(spec, row), items)


def pairs_short_of_budget(
    spec: ComparisonSpec, row: ComparisonSetRow, chunks: Sequence[PairChunk]
) -> Sequence[PairChunk]:
    """Return the chunks whose part of the budget was too small although some is left, as for an experiment."""
    if not spec.task_runner.is_elsewhere:
        return []
    forget_comparison(row.comparison_id)
    left, store = _left_of_pairs(spec, row), Store()
    if not left.is_limited or left.is_spent:
        return []
    return [chunk for chunk in chunks if was_over_budget(store, chunk.owner, chunk.part)]


def _left(spec: ExperimentSpec, experiments: Sequence[ExperimentRow]) -> Left:
    calls, usd, _ = spent_by_group(Store(), experiments[0].run_group)
    return left_of(spec.budget_usd, spec.max_calls, Spent(calls, usd))


def _left_of_pairs(spec: ComparisonSpec, row: ComparisonSetRow) -> Left:
    calls, usd, _ = paid(Store(), row.comparison_id)
    return left_of(spec.budget_usd, spec.max_calls, Spent(calls, usd))
