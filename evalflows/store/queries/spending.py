"""What was spent: on runs, on their parts, and since a moment."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from evalflows.specs.errors import REFUSED_BY_BUDGET, StorageError
from evalflows.store.files import row_groups
from evalflows.store.records import ExperimentRow
from evalflows.store.store import REOPENED, Store


class Paid(NamedTuple):
    """Paid calls and their cost in USD, of which `estimated_usd` is estimated; that of `unknown` calls is missing."""

    calls: int
    usd: float
    estimated_usd: float
    unknown: int


PAID_CALL = "kind <> 'turn'"
"""SQL: whether a row of calls is one that somebody pays; a function's turn is kept so that it is made once."""

REUSED_CALL = "kind = 'turn' and evaluator is not null"
"""SQL: whether it is a call in a conversation, not the target's own, that the ledger answered."""

_PAID = """count(*), coalesce(sum(coalesce(cost_usd, estimated_usd)), 0),
           coalesce(sum(estimated_usd) filter (cost_usd is null), 0),
           count(*) filter (coalesce(cost_usd, estimated_usd) is null)"""


def paid(store: Store, comparison_id: str) -> Paid:
    """Return what a comparison has paid."""
    query = f"select {_PAID} from source.calls where {PAID_CALL} and experiment_id = ?"
    return Paid(*store.query(query, [comparison_id])[0])


def spent_since(store: Store, beginning: str, since: datetime) -> Paid:
    """Return what owners whose ids begin so have paid since then."""
    query = f"select {_PAID} from source.calls where {PAID_CALL} and starts_with(experiment_id, ?) and recorded_at >= ?"
    return Paid(*store.query(query, [beginning, since])[0])


def spent_by_group(store: Store, run_group: str) -> Paid:
    """Return what a run group has paid.

    An answer of an HTTP application counts as one call. If it does not report its cost, that is estimated as the
    highest one that the application reports.
    """
    query = f"""with of_group as (select experiment_id, target_kind from source.experiments where run_group = ?)
                select {_PAID} from (
                    select cost_usd, estimated_usd from source.calls
                    where {PAID_CALL} and experiment_id in (select experiment_id from of_group)
                    union all
                    select cost_usd, max(cost_usd) over (partition by experiment_id) from source.outputs
                    where status = 'ok'
                    and experiment_id in (select experiment_id from of_group where target_kind = 'http'))"""
    return Paid(*store.query(query, [run_group])[0])


def costs_of_part(store: Store, owner: str, part: str) -> dict[str, float | None]:
    """Return the cost in USD of each model call of one part of an open owner; None if it is not known.

    What was sealed before the owner was reopened belongs to no part and is not counted.
    """
    rows = _rows(store, "calls", owner, part, ["call_id", "kind", "cost_usd"])
    return {row["call_id"]: row["cost_usd"] for row in rows if row["kind"] != "turn"}


def spent_on_part(store: Store, owner: str, part: str) -> Paid:
    """Return what one part has paid for model calls, and for answers of an HTTP application, one call each."""
    rows = _rows(store, "calls", owner, part, ["call_id", "kind", "cost_usd", "estimated_usd"])
    calls = {row["call_id"]: (row["cost_usd"], row["estimated_usd"]) for row in rows if row["kind"] != "turn"}
    answers: dict[str, float | None] = {}
    experiment: list[ExperimentRow] = store.read("experiments", owner)
    if experiment and experiment[0].target_kind == "http":
        for row in _rows(store, "outputs", owner, part, ["run_id", "status", "cost_usd"]):
            if row["status"] == "ok":
                answers[row["run_id"]] = row["cost_usd"]
    highest = max((cost for cost in answers.values() if cost is not None), default=None)
    spent = [*calls.values(), *((cost, highest) for cost in answers.values())]
    known = [cost for cost, _ in spent if cost is not None]
    estimated = [estimate for cost, estimate in spent if cost is None and estimate is not None]
    unknown = len(spent) - len(known) - len(estimated)
    return Paid(len(spent), sum(known) + sum(estimated), sum(estimated), unknown)


def judged_in_part(store: Store, owner: str, part: str) -> dict[str, str]:
    """Return the subject of each judgement of one part of an open owner, by the judgement's id."""
    rows = _rows(store, "judgements", owner, part, ["judgement_id", "subject_id"])
    return {row["judgement_id"]: row["subject_id"] for row in rows}


def was_over_budget(store: Store, owner: str, part: str) -> bool:
    """Return whether the budget was too small for an answer, a judgement or a comparison of a part."""
    return any(
        row["error_kind"] in REFUSED_BY_BUDGET
        for table in ("outputs", "judgements")
        for row in _rows(store, table, owner, part, ["error_kind"])
    )


def _rows(store: Store, table: str, owner: str, part: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield columns of the rows of a part, which may repeat a key."""
    for path in store.open_parts(table, owner, [part]):
        if path.rpartition("/")[2].partition(".")[0] != REOPENED:
            with suppress(StorageError):  # sealed or merged meanwhile
                for data in row_groups(store.filesystem, path, table, columns):
                    yield from data.to_pylist()
