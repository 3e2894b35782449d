"""Target execution: call the target on every example of a chunk."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from inspect import isawaitable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.evaluators.subject import ExampleView
from evalflows.execution.chunks import Chunk, n_chunks
from evalflows.execution.progress import tally
from evalflows.execution.running_experiment import RunningExperiment, running_experiment
from evalflows.execution.views import example_view
from evalflows.llm import loop
from evalflows.llm.faults import MIN_PROVIDER_KEY_CHARS, fault_of, without_keys
from evalflows.llm.recorder import Recorder, recording
from evalflows.specs.errors import NOT_ATTEMPTED, TRANSIENT, UNREACHABLE, CallError, ErrorKind, StorageError
from evalflows.store.examples import in_blocks, size_of
from evalflows.store.records import ExampleRow, OutputRow, derived_id, now, to_json
from evalflows.store.spool import Spool
from evalflows.targets import Answer, NoRecordedAnswerError, as_outputs, length_of
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import await_breakers, is_last_attempt, only_transient, retry_later

FLUSH_AFTER_S = 0.01
"""Rows that took longer than this, in seconds, are flushed to disk at once; others are cheaper to redo."""

RETRYABLE = TRANSIENT | {"stopped"}
"""Kinds of error for which Prefect retries the chunk after a delay."""


@task(
    cache_policy=NO_CACHE, persist_result=False, retry_condition_fn=only_transient, task_run_name="execute-{chunk.part}"
)
def execute_chunk(chunk: Chunk) -> Chunk:
    """Make the runs of a chunk that have no answer yet.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    experiment, last = running_experiment(chunk.experiment_id), is_last_attempt()
    await_breakers(chunk, "answers", [experiment.target_breaker])
    stored: list[OutputRow] = experiment.store.read("outputs", chunk.experiment_id, [chunk.part], texts=False)
    done = {row.run_id for row in stored if is_final(row)}
    ids = experiment.examples.ids
    pending = [number for number in range(chunk.start, chunk.stop) if run_id(chunk, ids[number]) not in done]
    tally.begin(chunk, "answers", chunk.stop - chunk.start - len(pending))
    with (
        within_provider_limits(experiment.answering_on, len(pending), n_chunks(experiment.row)),
        Spool(experiment.store, chunk.experiment_id, chunk.part) as spool,
    ):
        answering = _Answering(experiment, chunk, spool)
        for block in in_blocks(experiment.examples.rows(pending), size_of):
            answering.answer_all(block)
    if answering.transient and not last and not experiment.target_breaker.gave_up:
        text = f"{answering.transient} of {len(pending)} answers failed transiently"
        retry_later(chunk, "answers", answering.transient, text)
    return chunk


def run_id(chunk: Chunk, example_id: str) -> str:
    return derived_id(chunk.experiment_id, example_id, chunk.repetition)


def is_final(row: OutputRow) -> bool:
    """Whether a retry would be useless."""
    return row.status == "ok" or (row.status == "failed" and row.error_kind not in UNREACHABLE)


class _Answering:
    """The answers of one chunk."""

    def __init__(self, experiment: RunningExperiment, chunk: Chunk, spool: Spool) -> None:
        self._experiment, self._chunk, self._spool = experiment, chunk, spool
        self._unrecorded: dict[str, Any] = dict.fromkeys(
            ("calls", "calls_cached"), None if experiment.target_may_call else 0
        )
        self.transient = 0

    def answer_all(self, examples: Sequence[ExampleRow]) -> None:
        """Answer the examples. If the breaker is open, try one call before all others."""
        first = 1 if self._experiment.target_breaker.is_open else 0
        for batch in (examples[:first], examples[first:]):
            loop.run(self._experiment.answering.run(self.answer, batch, is_async=self._experiment.target.is_async))

    async def answer(self, example: ExampleRow) -> None:
        identity = run_id(self._chunk, example.example_id)
        recorder = Recorder(
            keep=lambda call: self._spool.add("calls", call),
            experiment_id=self._chunk.experiment_id,
            subject_id=identity,
            budget=self._experiment.budget,
        )
        started_at, began = now(), time.perf_counter()
        with recording(recorder):
            result = await self._outcome(example)
        elapsed = time.perf_counter() - began
        if result["status"] == "ok" and "latency_s" not in result:
            result["latency_s"] = self._latency(recorder, elapsed)
        totals = asdict(recorder.totals()) if recorder.answered or recorder.failed else self._unrecorded
        if recorder.steps:
            totals["steps"] = without_keys(to_json(recorder.steps, mend=True), MIN_PROVIDER_KEY_CHARS)
        row = OutputRow(
            run_id=identity,
            experiment_id=self._chunk.experiment_id,
            example_id=example.example_id,
            repetition=self._chunk.repetition,
            started_at=started_at,
            **({"attempts": recorder.attempts} | totals | result),
        )
        self.transient += row.error_kind in RETRYABLE
        self._spool.add("outputs", row, flush=elapsed > FLUSH_AFTER_S)
        tally.add(self._chunk, "answers")

    def _latency(self, recorder: Recorder, elapsed: float) -> float:
        """Return the latency of a run: of a chat target its last attempt, without the wait for the limiter."""
        if self._experiment.target_complete is None or not recorder.answered:
            return elapsed
        of_call = recorder.answered[0].row.latency_s
        return elapsed if of_call is None else of_call

    async def _outcome(self, example: ExampleRow) -> dict[str, Any]:
        """Return the columns of a run: of the call, or of a failure if the breaker is open."""
        breaker = self._experiment.target_breaker
        try:
            is_trial = breaker.enter()
        except CallError as error:
            return _failed(error.kind, str(error)) | {"attempts": 0}
        result = await self._called(example)
        breaker.leave(is_trial, result.get("error_kind"), result.get("error"))
        return result

    async def _called(self, example: ExampleRow) -> dict[str, Any]:
        try:
            returned = self._experiment.target.call(self._arguments(example_view(example)))
            if self._experiment.target.is_async and isawaitable(returned):
                returned = await returned
        except NoRecordedAnswerError as error:
            return _failed("no_output", str(error))
        except StorageError:  # no fault of the item
            raise
        except (Exception, SystemExit) as error:  # the user's code may exit; the run goes on
            fault = fault_of(error)
            return _failed(fault.kind, str(fault)) | {"attempts": fault.attempts, "error_trace": fault.trace}
        answer = returned if isinstance(returned, Answer) else None
        try:
            outputs = as_outputs(answer.outputs if answer else returned)
            text = without_keys(to_json(outputs, mend=True), MIN_PROVIDER_KEY_CHARS)
            columns = {"status": "ok", "outputs": text, "length": length_of(outputs)}
            return columns | (_reported(answer) if answer else {})
        except (TypeError, ValueError) as error:
            return _failed("bad_return", f"outputs cannot be stored as JSON: {error}")

    def _arguments(self, example: ExampleView) -> Mapping[str, Any]:
        return {
            "inputs": example.inputs,
            "metadata": example.metadata,
            "example": example,
            "example_id": example.id,
            "attachments": example.attachments,
            "repetition": self._chunk.repetition,
        }


def _reported(answer: Answer) -> dict[str, Any]:
    """Return the columns that an answer reports itself."""
    return {field.name: getattr(answer, field.name) for field in fields(answer) if field.name != "outputs"}


def _failed(kind: ErrorKind, error: str) -> dict[str, Any]:
    status = "not_attempted" if kind in NOT_ATTEMPTED else "failed"
    return {"status": status, "error_kind": kind, "error": error}
