"""The ledger of finished calls, found by a key of everything that determines the answer; which calls are made for the
current item; and totals over calls."""

import asyncio
import hashlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.specs.attachments import Attachment
from evalflows.specs.connections import ConnectionSpec
from evalflows.specs.errors import StorageError
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.store.attachments import content_in, has_any
from evalflows.store.records import UNANSWERED, CallRow, Json, new_id, now, to_json
from evalflows.store.spilled import SpilledRows
from evalflows.store.store import Store

Number = TypeVar("Number", int, float)

TURN: Final = "turn"
"""The kind of rows that nobody pays: of a function's turn in a conversation, or of a user's call that was reused."""


def call_key(identity: str, request: Mapping[str, Any], repeat: int, kind: str = "chat") -> str:
    """Return a call's key: its endpoint, its whole request (model, messages, parameters) and its repeat index."""
    return key_of_text(identity, to_json(request), repeat, kind)


def key_of_text(identity: str, request: Json, repeat: int, kind: str = "chat") -> str:
    """Return the key of a call whose request is already JSON text."""
    head = to_json([kind, identity, repeat])
    return hashlib.sha256(f"{head}\n{request}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Index:
    """The reusable calls of a store."""

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # first 64 bits of each, sorted
    payer_of: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))  # number of each call's payer
    payers: list[str] = field(default_factory=list)


class Ledger:
    """The calls that may be reused: those of all experiments or, with `fresh`, only this experiment's own.

    Of several answers to one request, this experiment's own counts before others', and the newest before older ones.

    Use it on one event loop only. Keys are read once, as numbers (12 bytes per call): now, or with the first call.
    Answers are read on first use, all those of the experiment that paid for them at once, and kept on disk, since they
    may be larger than memory.
    """

    def __init__(self, store: Store, experiment_id: str, *, fresh: bool = False, are_made: bool = True) -> None:
        self._store, self._experiment_id, self._fresh = store, experiment_id, fresh
        self._index = self._read_index() if are_made else None
        self._rows = SpilledRows[str, CallRow]()
        self._read: set[str] = set()
        self._reading = asyncio.Lock()
        self.in_flight: dict[str, asyncio.Future[CallRow]] = {}  # by call key

    async def find(self, key: str) -> CallRow | None:
        """Return the reusable finished call with this key, or None."""
        if self._index is None:
            async with self._reading:
                self._index = self._index or await asyncio.to_thread(self._read_index)
        if key not in self._rows and (payer := self._payer_of(key)):
            async with self._reading:
                await asyncio.to_thread(self._read_from, payer)
        return self._rows.get(key)

    @contextmanager
    def making(self, key: str) -> Iterator[asyncio.Future[CallRow]]:
        """Let identical requests wait for the call that the block makes: for the result set, or for its error."""
        made = self.in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            yield made
        except Exception as error:  # the budget is spent, for the waiting requests too
            made.set_exception(error)
            made.exception()  # marks it as retrieved if nobody waits
            raise
        finally:
            del self.in_flight[key]
            if not made.done():
                made.cancel()

    @property
    def has_contents(self) -> bool:
        """Whether there are attachments."""
        return has_any(self._store)

    def content_of(self, attachment: Attachment) -> str | None:
        """Return the content of an attachment as base64, or None."""
        return content_in(self._store, attachment)

    def add(self, row: CallRow) -> None:
        """Add a call that has just finished."""
        if row.reusable:
            self._rows[row.call_key] = _lean(row)

    def refresh(self) -> None:
        """Take in the calls that other processes have recorded since. Call it from another thread than the loop's."""
        index = self._read_index()
        loop.call(self._take_in, index)

    def _take_in(self, index: _Index) -> None:
        self._index = index
        self._read.clear()  # what was read is kept; a payer whose calls are needed has more by now

    def _read_index(self) -> _Index:
        query = "select distinct experiment_id from source.calls where reusable"
        own, own_only = [self._experiment_id], " and experiment_id = $1" if self._fresh else ""
        payers = sorted(payer for (payer,) in self._store.query(query + own_only, own if self._fresh else []))
        columns = self._store.columns(
            f"""select key, coalesce(list_position($2, newest), 0)::integer - 1 as payer from (
                    select ('0x' || left(call_key, 16))::ubigint as key,
                           arg_max(experiment_id, row(experiment_id = $1, recorded_at, experiment_id)) as newest
                    from source.calls where reusable{own_only} group by key
                ) order by key""",
            [*own, payers],
        )
        return _Index(np.asarray(columns["key"]), np.asarray(columns["payer"]), payers)

    def _payer_of(self, key: str) -> str | None:
        """Return the experiment whose answer counts for the first 64 bits of a key."""
        index = self._index
        if index is None or len(index.keys) == 0:
            return None
        prefix = np.uint64(int(key[:16], 16))
        place = np.searchsorted(index.keys, prefix)
        payer = int(index.payer_of[place]) if place < len(index.keys) and index.keys[place] == prefix else -1
        return index.payers[payer] if payer >= 0 else None  # negative: an experiment added between the two queries

    def _read_from(self, payer: str) -> None:
        if payer in self._read:
            return
        self._read.add(payer)
        taken = dict[str, datetime]()
        for row in self._calls_of(payer):
            key, at = row.call_key, row.recorded_at
            is_newer = taken[key] < at if key in taken else key not in self._rows
            if row.reusable and is_newer and self._payer_of(key) == payer:
                self._rows[key], taken[key] = _lean(row), at

    def _calls_of(self, payer: str) -> Iterator[CallRow]:
        """Yield an experiment's calls; none if its file is damaged and it is another experiment's."""
        try:
            yield from self._store.rows("calls", payer)
        except StorageError as error:
            if payer == self._experiment_id:
                raise
            print_note(f"the calls of {payer} are not reused: {error}")


def _lean(row: CallRow) -> CallRow:
    """Drop a call's request: it is the larger part, and already covered by the key."""
    return replace(row, request="{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The totals of some calls; the defaults are those of no calls."""

    calls: int | None = 0  # None if some may have been made that nobody recorded
    calls_cached: int | None = 0
    tokens_in: int | None = None  # None if no call reported them
    tokens_out: int | None = None
    cost_usd: float | None = 0.0  # None if the cost of any paid call is unknown

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=sum_unless_unknown(self.calls, other.calls),
            calls_cached=sum_unless_unknown(self.calls_cached, other.calls_cached),
            tokens_in=sum_of_known((self.tokens_in, other.tokens_in)),
            tokens_out=sum_of_known((self.tokens_out, other.tokens_out)),
            cost_usd=sum_unless_unknown(self.cost_usd, other.cost_usd),
        )


NO_USAGE = Usage()

UNRECORDED = Usage(calls=None, calls_cached=None, cost_usd=None)


def sum_unless_unknown(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else one + other


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of the known values; None if all are unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


class AnsweredCall(NamedTuple):
    """A successful call, and whether its answer came from the ledger."""

    row: CallRow
    cached: bool = False


class Calls:
    """The model calls that a run has made, or had others make, by the experiment or comparison that paid; and those
    that wait for their next attempt."""

    def __init__(self) -> None:
        self._made: Counter[str | None] = Counter()
        self._costs: defaultdict[str | None, float] = defaultdict(float)
        self._unpriced: Counter[str | None] = Counter()
        self._elsewhere: set[str] = set()
        self._waiting: dict[object, float] = {}  # until when, by the wait
        self._said: dict[str, float] = {}  # until when the wait that was said last lasts, by endpoint
        self._lock = threading.Lock()

    @property
    def made(self) -> Counter[str | None]:
        """The number of calls by who paid."""
        with self._lock:
            return self._made.copy()

    def count(self, payer: str | None, *costs: float | None) -> None:
        """Count calls, given their costs in USD."""
        with self._lock:
            self._made[payer] += len(costs)
            self._costs[payer] += sum(cost or 0.0 for cost in costs)
            self._unpriced[payer] += costs.count(None)

    def count_elsewhere(self, payer: str, costs: Mapping[str, float | None]) -> None:
        """Count the calls that other processes have made, given their costs by id; each only once."""
        self.count(payer, *(cost for call, cost in costs.items() if call not in self._elsewhere))
        self._elsewhere |= costs.keys()

    def cost(self, payers: Collection[str]) -> float | None:
        """Return the cost in USD of the calls of these payers; None if that of a call is unknown."""
        with self._lock:
            return None if any(self._unpriced[name] for name in payers) else sum(self._costs[name] for name in payers)

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Note during a block that a call waits for its next attempt."""
        wait = object()
        self._waiting[wait] = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._waiting[wait]

    def waits(self) -> tuple[int, float]:
        """Return how many calls wait for their next attempt, and the seconds until the first of them."""
        ends = [*self._waiting.copy().values()]
        return len(ends), max(0.0, min(ends) - time.monotonic()) if ends else 0.0

    def says_wait(self, who: str, seconds: float) -> bool:
        """Return whether to say that an endpoint asks for a long wait: once for all calls that wait meanwhile."""
        time_now = time.monotonic()
        if is_first := self._said.get(who, time_now) <= time_now:
            self._said[who] = time_now + seconds
        return is_first


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Records the calls of one item: of one answer of a target, or of one judgement of an evaluator."""

    keep: Callable[[CallRow], None]  # writes a row to disk
    note: Callable[[CallRow], None] | None = None  # notes on disk that a call is sent, with the row if it stays so
    drop: Callable[[CallRow], None] | None = None  # forgets that a call was sent: its answer is kept elsewhere
    check: Callable[[], None] | None = None  # raises StorageError if rows cannot be written: before each call
    experiment_id: str | None = None
    subject_id: str | None = None
    evaluator: str | None = None
    request: CallRow | None = None  # to an application: noted as it is sent
    calls: Calls = field(default_factory=Calls)  # of the run, among which this item's count
    budget: Budget | None = None  # of the run group, for calls that do not go through `complete`
    answered: list[AnsweredCall] = field(default_factory=list)  # in order
    failed: list[CallRow] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)  # of the user's own code, in order
    connections: Sequence[ConnectionSpec] = ()  # whose prices count for the user's own clients
    ledger: Ledger | None = None  # for calls of the user's own clients; None: each is made
    asked: Counter[str] = field(default_factory=Counter)  # requests to these so far, by key: the next is a repeat
    unsure: list[CallRow] = field(default_factory=list)  # that may be reused if what was made of them is a score
    is_deferred: bool = False  # whether a batch will answer one of its calls, so that the item is made again then
    has_lost_calls: bool = False  # whether calls were made meanwhile of which nobody knows whose they are
    others: dict[str, "Recorder"] = field(
        default_factory=dict
    )  # of calls that are not the item's own, by who made them

    def of(self, other: str) -> "Recorder":
        """Return a recorder of calls that are made for the item but are not its own, such as those of a user."""
        own: dict[str, Any] = {"answered": [], "failed": [], "steps": [], "others": {}}
        return self.others.setdefault(other, replace(self, evaluator=other, **own))

    def keep_reused(self) -> None:
        """Keep a row for each call of others that the ledger answered: its item does not count it."""
        for name, other in self.others.items():
            for row in (call.row for call in other.answered if call.cached):
                whose: dict[str, Any] = {
                    "experiment_id": self.experiment_id,
                    "subject_id": self.subject_id,
                    "evaluator": name,
                }
                whose |= {"kind": TURN, "reusable": False, "cost_usd": 0.0, "response": None}
                self.keep(replace(row, call_id=new_id("call"), recorded_at=now(), **whose))

    def store(self, row: CallRow) -> None:
        """Write the row of a call to disk, before its answer is used, and count it."""
        self.keep(row)
        self.calls.count(row.experiment_id, row.cost_usd)

    def begin(self, row: CallRow) -> None:
        """Note on disk, before a call is sent, that it counts even if the process does not live to see the answer.

        Raise StorageError if that, or an earlier row, could not be written.
        """
        self.check_can_keep()
        if self.note is not None:
            error = "sent; the process ended before the answer"
            self.note(replace(row, status="failed", error=error, error_kind=UNANSWERED))

    def check_can_keep(self) -> None:
        """Raise StorageError if the row of a call that is made now could not be written."""
        if self.check is not None:
            self.check()

    def keep_for_reuse(self) -> None:
        """Let later runs reuse the answers to the user's own clients: they were good enough for a score."""
        for row in self.unsure:
            again = replace(row, reusable=True, recorded_at=now())
            self.keep(again)
            if self.ledger is not None:
                loop.soon(self.ledger.add, again)
        self.unsure.clear()

    @property
    def has_batched(self) -> bool:
        """Whether a batch has answered one of its calls: how long that took says nothing of the model."""
        return any(call.row.batch_id for call in self.answered)

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
        """Return the calls, tokens and cost of all recorded calls; UNRECORDED if others may have been made.

        Tokens are null if no call reported them; the cost is null if that of any paid call is unknown.
        """
        if self.has_lost_calls:
            return UNRECORDED
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


_current: ContextVar[Recorder | None] = ContextVar("evalflows_recorder", default=None)
_under_way: dict[int, Recorder] = {}  # in this process


def current() -> Recorder | None:
    """Return the recorder of the current item, or None."""
    return _current.get()


def note_lost_call() -> None:
    """Note that a call was made outside of any item: it may be of each that is under way."""
    for recorder in [*_under_way.values()]:
        recorder.has_lost_calls = True


def has_called() -> bool:
    """Return whether the current item has called a model, or was answered by the ledger."""
    recorder = _current.get()
    return recorder is not None and recorder.has_calls


class recording:  # noqa: N801 (used like a function)
    """Record the calls made in this block, and in the tasks and threads that it starts."""

    __slots__ = ("_recorder", "_token")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> Recorder:
        self._token: Token[Recorder | None] = _current.set(self._recorder)
        _under_way[id(self._recorder)] = self._recorder
        return self._recorder

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)
        _under_way.pop(id(self._recorder), None)
