"""Chunks as they are sent to the processes of an engine: each with its part of the budget, and those to repeat here."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from evalflows.engine.budget_parts import Left, Started, left_of, spent_by, with_dispatch
from evalflows.engine.chunks import Chunk, Rounds
from evalflows.engine.run_context import RunContext
from evalflows.store.queries.spending import was_over_budget

OfRun = TypeVar("OfRun", bound=Rounds | Chunk)


def with_budget_parts(
    run: RunContext[Any], rows: Sequence[Started], work: Sequence[OfRun], ahead: int | None = None
) -> Sequence[OfRun]:
    """Return the chunks of a run as they are sent to the processes of an engine; unchanged if it is threads.

    `rows` are those of its experiments, its comparison or its batch. `ahead` is the number of items in these and later
    chunks, if there are later ones: they have their share of the budget.
    """
    if not run.prepared.spec.task_runner.is_elsewhere or not work:
        return work
    attempt = min(row.recorded_at for row in rows if row.state == "running")
    chunks: list[Chunk] = [chunk for unit in work for chunk in unit.chunks]
    made: Iterator[Any] = iter(with_dispatch(run.store, chunks, attempt, _left(run, rows), ahead or items_of(work)))
    return [
        replace(unit, chunks=tuple(islice(made, len(unit.chunks)))) if isinstance(unit, Rounds) else next(made)
        for unit in work
    ]


def items_of(work: Iterable[Rounds | Chunk]) -> int:
    """Return the number of items in some chunks: runs, examples of pairs, or items of production."""
    return sum(chunk.n_items for unit in work for chunk in unit.chunks)


def chunks_to_repeat(run: RunContext[Any], rows: Sequence[Started], work: Sequence[OfRun]) -> Sequence[OfRun]:
    """Return the chunks, given as they are, whose part of the budget was too small although some is left.

    What this process knew of the budget and of paid calls is dropped, since other processes have spent meanwhile.
    """
    if not run.prepared.spec.task_runner.is_elsewhere:
        return []
    run.reset()
    left = _left(run, rows)
    if not left.is_limited or left.is_spent:
        return []
    return [
        unit for unit in work if any(was_over_budget(run.store, chunk.owner, chunk.part_name) for chunk in unit.chunks)
    ]


def _left(run: RunContext[Any], rows: Sequence[Started]) -> Left:
    return left_of(run.prepared.spec, spent_by(run.store, rows[0]))
