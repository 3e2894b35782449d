"""Record which calls are made for the current item, through a context variable."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evalflows.llm.budget import Budget
from evalflows.llm.usage import NO_USAGE, Usage, sum_of_known
from evalflows.store.records import CallRow


class AnsweredCall(NamedTuple):
    """A successful call, and whether its answer came from the ledger."""

    row: CallRow
    cached: bool = False


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Records the calls of one item: of one answer of a target, or of one judgement of an evaluator."""

    keep: Callable[[CallRow], None]  # writes a row to disk
    check: Callable[[], None] | None = None  # raises StorageError if rows cannot be written: before each call
    experiment_id: str | None = None
    subject_id: str | None = None
    evaluator: str | None = None
    budget: Budget | None = None  # of the run group, for calls that do not go through `complete`
    answered: list[AnsweredCall] = field(default_factory=list)  # in order
    failed: list[CallRow] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)  # of the user's own code, in order

    def store(self, row: CallRow) -> None:
        """Write the row of a call to disk, before its answer is used, and count it."""
        self.keep(row)
        with _lock:
            _count(row.experiment_id, row.cost_usd)

    def check_can_keep(self) -> None:
        """Raise StorageError if the row of a call that is made now could not be written."""
        if self.check is not None:
            self.check()

    @property
    def has_calls(self) -> bool:
        return bool(self.answered or self.failed)

    @property
    def attempts(self) -> int:
        return max((call.row.attempts for call in self.answered), default=1)

    @property
    def models(self) -> list[str]:
        """The models that answered."""
        return sorted({call.row.answered_by or call.row.model for call in self.answered})

    def totals(self) -> Usage:
        """Return the calls, tokens and cost of all recorded calls.

        Tokens are null if no call reported them; the cost is null if that of any paid call is unknown.
        """
        if not self.has_calls:
            return NO_USAGE
        paid = [*(call.row for call in self.answered if not call.cached), *self.failed]
        rows = [*(call.row for call in self.answered), *self.failed]
        costs = [row.cost_usd for row in paid]
        return Usage(
            calls=len(paid),
            calls_cached=len(rows) - len(paid),
            tokens_in=sum_of_known(row.tokens_in for row in rows),
            tokens_out=sum_of_known(row.tokens_out for row in rows),
            cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        )


_made: Counter[str | None] = Counter()
_costs: defaultdict[str | None, float] = defaultdict(float)
_unpriced: Counter[str | None] = Counter()
_elsewhere: set[Hashable] = set()
_lock = threading.Lock()


def _count(payer: str | None, cost_usd: float | None) -> None:
    _made[payer] += 1
    _costs[payer] += cost_usd or 0.0
    _unpriced[payer] += cost_usd is None


def note_calls_elsewhere(work: Hashable, payer: str, costs: Iterable[float | None]) -> None:
    """Count the calls that another process has made for this one, given their costs in USD; each work only once."""
    with _lock:
        if work not in _elsewhere:
            _elsewhere.add(work)
            for cost in costs:
                _count(payer, cost)


def calls_made() -> Counter[str | None]:
    """Return the number of calls that this process has made so far, or had others make, by the experiment or
    comparison that paid.
    """
    with _lock:
        return _made.copy()


def cost_made(owners: Collection[str]) -> float | None:
    """Return the cost in USD of the same calls of these owners; None if that of a call is unknown."""
    with _lock:
        return None if any(_unpriced[owner] for owner in owners) else sum(_costs[owner] for owner in owners)


_current: ContextVar[Recorder | None] = ContextVar("evalflows_recorder", default=None)


def current() -> Recorder | None:
    """Return the recorder of the current item, or None."""
    return _current.get()


class recording:  # noqa: N801 (used like a function)
    """Record the calls made in this block, and in the tasks and threads that it starts."""

    __slots__ = ("_recorder", "_token")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> Recorder:
        self._token: Token[Recorder | None] = _current.set(self._recorder)
        return self._recorder

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)
