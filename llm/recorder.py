"""Which calls were made for the item at hand: a context variable that every call finds by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from llm.budget import Budget
from store.records import CallRow


class Answered(NamedTuple):
    """A call that was answered, and whether the ledger had the answer."""

    row: CallRow
    cached: bool = False


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The calls of one item: of one target's answer, or of one evaluator's judgement."""

    keep: Callable[[CallRow], None]  # onto the disk, before the answer is used
    experiment_id: str | None = None
    subject_id: str | None = None
    evaluator: str | None = None
    budget: Budget | None = None  # of the run, for calls that do not come through `complete`
    answered: list[Answered] = field(default_factory=list)  # in order
    failed: list[CallRow] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)  # what the user's own code called, in order

    @property
    def attempts(self) -> int:
        return max((call.row.attempts for call in self.answered), default=1)

    @property
    def models(self) -> list[str]:
        """Which models answered."""
        return sorted({call.row.answered_by or call.row.model for call in self.answered})

    def totals(self) -> dict[str, Any]:
        """calls, calls_cached, tokens_in, tokens_out, cost_usd; tokens are null if no call told them,
        the cost is null if any paid call's is not known."""
        if not self.answered and not self.failed:
            return {"calls": 0, "calls_cached": 0, "tokens_in": None, "tokens_out": None, "cost_usd": 0.0}
        paid = [*(call.row for call in self.answered if not call.cached), *self.failed]
        rows = [*(call.row for call in self.answered), *self.failed]
        costs = [row.cost_usd for row in paid]
        return {
            "calls": len(paid),
            "calls_cached": len(rows) - len(paid),
            "tokens_in": _sum([row.tokens_in for row in rows]),
            "tokens_out": _sum([row.tokens_out for row in rows]),
            "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
        }


_current: ContextVar[Recorder | None] = ContextVar("evalflows_recorder", default=None)


def current() -> Recorder | None:
    """The recorder of the item at hand, if there is one."""
    return _current.get()


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Calls made in this block, and in what it starts, belong to the recorder."""
    token = _current.set(recorder)
    try:
        yield recorder
    finally:
        _current.reset(token)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
