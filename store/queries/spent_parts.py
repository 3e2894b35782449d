"""What the chunks of a run have spent since it was started or resumed, read from their parts."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from evalflows.specs.errors import StorageError
from evalflows.store.merge import row_groups
from evalflows.store.parquet import REOPENED, Store
from evalflows.store.records import ExperimentRow


class Spent(NamedTuple):
    """Paid calls and their cost in USD, without those of unknown cost."""

    calls: int
    usd: float


def costs_of_part(store: Store, owner: str, part: str) -> dict[str, float | None]:
    """Return the cost in USD of each model call of one part of an open owner; None if it is not known.

    What was sealed before the owner was reopened belongs to no part and is not counted.
    """
    return {row["call_id"]: row["cost_usd"] for row in _rows(store, "calls", owner, part, ["call_id", "cost_usd"])}


def spent_on_part(store: Store, owner: str, part: str) -> Spent:
    """Return what one part has paid for model calls, and for answers of an HTTP application, one call each."""
    calls, answers = costs_of_part(store, owner, part), {}
    if _is_http(store, owner):
        for row in _rows(store, "outputs", owner, part, ["run_id", "status", "cost_usd"]):
            if row["status"] == "ok":
                answers[row["run_id"]] = row["cost_usd"]
    costs = [*calls.values(), *answers.values()]
    return Spent(len(costs), sum(cost or 0.0 for cost in costs))


def was_over_budget(store: Store, owner: str, part: str) -> bool:
    """Whether the budget was too small for an answer, a judgement or a comparison of a part."""
    return any(
        row["error_kind"] == "over_budget"
        for table in ("outputs", "scores", "comparisons")
        for row in _rows(store, table, owner, part, ["error_kind"])
    )


def _is_http(store: Store, owner: str) -> bool:
    rows: list[ExperimentRow] = store.read("experiments", owner)
    return bool(rows) and rows[0].target_kind == "http"


def _rows(store: Store, table: str, owner: str, part: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield columns of the rows of a part, which may repeat a key."""
    for path in store.open_parts(table, owner):
        if path.rpartition("/")[2].partition(".")[0] == part != REOPENED:
            with suppress(StorageError):  # sealed or merged meanwhile
                for data in row_groups(store.filesystem, path, table, columns):
                    yield from data.to_pylist()
