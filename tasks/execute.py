"""Target execution: call every target on every example, in rounds."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, fields
from datetime import datetime
from functools import partial
from inspect import isawaitable
from itertools import chain
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.evaluators.subject import ExampleView
from evalflows.execution.chunks import Chunk, Rounds, in_drawn_order, n_chunks
from evalflows.execution.progress import tally
from evalflows.execution.running_experiment import RunningExperiment, running_experiment
from evalflows.execution.views import example_view
from evalflows.execution.workers import in_turn
from evalflows.llm import loop
from evalflows.llm.breaker import Breaker
from evalflows.llm.faults import MIN_PROVIDER_KEY_CHARS, fault_of, without_keys
from evalflows.llm.recorder import Recorder, recording
from evalflows.specs.errors import NOT_ATTEMPTED, RETRIED_LATER, UNREACHABLE, CallError, ErrorKind, StorageError
from evalflows.store.examples import in_blocks, size_of
from evalflows.store.records import ExampleRow, OutputRow, derived_id, now, to_json
from evalflows.store.spool import FLUSH_AFTER_S, Spool
from evalflows.targets import Answer, NoRecordedAnswerError, as_outputs, length_of, seed_of
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import await_breakers, is_last_attempt, only_transient, retry_later
from evalflows.tasks.taken_up import in_any_process


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="execute-{rounds.part}",
)
@in_any_process
def execute_rounds(rounds: Rounds) -> Rounds:
    """Make the runs of the chunks that have no answer yet: in each round, every target answers one example.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    last = is_last_attempt()
    experiments = [running_experiment(chunk.experiment_id) for chunk in rounds.chunks]
    await_breakers(rounds.chunks, "answers", [experiment.target_breaker for experiment in experiments])
    pending = [_pending(experiment, chunk) for experiment, chunk in zip(experiments, rounds.chunks, strict=True)]
    n_pending = sum(map(len, pending))
    endpoints = {endpoint.name: endpoint for experiment in experiments for endpoint in experiment.answering_on}
    is_quick = all(experiment.target.is_recorded for experiment in experiments)
    with in_turn(is_quick=is_quick), ExitStack() as open_until_answered:
        limits = within_provider_limits(endpoints.values(), n_pending, n_chunks(experiments[0].row))
        open_until_answered.enter_context(limits)
        answering = [
            _Answering(experiment, chunk, numbers, open_until_answered)
            for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True)
        ]
        for block in in_blocks(experiments[0].examples.rows(sorted(set().union(*pending))), size_of):
            _answer_all(answering, block)
    failed = {each.chunk: each.transient for each in answering if each.transient and not each.breaker.gave_up}
    if failed and not last:
        retry_later(failed.items(), "answers", f"{sum(failed.values())} of {n_pending} answers failed transiently")
    return rounds


def _pending(experiment: RunningExperiment, chunk: Chunk) -> list[int]:
    """Return the numbers of the chunk's examples that have no final answer."""
    stored: list[OutputRow] = experiment.store.read("outputs", chunk.experiment_id, [chunk.part], texts=False)
    if not stored:
        return [*range(chunk.start, chunk.stop)]
    done = {row.run_id for row in stored if is_final(row)}
    ids = experiment.examples.ids
    return [number for number in range(chunk.start, chunk.stop) if run_id(chunk, ids[number]) not in done]


def _answer_all(answering: "Sequence[_Answering]", examples: Sequence[ExampleRow]) -> None:
    """Answer the examples: in one go if all answers are recorded, else in rounds."""
    if all(each.experiment.target.is_recorded for each in answering):
        loop.run(answering[0].experiment.answering.run(partial(_replay, answering), [examples], is_async=False))
    else:
        _answer_in_rounds(answering, examples)


async def _replay(answering: "Sequence[_Answering]", examples: Sequence[ExampleRow]) -> None:
    """Look up the recorded answers to the examples."""
    pending = Counter(chain.from_iterable(each.pending for each in answering))
    for each in answering:
        each.replay(examples, {identity for identity, count in pending.items() if count > 1})


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


def run_id(chunk: Chunk, example_id: str) -> str:
    return derived_id(chunk.experiment_id, example_id, chunk.repetition)


def is_final(row: OutputRow) -> bool:
    """Whether a retry would be useless."""
    return row.status == "ok" or (row.status == "failed" and row.error_kind not in UNREACHABLE)


class _Answering:
    """The answers of one chunk."""

    def __init__(
        self, experiment: RunningExperiment, chunk: Chunk, pending: Sequence[int], open_until_answered: ExitStack
    ) -> None:
        self.experiment, self.chunk = experiment, chunk
        self.pending = {experiment.examples.ids[number] for number in pending}
        self.transient = 0
        self._highest_cost = 0.0  # of an application's answers so far, in USD
        self._spool = open_until_answered.enter_context(Spool(experiment.store, chunk.experiment_id, chunk.part))
        self._unrecorded: dict[str, Any] = dict.fromkeys(
            ("calls", "calls_cached"), None if experiment.target_may_call else 0
        )
        tally.begin(chunk, "answers", chunk.stop - chunk.start - len(pending))

    @property
    def breaker(self) -> Breaker:
        return self.experiment.target_breaker

    @property
    def is_async(self) -> bool:
        return self.experiment.target.is_async

    async def answer(self, example: ExampleRow, round_at: datetime | None, *, on_thread: bool) -> None:
        identity = run_id(self.chunk, example.example_id)
        recorder = Recorder(
            keep=lambda call: self._spool.add("calls", call),
            experiment_id=self.chunk.experiment_id,
            subject_id=identity,
            budget=self.experiment.budget,
        )
        started_at, began = now(), time.perf_counter()
        with recording(recorder):
            result = await self._outcome(example, on_thread)
        elapsed = time.perf_counter() - began
        if result["status"] == "ok" and "latency_s" not in result:
            result["latency_s"] = self._latency(recorder, elapsed)
        totals = asdict(recorder.totals()) if recorder.has_calls else self._unrecorded
        if recorder.steps:
            totals["steps"] = without_keys(to_json(recorder.steps, mend=True), MIN_PROVIDER_KEY_CHARS)
        row = OutputRow(**self._row(example, started_at, round_at, {"attempts": recorder.attempts} | totals | result))
        self.transient += row.error_kind in RETRIED_LATER
        self._spool.add("outputs", row, flush=elapsed > FLUSH_AFTER_S)
        tally.add(self.chunk, "answers")

    def replay(self, examples: Sequence[ExampleRow], in_rounds: Set[str]) -> None:
        """Look up the recorded answers to the pending ones of the examples.

        Those `in_rounds` are answered by several targets. None is on disk before the part: a lookup is cheap to redo.
        """
        began, rows = now(), []
        for example in examples:
            if example.example_id in self.pending:
                round_at = began if example.example_id in in_rounds else None
                rows.append(
                    self._row(example, began, round_at, {"attempts": 1} | self._unrecorded | self._look_up(example))
                )
        if rows:
            names = dict.fromkeys(chain.from_iterable(rows))
            self._spool.add_columns("outputs", {name: [row.get(name) for row in rows] for name in names})
        tally.add(self.chunk, "answers", len(rows))

    def _look_up(self, example: ExampleRow) -> dict[str, Any]:
        try:
            return _stored(self.experiment.target.call(self._arguments(example_view(example))))
        except Exception as error:
            return _raised(error)

    def _row(
        self, example: ExampleRow, started_at: datetime, round_at: datetime | None, result: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the columns of a run."""
        return {
            "run_id": run_id(self.chunk, example.example_id),
            "experiment_id": self.chunk.experiment_id,
            "example_id": example.example_id,
            "repetition": self.chunk.repetition,
            "started_at": started_at,
            "round_at": round_at,
            "recorded_at": now(),
            **result,
        }

    def _latency(self, recorder: Recorder, elapsed: float) -> float:
        """Return the latency of a run: of a chat target its last attempt, without the wait for the limiter."""
        if self.experiment.target_complete is None or not recorder.answered:
            return elapsed
        of_call = recorder.answered[0].row.latency_s
        return elapsed if of_call is None else of_call

    async def _outcome(self, example: ExampleRow, on_thread: bool) -> dict[str, Any]:
        """Return the columns of a run: of the call, or of a failure if the breaker is open."""
        try:
            is_trial = self.breaker.enter()
        except CallError as error:
            return _failed(error.kind, str(error)) | {"attempts": 0}
        result = await self._called(example, on_thread)
        self.breaker.leave(is_trial, result.get("error_kind"), result.get("error"))
        return result

    async def _called(self, example: ExampleRow, on_thread: bool) -> dict[str, Any]:
        call, arguments = self.experiment.target.call, self._arguments(example_view(example))
        try:
            async with self._charged() as charge:
                answering = self.experiment.answering
                returned = await answering.call_on_thread(call, arguments) if on_thread else call(arguments)
                if self.is_async and isawaitable(returned):
                    returned = await returned
                charge(returned)
        except (Exception, SystemExit) as error:  # the user's code may exit; the run goes on
            return _raised(error)
        return _stored(returned)

    @asynccontextmanager
    async def _charged(self) -> AsyncIterator[Callable[[Any], None]]:
        """Charge the budget for one request to an application, with the cost that its response reports.

        Raise CallError if the budget is spent.
        """
        if self.experiment.row.target_kind != "http":
            yield lambda returned: None
            return
        budget, costs = self.experiment.budget, list[float | None]()
        reservation = await budget.reserve(self._highest_cost)
        try:
            yield lambda returned: costs.append(returned.cost_usd)
        finally:
            self._highest_cost = max([self._highest_cost, *(cost or 0.0 for cost in costs)])
            budget.settle(reservation, costs[0] if costs else 0.0, paid=bool(costs))

    def _arguments(self, example: ExampleView) -> Mapping[str, Any]:
        return {
            "inputs": example.inputs,
            "metadata": example.metadata,
            "example": example,
            "example_id": example.id,
            "attachments": example.attachments,
            "repetition": self.chunk.repetition,
            "seed": seed_of(example.id, self.chunk.repetition),
        }


def _stored(returned: Any) -> dict[str, Any]:
    """Return the columns of what a target returned."""
    answer = returned if isinstance(returned, Answer) else None
    try:
        outputs = as_outputs(answer.outputs if answer else returned)
        text = without_keys(to_json(outputs, mend=True), MIN_PROVIDER_KEY_CHARS)
        columns = {"status": "ok", "outputs": text, "length": length_of(outputs)}
        return columns | (_reported(answer) if answer else {})
    except (TypeError, ValueError) as error:
        return _failed("bad_return", f"outputs cannot be stored as JSON: {error}")


def _raised(error: Exception | SystemExit) -> dict[str, Any]:
    """Return the columns of a run whose target raised. Raise a StorageError again: it is no fault of the item."""
    if isinstance(error, StorageError):
        raise error
    if isinstance(error, NoRecordedAnswerError):
        return _failed("no_output", str(error))
    fault = fault_of(error)
    return _failed(fault.kind, str(fault)) | {"attempts": fault.attempts, "error_trace": fault.trace}


def _reported(answer: Answer) -> dict[str, Any]:
    """Return the columns that an answer reports itself; an unknown latency is not replaced by what was measured."""
    columns = {name: getattr(answer, name) for name in _REPORTED}
    return {name: value for name, value in columns.items() if value is not None or name == "latency_s"}


_REPORTED = tuple(field.name for field in fields(Answer) if field.name != "outputs")


def _failed(kind: ErrorKind, error: str) -> dict[str, Any]:
    status = "not_attempted" if kind in NOT_ATTEMPTED else "failed"
    return {"status": status, "error_kind": kind, "error": error}
