"""Calls that a provider's batch interface answers, within a day and for about half the price.

Nothing waits for such an answer in place: a call is collected, and whoever made it is told by `Deferred` that it is
answered later. When all work of a pass is done, the collected calls are submitted, one file per endpoint and operation,
and once the batches have ended, the work is done again: then each call finds its answer, and is read, priced and
recorded like one that was made directly.

Whatever is known of open batches is on disk, in a folder of the run beside the spool: the requests and the rows of
their calls before a batch is created, its id as soon as there is one, the results once they were fetched. A batch is
looked for at the provider by its name before it is created, so that one that a killed process has created is taken up.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import orjson

from evalflows.llm.endpoint_errors import error_in, error_of_response
from evalflows.llm.prices import Tokens
from evalflows.specs.connections import BatchSpec, ConnectionSpec, RemoteConnection
from evalflows.specs.errors import CallError, ErrorKind
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.store.file_systems import storage_errors
from evalflows.store.records import UNANSWERED, CallRow, new_id, now
from evalflows.store.spool import BATCHES, Spool, spool_folder
from evalflows.store.store import Store

MEGABYTE = 1_000_000

_NAMES = tuple(column.name for column in fields(CallRow))


class Deferred(BaseException):
    """The answer of a call comes with a batch. It is no error of the item, which is made again then, so that no
    `except Exception` of the user's code takes it for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What a provider says of a batch."""

    identity: str
    state: str  # in the provider's words
    is_over: bool = False
    answered: int = 0
    failed: int = 0
    is_cancelled: bool = False
    error: str | None = None  # why none of its calls was run
    files: tuple[str, ...] = ()  # ids of those that hold its results
    input_file: str | None = None


class BatchService(Protocol):
    """A provider's batch interface. All but `line` raise CallError."""

    def line(self, call_id: str, operation: str, request: Mapping[str, Any]) -> bytes:
        """Return a request as a line of the file that is submitted."""

    async def find(self, name: str, since: datetime, rows: int) -> Remote | None:
        """Return the batch that was created under this name since then, with so many calls, or None."""

    async def submit(self, name: str, operation: str, requests: Path) -> Remote:
        """Create a batch from the lines of a file."""

    async def look(self, identity: str) -> Remote:
        """Return how far a batch is."""

    async def fetch(self, remote: Remote, into: IO[bytes]) -> None:
        """Write the results of a batch that is over, one JSON object a line: `custom_id`, `response` with `status_code`
        and `body`, or `error`."""

    async def cancel(self, identity: str) -> None:
        """Ask the provider to run no further call of a batch."""

    async def tidy(self, remote: Remote) -> None:
        """Delete the files of a batch at the provider."""


class Client(Protocol):
    """A client of an endpoint, as far as batches know it."""

    def batches(self) -> BatchService | None: ...

    def without_secrets(self, text: str) -> str: ...


class Endpoint(Protocol):
    """An endpoint, as far as batches know it."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str: ...

    @property
    def connection(self) -> ConnectionSpec: ...

    @property
    def client(self) -> Client: ...


class Answer(NamedTuple):
    """What an endpoint has answered in a batch: the body, and the id that the provider gave the request."""

    body: dict[str, Any]
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What earlier attempts at a call took, whose answers were unusable."""

    attempts: int = 0
    used: Tokens = field(default_factory=Tokens)
    cost: float | None = 0.0  # USD; None if unknown
    spent: float | None = 0.0  # the cost, or estimates of its unknown parts; None if the price is unknown


@dataclass(slots=True, kw_only=True)
class Batch:
    """A batch of this run, as it is on disk."""

    id: str
    connection: str
    identity: str  # of the endpoint, as in the ledger
    model: str
    operation: str
    created_at: datetime
    rows: int = 0
    bytes: int = 0
    estimated_usd: float | None = 0.0  # at most, for all calls; None if a price is unknown
    provider_id: str | None = None
    state: str = "collected"  # then `submitted`, `ended`
    said: str = ""  # the provider's word for its state
    answered: int = 0
    failed: int = 0
    is_cancelled: bool = False
    error: str | None = None  # why the provider has run none of it

    @property
    def is_open(self) -> bool:
        return self.state != "ended"


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A call that was collected: in which batch, and where in the results its answer is."""

    call_id: str
    owner: str | None  # who pays
    batch: Batch
    earlier: Earlier
    estimate: float | None  # USD at most, of all attempts; None if the price is unknown
    place: int | None = None  # of the line with its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How far the open batches of a run are."""

    batches: int
    calls: int
    answered: int

    def __str__(self) -> str:
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        return f"waiting for {batches}, {self.answered:,} of {self.calls:,} answered"


class Batches:
    """The batches of one run. Use it on the event loop of the calls only."""

    def __init__(self, store: Store, run: str, owners: Collection[str]) -> None:
        """Take up what a process before has left, which had the run's lease.

        Args: run: a name of the run that resumptions share; owners: the ids that pay its calls.
        """
        self._store, self._folder = store, spool_folder(store) / BATCHES / run
        self._files: dict[str, tuple[IO[bytes], IO[bytes]]] = {}  # of batches that collect, by id
        self._collecting: dict[tuple[str, str, str], Batch] = {}
        self._results: dict[str, IO[bytes]] = {}
        self._held: dict[str, Held] = {}  # by call key
        self._batches: dict[str, Batch] = {}
        self._expired: dict[str, CallError] = {}  # by call key: calls that are given up
        self._unsent: dict[str, Held] = {}  # by call key: calls of refused batches, which are made directly
        self._seen_open: set[str] = set()  # ids of batches that were open while this process waited
        self.is_stuck = False  # whether no batch is open, and a pass has neither collected nor read a call
        self.progress = self.deferred = 0  # calls collected or read, and those put off, in this pass
        self._take_up(owners)

    def held(self, key: str) -> Held | None:
        """Return the call with this key if it was collected. Raise CallError if it was given up."""
        if key in self._expired:
            given_up = self._expired[key]
            raise CallError(given_up.kind, str(given_up), attempts=given_up.attempts)
        return self._held.get(key)

    def take_unsent(self, key: str) -> Held | None:
        """Return a call that is made directly, since the provider has refused its batch, and forget it."""
        self.progress += key in self._unsent
        return self._unsent.pop(key, None)

    @property
    def may_free_budget(self) -> bool:
        """Whether calls are held whose estimates are more than they will cost."""
        return bool(self._held) and not self.is_stuck

    def collect(
        self,
        endpoint: Endpoint,
        operation: str,
        row: CallRow,
        request: Mapping[str, Any],
        *,
        estimate: float | None,
        earlier: Earlier,
    ) -> None:
        """Add a call to the batch that will be submitted. Raise CallError if the endpoint has no batches.

        `row` says what is known of the call before it is answered; `request` is what is sent.
        """
        limits, line = limits_of(endpoint.connection), service_of(endpoint).line(row.call_id, operation, request)
        key = (endpoint.name, operation, row.model)
        batch = self._collecting.get(key)
        if batch is not None and (batch.rows >= limits.rows or batch.bytes + len(line) > limits.mb * MEGABYTE):
            self._close_files(batch)
            batch = None
        if batch is None:
            batch = self._collecting[key] = self._opened(endpoint, row.model, operation)
        requests, calls = self._files[batch.id]
        before = asdict(earlier) if earlier.attempts else {}
        sent = {"row": {name: getattr(row, name) for name in _NAMES}, "estimate": estimate, "earlier": before}
        with storage_errors(self._folder):
            requests.write(line)
            calls.write(orjson.dumps(sent, option=orjson.OPT_APPEND_NEWLINE))
        batch.rows, batch.bytes = batch.rows + 1, batch.bytes + len(line)
        known = batch.estimated_usd is not None and estimate is not None
        batch.estimated_usd = (batch.estimated_usd or 0.0) + (estimate or 0.0) if known else None
        self._held[row.call_key] = Held(
            call_id=row.call_id, owner=row.experiment_id, batch=batch, earlier=earlier, estimate=estimate
        )
        self.progress += 1

    def answer(self, held: Held, endpoint: Endpoint, owner: str | None) -> Answer | CallError | None:
        """Return the answer of a call; the error with which it ended; None if its batch has not ended, or if another
        than this owner pays for it and has not read it yet."""
        batch = held.batch
        if batch.is_open or (held.owner != owner and not self.is_stuck):
            return None
        if held.place is None:
            why = batch.error or f"it ended as {batch.said or 'unknown'}"
            kind: ErrorKind = "stopped" if batch.is_cancelled else "expired"
            return CallError(kind, f"batch {batch.provider_id or batch.id} has no answer for this call: {why}")
        answer = _read(endpoint.client.without_secrets(self._line(batch, held.place).decode()))
        if isinstance(answer, CallError) and answer.kind == "expired" and batch.is_cancelled:
            return CallError("stopped", str(answer))
        return answer

    def read(self, key: str) -> None:
        """Forget a call, whose row is recorded."""
        if self._held.pop(key, None) is not None:
            self.progress += 1

    def give_up(self, key: str, error: CallError) -> None:
        """Make no further attempt at a call in this run."""
        self._expired[key] = error

    def end_pass(self) -> bool:
        """Return whether another pass is needed, since calls were put off."""
        needed, was_stuck = self.deferred > 0, self.is_stuck
        self.is_stuck = not self.progress and not self.waiting.batches
        if needed and was_stuck and self.is_stuck:
            raise RuntimeError("calls were put off, and no batch will answer them")
        self.deferred = self.progress = 0
        return needed

    @property
    def waiting(self) -> Waiting:
        """How far the open batches are."""
        of_run = [batch for batch in self._batches.values() if batch.is_open]
        answered = sum(batch.answered + batch.failed for batch in of_run)
        return Waiting(batches=len(of_run), calls=sum(batch.rows for batch in of_run), answered=answered)

    def to_submit(self) -> list[Batch]:
        """Return the batches that are not submitted, with what was collected until now."""
        for batch in self._collecting.values():
            self._close_files(batch)
        self._collecting.clear()
        self._tidy()  # only now: what was read and is asked for again is in one of these
        return [batch for batch in self._batches.values() if batch.state == "collected"]

    async def submit(self, batch: Batch, service: BatchService) -> None:
        """Submit a batch, once, and note that its calls may be paid. Raise CallError."""
        remote = await service.find(batch.id, batch.created_at, batch.rows)
        if remote is None:
            remote = await service.submit(batch.id, batch.operation, self._path(batch, "requests.jsonl"))
        batch.provider_id, batch.state, batch.said = remote.identity, "submitted", remote.state
        self._seen_open.add(batch.id)
        _write_state(self._folder, batch)
        self._note_paid(batch)

    def make_directly(self, batch: Batch) -> None:
        """Forget a batch that is not submitted: its calls are made directly."""
        unsent = {key: held for key, held in self._held.items() if held.batch is batch}
        self._unsent |= unsent
        for key in unsent:
            del self._held[key]
        self._remove(batch)

    async def poll(self, service_of_batch: Callable[[Batch], BatchService]) -> Waiting:
        """Ask how far the open batches are, and fetch the results of those that have ended. Raise CallError."""
        for batch in [batch for batch in self._batches.values() if batch.state == "submitted"]:
            service = service_of_batch(batch)
            assert batch.provider_id is not None
            remote = await service.look(batch.provider_id)
            batch.said, batch.answered, batch.failed = remote.state, remote.answered, remote.failed
            # what was cancelled before is submitted again: whoever resumes the run wants the answers
            batch.is_cancelled, batch.error = remote.is_cancelled and batch.id in self._seen_open, remote.error
            if remote.is_over:
                await self._fetch(batch, service, remote)
                self._index(batch, is_said=True)
            else:
                self._seen_open.add(batch.id)
                _write_state(self._folder, batch)
        return self.waiting

    def close(self) -> None:
        """Close the files, and remove those of batches whose calls nobody asks for any more."""
        for files in self._files.values():
            for file in files:
                file.close()
        self._files.clear()
        self._tidy()
        for file in self._results.values():
            file.close()
        self._results.clear()

    def _take_up(self, owners: Collection[str]) -> None:
        """Read the batches of the run; calls that were collected but not for a batch that is whole are made again."""
        for batch in open_batches(self._folder):
            self._batches[batch.id] = batch
        if not self._batches:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for path in self._folder.glob("*.jsonl"):  # of a batch that was not whole: nothing of it was sent
            if path.name.partition(".")[0] not in self._batches:
                path.unlink(missing_ok=True)
        answered = self._answered(owners)
        for batch in self._batches.values():
            for row, estimate, earlier in self._calls_of(batch):
                if row.call_id not in answered:
                    self._held[row.call_key] = Held(
                        call_id=row.call_id,
                        owner=row.experiment_id,
                        batch=batch,
                        earlier=earlier,
                        estimate=estimate,
                    )
        for batch in [*self._batches.values()]:
            if batch.state == "submitted":
                self._note_paid(batch)
            elif not batch.is_open:
                self._index(batch, is_said=False)

    def _answered(self, owners: Collection[str]) -> set[str]:
        """Return the ids of the calls of batches that have their final row."""
        query = """select call_id from source.calls where batch_id is not null
                   and error_kind is distinct from ? and list_contains(?, experiment_id)"""
        return {call_id for (call_id,) in self._store.query(query, [UNANSWERED, [*owners]])}

    def _opened(self, endpoint: Endpoint, model: str, operation: str) -> Batch:
        batch = Batch(
            id=new_id("batch"),
            connection=endpoint.name,
            identity=endpoint.identity,
            model=model,
            operation=operation,
            created_at=now(),
        )
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            opened = [self._path(batch, kind).open("wb") for kind in ("requests.jsonl", "calls.jsonl")]
        self._files[batch.id] = (opened[0], opened[1])
        return batch

    def _close_files(self, batch: Batch) -> None:
        """Make a batch whole: what it will send is on disk before anything says that there is such a batch."""
        with storage_errors(self._folder):
            for file in self._files.pop(batch.id):
                file.flush()
                os.fsync(file.fileno())
                file.close()
        self._batches[batch.id] = batch
        _write_state(self._folder, batch)

    def _path(self, batch: Batch, kind: str) -> Path:
        return self._folder / f"{batch.id}.{kind}"

    def _calls_of(self, batch: Batch) -> Iterator[tuple[CallRow, float | None, Earlier]]:
        """Yield the rows of a batch's calls, their estimates, and what their earlier attempts took."""
        path = self._path(batch, "calls.jsonl")
        with storage_errors(path), path.open("rb") as file:
            for line in file:
                sent = orjson.loads(line)
                before = sent["earlier"]
                earlier = Earlier(**{**before, "used": Tokens(**before["used"])}) if before else Earlier()
                yield call_row(sent["row"]), sent["estimate"], earlier

    def _note_paid(self, batch: Batch) -> None:
        """Keep a row for each call that the provider has taken, with what it may cost, until its answer is recorded."""
        held = {one.call_id for one in self._held.values() if one.batch is batch}
        error = f"in batch {batch.provider_id}; not answered yet"
        unanswered: dict[str, Any] = {"error": error, "error_kind": UNANSWERED, "batch_id": batch.provider_id}
        spools: dict[str, Spool] = {}
        with ExitStack() as opened:
            for row, estimate, _ in self._calls_of(batch):
                owner = row.experiment_id
                if owner is None or row.call_id not in held:
                    continue
                if owner not in spools:
                    spools[owner] = opened.enter_context(Spool(self._store, owner, f"batch-{batch.id}"))
                paid = replace(row, estimated_usd=estimate, recorded_at=batch.created_at, **unanswered)
                spools[owner].add("calls", paid, flush=False)

    async def _fetch(self, batch: Batch, service: BatchService, remote: Remote) -> None:
        with _whole(self._path(batch, "results.jsonl")) as file:
            await service.fetch(remote, file)
        batch.state = "ended"
        _write_state(self._folder, batch)
        await service.tidy(remote)

    def _index(self, batch: Batch, *, is_said: bool) -> None:
        """Find the answers of a batch that has ended. What is wrong with its results is said, once."""
        mine = {held.call_id: held for held in self._held.values() if held.batch is batch}
        wrong: Counter[str] = Counter()
        of_batch = {row.call_id for row, _, _ in self._calls_of(batch)}
        seen: set[str] = set()
        path = self._path(batch, "results.jsonl")
        with storage_errors(path), path.open("rb") as file:
            place = 0
            for line in file:
                call_id = _call_in(line)
                if call_id is None:
                    wrong["cannot be read"] += bool(line.strip())
                elif call_id not in of_batch:
                    wrong["for a call that is not in this batch"] += 1
                elif call_id in seen:
                    wrong["for a call that already has one"] += 1
                else:
                    seen.add(call_id)
                    if call_id in mine:
                        mine[call_id].place = place
                place += len(line)
        missing = len(of_batch) - len(seen)
        if is_said:
            who = f"batch {batch.provider_id}"
            for what, count in wrong.items():
                print_note(f"{who}: {count} {'row' if count == 1 else 'rows'} {what}; not used")
            if missing:
                why = batch.error or f"it ended as {batch.said}"
                calls = "1 call has" if missing == 1 else f"{missing} calls have"
                print_note(f"{who}: {calls} no answer ({why})")

    def _tidy(self) -> None:
        """Remove the batches whose calls have all been recorded."""
        needed = {held.batch.id for held in self._held.values()}
        for batch in [batch for batch in self._batches.values() if not batch.is_open and batch.id not in needed]:
            self._remove(batch)

    def _line(self, batch: Batch, place: int) -> bytes:
        if batch.id not in self._results:
            self._results[batch.id] = self._path(batch, "results.jsonl").open("rb")
        file = self._results[batch.id]
        file.seek(place)
        return file.readline()

    def _remove(self, batch: Batch) -> None:
        """Remove the files of a batch, of which nothing is needed any more: its state first."""
        self._batches.pop(batch.id, None)
        if (file := self._results.pop(batch.id, None)) is not None:
            file.close()
        for kind in ("json", "requests.jsonl", "calls.jsonl", "results.jsonl"):
            self._path(batch, kind).unlink(missing_ok=True)
        if not self._batches and not self._collecting:
            shutil.rmtree(self._folder, ignore_errors=True)


def service_of(endpoint: Endpoint) -> BatchService:
    """Return the batch interface of an endpoint. Raise CallError if it has none."""
    made = endpoint.client.batches()
    if made is None:
        raise CallError("bad_request", f"connection {endpoint.name!r}: mode: batch: got an endpoint without batches")
    return made


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """Write a file, which is on disk whole after the block, or as it was before. Raise StorageError."""
    written = path.with_suffix(".new")
    with storage_errors(path):
        with written.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)


def _write_state(folder: Path, batch: Batch) -> None:
    with _whole(folder / f"{batch.id}.json") as file:
        file.write(orjson.dumps(asdict(batch)))


def limits_of(connection: ConnectionSpec) -> BatchSpec:
    """Return how batches of a connection are used."""
    return connection.batch if isinstance(connection, RemoteConnection) else BatchSpec()


def open_batches(folder: Path) -> list[Batch]:
    """Return the batches in the folder of a run, the oldest first. Raise StorageError if one cannot be read."""
    found = []
    for path in folder.glob("*.json"):
        with storage_errors(path):
            values = orjson.loads(path.read_bytes())
        values["created_at"] = datetime.fromisoformat(values["created_at"])
        found.append(Batch(**values))
    return sorted(found, key=lambda batch: (batch.created_at, batch.id))


def runs_with_batches(store: Store) -> dict[str, list[Batch]]:
    """Return the batches of each run that waits for some."""
    folders = sorted(path for path in (spool_folder(store) / BATCHES).glob("*") if path.is_dir())
    return {folder.name: batches for folder in folders if (batches := open_batches(folder))}


def note_cancelled(store: Store, run: str, batches: Iterable[Batch]) -> None:
    """Note that open batches of a run are being cancelled, and forget those that were not submitted."""
    folder = spool_folder(store) / BATCHES / run
    for batch in batches:
        if batch.provider_id is None:
            for path in folder.glob(f"{batch.id}.*"):
                path.unlink(missing_ok=True)
        elif batch.is_open:
            _write_state(folder, replace(batch, said="cancelling"))
    with suppress(OSError):  # there are others
        folder.rmdir()


def call_row(values: Mapping[str, Any]) -> CallRow:
    """Return a row from its JSON."""
    times = {name: datetime.fromisoformat(values[name]) for name in ("started_at", "recorded_at")}
    return CallRow(**{**values, **times})


def _call_in(line: bytes) -> str | None:
    """Return the id of the call that a line answers; None if it cannot be read or answers none."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    identity = found.get("custom_id") if isinstance(found, dict) else None
    return identity if isinstance(identity, str) else None


def _read(line: str) -> Answer | CallError:
    """Return the response in a line of results, or the error in its place."""
    result = orjson.loads(line)
    response, error = result.get("response"), result.get("error")
    if not isinstance(response, dict):
        return _error_of(error)
    status, body = response.get("status_code"), response.get("body")
    text = json.dumps(body)
    if isinstance(status, int) and status >= 400:
        return error_of_response(status, {}, text)
    if not isinstance(body, dict):
        return CallError("bad_answer", f"the answer is {type(body).__name__}, wanted a mapping")
    request_id = response.get("request_id")
    return error_in(body, text) or Answer(body, request_id if isinstance(request_id, str) else None)


def _error_of(error: Any) -> CallError:
    """Return the error of a call that has no response: the provider has not run it."""
    said = error if isinstance(error, dict) else {}
    message = " ".join(str(said.get("message") or said.get("code") or "no answer").split())
    return CallError("expired", f"the batch did not run this call: {message}")
