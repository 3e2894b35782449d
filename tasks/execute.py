"""Target execution: the runs of a chunk get their outputs."""

import time
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evaluators.subject import ExampleView
from llm import loop
from llm.recorder import Recorder, recording
from specs.errors import TRANSIENT, CallError, ErrorKind, describe
from store.records import ExampleRow, OutputRow, derived_id, now, to_json
from store.spool import Spool
from targets import NoRecordedAnswerError, as_outputs
from tasks.chunk import Chunk, TransientFailuresError, is_last_attempt, only_transient
from tasks.experiment import Experiment, experiment
from tasks.subject import example_view

DEAR_S = 0.01
"""What took longer than this is kept on disk at once; the rest is quicker made again."""


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
    with Spool(ready.store, chunk.experiment_id, chunk.part) as spool:
        answering = _Answering(ready, chunk, spool)
        loop.run(ready.answering.run(answering.answer, runs, is_async=ready.target.is_async))
    if answering.transient and not last:
        raise TransientFailuresError(f"{answering.transient} of {len(runs)} answers failed for now")
    return chunk


def run_id(chunk: Chunk, example: ExampleRow) -> str:
    return derived_id(chunk.experiment_id, example.example_id, chunk.repetition)


def is_settled(row: OutputRow) -> bool:
    """Whether it is of no use to try again."""
    return row.status == "ok" or (row.status == "failed" and row.error_kind not in TRANSIENT)


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
        )
        started_at, began = now(), time.perf_counter()
        with recording(recorder):
            result = await self._outcome(example)
        elapsed = time.perf_counter() - began
        if result["status"] == "ok":
            # A call knows how long its last attempt took; the wait for a place is no latency of the target's.
            single = recorder.completions[0].latency_s if self._ready.target_complete and recorder.completions else None
            result["latency_s"] = elapsed if single is None else single
        row = OutputRow(
            run_id=identity,
            experiment_id=self._chunk.experiment_id,
            example_id=example.example_id,
            repetition=self._chunk.repetition,
            started_at=started_at,
            **{"attempts": recorder.attempts} | result,
            **(recorder.totals() if recorder.completions or recorder.failed else {}),
        )
        self.transient += row.error_kind in TRANSIENT
        self._spool.add("outputs", row, dear=elapsed > DEAR_S)

    async def _outcome(self, example: ExampleRow) -> dict[str, Any]:
        try:
            returned = self._ready.target.call(self._offered(example_view(example)))
            if self._ready.target.is_async and isawaitable(returned):
                returned = await returned
        except CallError as error:
            return _failed(error.kind, str(error)) | {"attempts": error.attempts}
        except NoRecordedAnswerError as error:
            return _failed("no_output", str(error))
        except Exception as error:
            return _failed("raised", describe(error))
        try:
            return {"status": "ok", "outputs": to_json(as_outputs(returned), mend=True)}
        except (TypeError, ValueError) as error:
            return _failed("bad_return", f"outputs cannot be kept as JSON: {error}")

    def _offered(self, example: ExampleView) -> Mapping[str, Any]:
        return {
            "inputs": example.inputs,
            "metadata": example.metadata,
            "example": example,
            "example_id": example.id,
            "attachments": example.attachments,
        }


def _failed(kind: ErrorKind, error: str) -> dict[str, Any]:
    return {"status": "failed", "error_kind": kind, "error": error}
