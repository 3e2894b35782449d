"""Target execution: the runs of a chunk get their outputs."""

import time
from collections.abc import Mapping
from dataclasses import fields
from inspect import isawaitable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evaluators.subject import ExampleView
from llm import loop
from llm.faults import SHORTEST_OF_A_PROVIDER, fault_of, without_keys
from llm.recorder import Recorder, recording
from specs.errors import NOT_ATTEMPTED, TRANSIENT, UNREACHABLE, CallError, ErrorKind
from store.records import ExampleRow, OutputRow, derived_id, now, to_json
from store.spool import Spool
from targets import Answer, NoRecordedAnswerError, as_outputs, length_of
from tasks.chunk import Chunk, TransientFailuresError, is_last_attempt, n_chunks, only_transient
from tasks.experiment import Experiment, experiment
from tasks.progress import tally
from tasks.provider_limit import within_provider_limits
from tasks.subject import example_view

DEAR_S = 0.01
"""What took longer than this is kept on disk at once; the rest is quicker made again."""

MAY_PASS = TRANSIENT | {"stopped"}
"""Kinds of error for which Prefect runs the chunk again after a pause."""


@task(
    cache_policy=NO_CACHE, persist_result=False, retry_condition_fn=only_transient, task_run_name="execute-{chunk.part}"
)
def execute_chunk(chunk: Chunk) -> Chunk:
    """Answer the runs of a chunk that have no answer yet.

    Raises TransientFailuresError while failures remain that another attempt may cure and Prefect will make one.
    """
    ready, last = experiment(chunk.experiment_id), is_last_attempt()
    done = {row.run_id for row in ready.store.read("outputs", chunk.experiment_id, [chunk.part]) if is_settled(row)}
    runs = [example for example in ready.examples[chunk.start : chunk.stop] if run_id(chunk, example) not in done]
    tally.begin(chunk, "answers", chunk.stop - chunk.start - len(runs))
    with (
        within_provider_limits(ready.answering_on, len(runs), n_chunks(ready.row)),
        Spool(ready.store, chunk.experiment_id, chunk.part) as spool,
    ):
        answering = _Answering(ready, chunk, spool)
        trial = 1 if ready.target_breaker.is_open else 0
        for some in (runs[:trial], runs[trial:]):  # where it was down, one answer tells whether it still is
            loop.run(ready.answering.run(answering.answer, some, is_async=ready.target.is_async))
    if answering.transient and not last and not ready.target_breaker.gave_up:
        raise TransientFailuresError(f"{answering.transient} of {len(runs)} answers failed for now")
    return chunk


def run_id(chunk: Chunk, example: ExampleRow) -> str:
    return derived_id(chunk.experiment_id, example.example_id, chunk.repetition)


def is_settled(row: OutputRow) -> bool:
    """Whether it is of no use to try again."""
    return row.status == "ok" or (row.status == "failed" and row.error_kind not in UNREACHABLE)


class _Answering:
    def __init__(self, ready: Experiment, chunk: Chunk, spool: Spool) -> None:
        self._ready, self._chunk, self._spool = ready, chunk, spool
        self.transient = 0

    async def answer(self, example: ExampleRow) -> None:
        identity = run_id(self._chunk, example)
        recorder = Recorder(
            keep=lambda call: self._spool.add("calls", call),
            experiment_id=self._chunk.experiment_id,
            subject_id=identity,
            budget=self._ready.budget,
        )
        started_at, began = now(), time.perf_counter()
        with recording(recorder):
            result = await self._outcome(example)
        elapsed = time.perf_counter() - began
        if result["status"] == "ok" and "latency_s" not in result:
            # A call knows how long its last attempt took; the wait for a place is no latency of the target's.
            single = recorder.answered[0].row.latency_s if self._ready.target_complete and recorder.answered else None
            result["latency_s"] = elapsed if single is None else single
        totals = recorder.totals() if recorder.answered or recorder.failed else {}
        if recorder.steps:
            totals["steps"] = without_keys(to_json(recorder.steps, mend=True), SHORTEST_OF_A_PROVIDER)
        row = OutputRow(
            run_id=identity,
            experiment_id=self._chunk.experiment_id,
            example_id=example.example_id,
            repetition=self._chunk.repetition,
            started_at=started_at,
            **({"attempts": recorder.attempts} | totals | result),
        )
        self.transient += row.error_kind in MAY_PASS
        self._spool.add("outputs", row, dear=elapsed > DEAR_S)
        tally.add(self._chunk, "answers")

    async def _outcome(self, example: ExampleRow) -> dict[str, Any]:
        """What becomes of an example, unless what the target asks is known to be down."""
        breaker = self._ready.target_breaker
        try:
            is_trial = breaker.enter()
        except CallError as error:
            return _failed(error.kind, str(error)) | {"attempts": 0}
        result = await self._called(example)
        breaker.leave(is_trial, result.get("error_kind"), result.get("error"))
        return result

    async def _called(self, example: ExampleRow) -> dict[str, Any]:
        try:
            returned = self._ready.target.call(self._offered(example_view(example)))
            if self._ready.target.is_async and isawaitable(returned):
                returned = await returned
        except NoRecordedAnswerError as error:
            return _failed("no_output", str(error))
        except (Exception, SystemExit) as error:  # the user's code may end itself, not us
            fault = fault_of(error)
            return _failed(fault.kind, str(fault)) | {"attempts": fault.attempts}
        answer = returned if isinstance(returned, Answer) else None
        try:
            outputs = as_outputs(answer.outputs if answer else returned)
            text = without_keys(to_json(outputs, mend=True), SHORTEST_OF_A_PROVIDER)
            kept = {"status": "ok", "outputs": text, "length": length_of(outputs)}
            return kept | (_known(answer) if answer else {})
        except (TypeError, ValueError) as error:
            return _failed("bad_return", f"outputs cannot be kept as JSON: {error}")

    def _offered(self, example: ExampleView) -> Mapping[str, Any]:
        return {
            "inputs": example.inputs,
            "metadata": example.metadata,
            "example": example,
            "example_id": example.id,
            "attachments": example.attachments,
            "repetition": self._chunk.repetition,
        }


def _known(answer: Answer) -> dict[str, Any]:
    """What an answer says of itself."""
    return {field.name: getattr(answer, field.name) for field in fields(answer) if field.name != "outputs"}


def _failed(kind: ErrorKind, error: str) -> dict[str, Any]:
    status = "not_attempted" if kind in NOT_ATTEMPTED else "failed"
    return {"status": status, "error_kind": kind, "error": error}
