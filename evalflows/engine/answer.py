"""Answer: call every target on every example of a chunk, in rounds; or look up recorded answers, and judge them in the
same pass.

Otherwise recorded answers would be written, read and parsed again before they are judged, which takes longer than most
rules.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from inspect import isawaitable
from itertools import chain, starmap
from typing import Any

from evalflows.engine.chunks import ExampleChunk, Rounds, in_drawn_order
from evalflows.engine.experiments import Answered, Context, Experiment, experiments_in, size_of_answer
from evalflows.engine.judge_chunk import Judging, Outcome
from evalflows.engine.results import Columns
from evalflows.engine.run_columns import RunColumns, failed, is_final, raised, returned
from evalflows.engine.views import RequestedInputs, example_view, run_id, target_arguments
from evalflows.llm import loop
from evalflows.llm.answers import end_of
from evalflows.llm.application_calls import charged
from evalflows.llm.batches import Deferred
from evalflows.llm.breaker import Breaker
from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, without_keys
from evalflows.llm.ledger import Recorder, current, has_called, recording
from evalflows.specs.attachments import without_contents
from evalflows.specs.errors import RETRIED_LATER, CallError
from evalflows.specs.target import ConversationTarget, HttpTarget
from evalflows.store.records import ExampleRow, OutputRow, now, to_json
from evalflows.store.schemas import records_of
from evalflows.store.snapshots import in_blocks, size_of
from evalflows.store.spool import FLUSH_AFTER_S, Spool
from evalflows.targets import awaited

Found = tuple[ExampleRow, RunColumns]
"""An example, and the columns of its recorded answer."""


def answer_rounds(run: Context, rounds: Rounds, pending: Sequence[Sequence[int]]) -> dict[ExampleChunk, Counter[str]]:
    """Make the pending runs of each chunk: in each round, every target answers one example.

    Return the number of transient failures by chunk and kind of error, without chunks of a target whose breaker gave
    up.
    """
    experiments = experiments_in(run, rounds)
    with ExitStack() as open_until_answered:
        answering = [
            _Answering(experiment, chunk, numbers, open_until_answered)
            for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True)
        ]
        if len(experiments) > 1 and any(pending):  # their latencies are compared
            loop.run(_open_connections(experiments))
        for block in in_blocks(experiments[0].examples.rows(sorted(set().union(*pending))), size_of):
            _answer_in_rounds(answering, block)
    return {each.chunk: each.transient for each in answering if each.transient and not each.breaker.gave_up}


async def _open_connections(experiments: Sequence[Experiment]) -> None:
    """Open those of all targets at the same time: one that has been idle for long may answer quicker."""
    await asyncio.gather(*(experiment.open_connections() for experiment in experiments))


def pending_runs(run: Context, rounds: Rounds) -> list[list[int]]:
    """Return for each chunk the numbers of the examples that have no final answer."""
    pending = []
    for experiment, chunk in zip(experiments_in(run, rounds), rounds.chunks, strict=True):
        stored: list[OutputRow] = run.store.read("outputs", chunk.experiment_id, [chunk.part_name], texts=False)
        done, ids = {row.run_id for row in stored if is_final(row)}, experiment.examples.ids
        if {row.status for row in stored} == {"failed", "not_attempted"} and not experiment.target_breaker.is_open:
            done = set()  # it was stopped before the first answer: the failures say nothing of their items
        numbers = range(chunk.start, chunk.stop)
        pending.append([number for number in numbers if not done or run_id(chunk, ids[number]) not in done])
    return pending


def _answer_in_rounds(answering: "Sequence[_Answering]", examples: Sequence[ExampleRow]) -> None:
    """Answer the examples in rounds. If a breaker is open, try one round before all others."""
    workers, is_async = answering[0].experiment.answering, any(each.is_async for each in answering)
    drawn_by = answering[0].experiment.row.run_group, answering[0].chunk.repetition

    async def answer_in_turn(example: ExampleRow) -> None:
        pending = [each for each in answering if example.example_id in each.pending]
        round_at = now() if len(pending) > 1 else None
        for each in in_drawn_order(pending, *drawn_by, example.example_id):
            await each.answer(example, round_at, on_thread=is_async and not each.is_async)

    first = 1 if any(each.breaker.is_open for each in answering) else 0
    for batch in (examples[:first], examples[first:]):
        loop.run(workers.run(answer_in_turn, batch, is_async=is_async))


class _Answering:
    """The answers of one chunk."""

    def __init__(
        self, experiment: Experiment, chunk: ExampleChunk, pending: Sequence[int], open_until_answered: ExitStack
    ) -> None:
        self.experiment, self.chunk = experiment, chunk
        self.pending = {experiment.examples.ids[number] for number in pending}
        self.transient = Counter[str]()  # by kind of error
        self._spool = open_until_answered.enter_context(Spool(experiment.store, chunk.experiment_id, chunk.part_name))
        self._unrecorded: dict[str, Any] = dict.fromkeys(
            ("calls", "calls_cached"), None if experiment.target_may_call else 0
        )
        self._tally = experiment.run.tally
        self._tally.begin(chunk, "answers", chunk.n_items - len(pending))

    @property
    def breaker(self) -> Breaker:
        return self.experiment.target_breaker

    @property
    def is_async(self) -> bool:
        return self.experiment.target.is_async

    async def answer(self, example: ExampleRow, round_at: datetime | None, *, on_thread: bool) -> None:
        self._spool.check()
        identity = run_id(self.chunk, example.example_id)
        recorder = Recorder(
            keep=self._spool.add_call,
            note=self._spool.note_sent,
            drop=self._spool.drop_sent,
            check=self._spool.check,
            experiment_id=self.chunk.experiment_id,
            subject_id=identity,
            calls=self.experiment.run.calls,
            budget=self.experiment.budget,
            connections=self.experiment.connections,
            # the turns of a conversation are made once, also those of a function
            ledger=self.experiment.ledger if isinstance(self.experiment.target_spec, ConversationTarget) else None,
        )
        started_at, began = now(), time.perf_counter()
        try:
            with recording(recorder):
                result = await self._outcome(example, on_thread)
        except Deferred:  # the example has no answer yet, and is asked again in the next pass
            return
        recorder.keep_reused()
        elapsed = time.perf_counter() - began
        if result["status"] == "ok":
            made = [call.row for call in recorder.answered] if self.experiment.makes_one_call else []
            # of a chat target, the latency of its last attempt, without the wait for the limiter
            of_call = made[0].latency_s if made else None
            measured = None if recorder.has_batched else elapsed
            result.setdefault("latency_s", measured if of_call is None else of_call)
            if made and end_of(made[-1].finish_reason) == "truncated":
                result["error_kind"] = "truncated"  # scored all the same, and counted
        is_known = recorder.has_calls or recorder.has_lost_calls
        totals = asdict(recorder.totals()) if is_known else self._unrecorded
        steps = None
        if recorder.steps:
            steps = without_keys(without_contents(to_json(recorder.steps, mend=True)), MIN_PROVIDER_KEY_CHARS)
        columns: dict[str, Any] = {"attempts": recorder.attempts, "steps": steps} | totals | {**result}
        row = OutputRow(
            run_id=identity,
            experiment_id=self.chunk.experiment_id,
            example_id=example.example_id,
            repetition=self.chunk.repetition,
            started_at=started_at,
            round_at=round_at,
            recorded_at=now(),
            **columns,
        )
        if row.error_kind in RETRIED_LATER:
            self.transient[row.error_kind] += 1
        self._spool.add("outputs", row, flush=elapsed > FLUSH_AFTER_S)
        self._tally.add(self.chunk, "answers")
        if row.status != "ok":
            self._tally.lose(self.chunk, "answers")

    async def _outcome(self, example: ExampleRow, on_thread: bool) -> RunColumns:
        """Return the columns of a run: of the call, or of a failure if the breaker is open."""
        try:
            is_trial = self.breaker.enter()
        except CallError as error:
            return failed(error.kind, str(error)) | {"attempts": 0}
        call = self.experiment.target.call
        arguments = target_arguments(example_view(example), self.chunk.repetition)
        try:
            async with self._charged() as charge:
                answering = self.experiment.answering
                value = await answering.call_on_thread(call, arguments) if on_thread else call(arguments)
                if isawaitable(value):
                    is_on_loop = on_thread or self.is_async
                    value = await awaited(value) if is_on_loop else loop.run(awaited(value))
                charge(value)
        except Deferred:
            self.breaker.leave(is_trial, "stopped", None)  # nothing is known
            raise
        except BaseException as error:  # the user's code may exit, or cancel itself; the run goes on
            if loop.ends_work(error):
                raise
            result = raised(error)
        else:
            result = returned(value)
        self.breaker.leave(is_trial, result.get("error_kind"), result.get("error"), called=has_called())
        return result

    @asynccontextmanager
    async def _charged(self) -> AsyncIterator[Callable[[Any], None]]:
        """Charge the budget for the request of an HTTP target; for what else costs, the calls themselves do."""
        target, recorder = self.experiment.target_spec, current()
        if not isinstance(target, HttpTarget) or recorder is None:
            yield lambda returned: None
            return
        async with charged(recorder, target.url) as charge:
            yield lambda returned: charge(returned.cost_usd)


def look_up_rounds(
    run: Context, rounds: Rounds, pending: Sequence[Sequence[int]], *, judge: bool
) -> dict[ExampleChunk, Outcome]:
    """Look up the recorded answers to the pending examples of each chunk, and with `judge` judge them."""
    count = Counter(chain.from_iterable(pending))
    in_rounds = {number for number, targets in count.items() if targets > 1}
    experiments = experiments_in(run, rounds)
    with ExitStack() as open_until_done:
        lookups = [
            _LookUp(experiment, chunk, numbers, in_rounds, judge, open_until_done)
            for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True)
        ]
        for block in in_blocks(experiments[0].examples.rows(sorted(count)), size_of):
            began = now()
            for each in lookups:
                each.handle(block, began)
    return {each.chunk: each.outcome for each in lookups}


class _LookUp:
    """The recorded answers of one chunk. None is on disk before the part: a lookup is cheap to redo."""

    def __init__(
        self,
        experiment: Experiment,
        chunk: ExampleChunk,
        pending: Sequence[int],
        in_rounds: Set[int],
        judge: bool,
        open_until_done: ExitStack,
    ) -> None:
        ids = experiment.examples.ids[chunk.start : chunk.stop]  # of an Arrow column, one by one they would take longer
        self.chunk, self._experiment = chunk, experiment
        self._pending = {ids[number - chunk.start]: number in in_rounds for number in pending}
        self._spool = open_until_done.enter_context(Spool(experiment.store, chunk.experiment_id, chunk.part_name))
        self._tally = experiment.run.tally
        self._count = self._tally.begin(chunk, "answers", chunk.n_items - len(pending))
        self._judging = Judging(experiment, chunk, self._spool, experiment.load(chunk).before) if judge else None
        self._unrecorded = None if experiment.target_may_call else 0

    @property
    def outcome(self) -> Outcome:
        transient = self._judging.transient if self._judging else Counter[str]()
        return Outcome(transient, self.chunk.n_items, self.chunk)

    def handle(self, examples: Sequence[ExampleRow], began: datetime) -> None:
        """Look up and judge the pending ones of the examples, as many at a time as fit in memory with their answers."""
        pending = (example for example in examples if example.example_id in self._pending)
        for block in in_blocks(((example, self._answer(example)) for example in pending), _size):
            loop.raise_if_stopped()
            runs = self._kept(block, began)
            if self._judging is not None:
                loop.run(self._judging.judge(runs))

    def _answer(self, example: ExampleRow) -> RunColumns:
        try:
            return returned(self._experiment.target.call(RequestedInputs(example, self.chunk.repetition)))
        except Exception as error:
            return raised(error)

    def _kept(self, found: Sequence[Found], began: datetime) -> list[Answered]:
        """Add the answers to the part, and return them with their examples."""
        examples, results = zip(*found, strict=True)
        columns = self._columns(examples, results, began)
        self._spool.add_columns("outputs", columns)
        self._count(len(found))
        if lost := sum(result["status"] != "ok" for result in results):
            self._tally.lose(self.chunk, "answers", lost)
        rows = records_of("outputs", columns, len(found)) if self._judging else ()
        return [*starmap(Answered, zip(examples, rows, strict=True))] if self._judging else []

    def _columns(self, examples: Sequence[ExampleRow], results: Sequence[RunColumns], began: datetime) -> Columns:
        """Return the columns of the runs."""
        count, ids = len(examples), [example.example_id for example in examples]
        usual = {"attempts": 1, "calls": self._unrecorded, "calls_cached": self._unrecorded}
        names = dict.fromkeys(chain(usual, *results))
        return {name: [result.get(name, usual.get(name)) for result in results] for name in names} | {
            "run_id": [run_id(self.chunk, identity) for identity in ids],
            "experiment_id": [self.chunk.experiment_id] * count,
            "example_id": ids,
            "repetition": [self.chunk.repetition] * count,
            "started_at": [began] * count,
            "round_at": [began if self._pending[identity] else None for identity in ids],
            "recorded_at": [now()] * count,
        }


def _size(found: Found) -> int:
    """Return the bytes of an answer: its example is in memory anyway."""
    _, columns = found
    return size_of_answer(columns.get("outputs"), columns.get("steps"))
