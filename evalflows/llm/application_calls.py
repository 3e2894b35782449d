"""Requests to an application: charged to the budget, and kept where nobody knows what became of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from evalflows.llm.ledger import Recorder, call_key
from evalflows.specs.errors import CallError
from evalflows.store.records import CallRow, new_id, now

APPLICATION: Final = "application"
"""The connection and the kind of requests to an application."""


@asynccontextmanager
async def charged(recorder: Recorder, url: str) -> AsyncIterator[Callable[[float | None], None]]:
    """Charge the budget for one request to an application; what is yielded takes the cost that its response reports.

    If it reports none, that is estimated as the highest one so far. A request without an answer that may have been paid
    is a row of `calls`. Raise CallError if the budget is spent.
    """
    budget, owner, costs = recorder.budget, recorder.experiment_id or "", list[float | None]()
    if budget is None or recorder.drop is None:
        raise TypeError("a request to an application needs a recorder with a budget")
    highest = budget.most_usd.get(owner)
    reservation = await budget.reserve(highest or 0.0)
    request = recorder.request = _request(recorder, url, highest)
    failure: BaseException | None = None
    try:
        yield costs.append
    except BaseException as error:
        failure = error
        raise
    finally:
        cost = costs[0] if costs else None
        may_be_paid = bool(costs) or _may_be_paid(failure)
        if cost is not None:
            budget.most_usd[owner] = max(highest or 0.0, cost)
        budget.settle(reservation, cost, estimated_usd=highest, paid=may_be_paid)
        if not costs and may_be_paid and isinstance(failure, CallError):
            kind, text = failure.kind, str(failure)
            recorder.keep(replace(request, error=text, error_kind=kind, recorded_at=now()))
        elif failure is None or isinstance(failure, Exception):
            recorder.drop(request)


def _request(recorder: Recorder, url: str, estimated_usd: float | None) -> CallRow:
    """Return the row of a request, to be kept if it is not answered."""
    return CallRow(
        call_id=new_id("call"),
        call_key=call_key(url, {"run": recorder.subject_id}, 0, APPLICATION),
        kind=APPLICATION,
        experiment_id=recorder.experiment_id,
        subject_id=recorder.subject_id,
        connection=APPLICATION,
        base_url=url,
        model="",
        request="{}",
        status="failed",
        reusable=False,
        estimated_usd=estimated_usd,
        started_at=now(),
    )


def _may_be_paid(failure: BaseException | None) -> bool:
    """Return whether a request that ended so may have been paid: its answer came, or nobody knows what became of it."""
    return isinstance(failure, CallError) and (failure.cost_is_unknown or failure.kind == "bad_return")
