"""What a flow run hands to its tasks: the store, its prepared spec, what its chunks share, and how far they are.

Whoever checks a spec makes the context: a program before it calls the flow, which takes it up, or else the flow. A
process that chunks are sent to makes one of its own, from what is stored.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from evalflows.engine.budget_parts import Started, owners_of, run_of, spent_by
from evalflows.engine.chunks import NOTHING_PAID
from evalflows.engine.prepare import Prepared, bind
from evalflows.engine.quick_processes import QUICK_CHUNKS_AT_ONCE, QuickProcesses
from evalflows.engine.tally import Tally
from evalflows.engine.workers import Workers
from evalflows.llm import loop
from evalflows.llm.batches import Batches
from evalflows.llm.budget import Budget, DividedBudget
from evalflows.llm.calls import Endpoint
from evalflows.llm.ledger import Calls, Ledger
from evalflows.specs.process_memory import collect_rarely, return_memory
from evalflows.store.records import LimitRow, new_id
from evalflows.store.store import Store

KEPT = 4
"""Runs whose contexts a process keeps that chunks are sent to, while it has none of their chunks: the newest."""

_taking = threading.Lock()


class JobOfRun(Protocol):
    """A job, as far as its run knows it: see `engine/job.py`."""

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...

    def check_code(self, *, in_cluster: bool) -> None: ...

    def limit_rows(self, owner: str) -> list[LimitRow]: ...

    def close(self) -> None: ...


Of = TypeVar("Of", bound=Prepared[Any])
AnyJob = TypeVar("AnyJob", bound=JobOfRun)


class Server(Protocol):
    """The Prefect server of a flow that a program has called: see `server_watch.py`."""

    owners: set[str]

    def raise_if_lost(self) -> None: ...


@dataclass(slots=True, eq=False)
class Caller:
    """What a program hands on to the flows that it calls, and these to theirs."""

    watch: Callable[[Any], object] | None = None  # is told the progress
    calls: Calls = field(default_factory=Calls)
    server: Server | None = None
    run: "RunContext[Any] | None" = None  # for the flow that is called next


@contextmanager
def calling(watch: Callable[[Any], object] | None = None, calls: Calls | None = None) -> Iterator[None]:
    """Let the runs that are made in this block tell `watch` their progress, and count their model calls in `calls`."""
    outer = _caller.get() or Caller()
    token = _caller.set(Caller(watch=watch or outer.watch, calls=calls or outer.calls, server=outer.server))
    try:
        yield
    finally:
        _caller.reset(token)


@dataclass(slots=True)
class SharedByTargets:
    """What the experiments of a run share, each made when it is needed."""

    budget: Budget | None = None
    ledger: Ledger | None = None
    batches: Batches | None = None
    answering: Workers | None = None
    noted: set[str] = field(default_factory=set)
    """Notes on what judges are shown that were printed."""


class RunContext(Generic[Of]):
    """One flow run in this process. Pickled, it becomes a context of the other process, the same for all chunks.

    It is no dataclass, since Prefect would look for futures in all that it holds.
    """

    def __init__(
        self, prepared: Of | None = None, processes: QuickProcesses | None = None, token: str | None = None
    ) -> None:
        self.store, self.tally, self.shared = Store(), Tally(), SharedByTargets()
        self.processes = processes
        self.quick_chunks = threading.BoundedSemaphore(QUICK_CHUNKS_AT_ONCE)  # that are worked on in this process
        self.caller = _caller.get() or Caller()
        self.is_elsewhere, self.is_in_cluster = token is not None, False
        self._prepared, self._token = prepared, token or new_id("run")
        self._jobs: dict[str, JobOfRun] = {}
        self._lock, self._taking_up = threading.RLock(), threading.Lock()

    def warm_up(self) -> None:
        """Prepare this process for the calls of a run; a second call has no effect."""
        return_memory()
        collect_rarely()

    @property
    def calls(self) -> Calls:
        return self.caller.calls

    @property
    def prepared(self) -> Of:
        """The spec as it was prepared before the run. Chunks that are sent to a process come without it."""
        assert self._prepared is not None
        return self._prepared

    def bound(self, stored: Callable[[], Any]) -> Of:
        """Return the prepared spec; in a process that chunks are sent to, the stored one is bound on first use."""
        with self._lock:
            self._prepared = self._prepared or cast("Of", bind(stored()))
            return self._prepared

    def job(self, identity: str, make: Callable[[], AnyJob]) -> AnyJob:
        """Return the job of an experiment, a comparison or a batch, made on first use.

        Raise InputError if its code is another in this process than where the run was started.
        """
        with self._lock:
            if identity not in self._jobs:
                made = make()
                if self.is_elsewhere:
                    made.check_code(in_cluster=self.is_in_cluster)
                self._jobs[identity] = made
            return cast("AnyJob", self._jobs[identity])

    def ledger(self, owner: str, *, are_made: bool = True) -> Ledger:
        """Return the ledger of the run, so that a call of two experiments is paid once; without cache one each.

        If no calls are expected, its index is read when the first is made: that takes longer than most rules.
        """
        if not self.prepared.spec.use_cache:
            return Ledger(self.store, owner, fresh=True, are_made=are_made)
        self.shared.ledger = self.shared.ledger or Ledger(self.store, owner, are_made=are_made)
        return self.shared.ledger

    def budget(self, row: Started) -> Budget:
        """Return the budget of the run that a row has started; one with limits begins with what was spent before.

        In a process of a cluster, it is divided: each chunk has its part.
        """
        if self.is_in_cluster:
            return DividedBudget()
        if self.shared.budget is None:
            spec = self.prepared.spec
            usd, calls, counts_unknown = spec.budget_usd, spec.max_calls, spec.budget_counts_unknown
            before = NOTHING_PAID if usd is None and calls is None else spent_by(self.store, row)
            self.shared.budget = Budget.after(before, usd=usd, calls=calls, counts_unknown=counts_unknown)
        return self.shared.budget

    def batches(self, row: Started) -> Batches:
        """Return the batches of the run that a row has started, with those that it left open before."""
        with self._taking_up:  # on the loop, which the maker of a job may wait for
            if self.shared.batches is None:
                self.shared.batches = Batches(self.store, run_of(row), owners_of(self.store, row))
            return self.shared.batches

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The endpoints of the jobs that this process has worked on, by connection."""
        return {endpoint.name: endpoint for job in self._jobs.values() for endpoint in job.endpoints}

    def known_job(self, identity: str) -> JobOfRun | None:
        """Return a job if this process has worked on it."""
        return self._jobs.get(identity)

    def reset(self) -> None:
        """Forget the jobs, and what is known of the budget and of paid calls: others may have spent meanwhile."""
        with self._lock:
            for job in self._jobs.values():
                job.close()
            self._jobs.clear()
            if self.shared.batches is not None:
                loop.call(self.shared.batches.close)
            self.shared = SharedByTargets()

    def end_processes(self) -> None:
        """End the processes that work for the run, if there are any."""
        processes, self.processes = self.processes, None
        if processes is not None:
            processes.end()

    @contextmanager
    def handed_on(self) -> Iterator[None]:
        """Let a flow that is called in this block with the spec take up this context. It is closed at the end."""
        self.caller = replace(self.caller, run=self)
        token = _caller.set(self.caller)
        try:
            yield
        finally:
            _caller.reset(token)
            self.end_processes()
            self.reset()

    @classmethod
    def handed(cls, spec: object) -> "RunContext[Any] | None":
        """Return the context that was handed on for a spec, if any."""
        run = caller.run if (caller := _caller.get()) else None
        return run if run is not None and run.prepared.spec == spec else None

    def __reduce__(self) -> tuple[Any, ...]:
        is_to_cluster = self.is_in_cluster if self.is_elsewhere else self.prepared.spec.task_runner.is_elsewhere
        return _taken_up, (self._token, is_to_cluster)


_caller: ContextVar[Caller | None] = ContextVar("evalflows_caller", default=None)

_sent: "weakref.WeakValueDictionary[str, RunContext[Any]]" = weakref.WeakValueDictionary()
_newest: "deque[RunContext[Any]]" = deque(maxlen=KEPT)


def _taken_up(token: str, is_in_cluster: bool) -> RunContext[Any]:
    """Return the context of a run in this process, which chunks are sent to."""
    with _taking:
        run = _sent.get(token)
        if run is None:
            return_memory()
            run = _sent[token] = RunContext(token=token)
            run.is_in_cluster = is_in_cluster
            _newest.append(run)
        return run
