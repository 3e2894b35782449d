"""Engines: what is sent to their processes, and what a run on threads is spared."""

import subprocess
import sys

import cloudpickle
import pytest
from prefect.utilities.callables import get_call_parameters

from evalflows.engine.chunks import ExampleChunk, Rounds
from evalflows.specs.experiment import ExperimentSpec
from evalflows.tasks.engines import chunk_task
from evalflows.tasks.work_through import execute_rounds


def spec(kind: str) -> ExperimentSpec:
    fields = {"name": "x", "dataset": {"name": "d"}, "targets": [{"kind": "recorded", "column": "a"}]}
    return ExperimentSpec.model_validate(fields | {"task_runner": kind, "chunk_retries": 5})


def test_a_task_is_sent_by_its_name() -> None:
    """With its code and what that mentions it could not be pickled, or would be another version there."""
    task = chunk_task(execute_rounds, spec("dask"))
    assert task.retry_delay_seconds == [spec("dask").chunk_retry_delay_s * times for times in (1, 2, 4, 8, 16)]
    sent = cloudpickle.loads(cloudpickle.dumps(task))
    assert (sent.name, sent.retries, sent.fn.function) == ("execute_rounds", 5, execute_rounds.fn)
    rounds = Rounds((ExampleChunk("e1", 0, 0, 10),))
    assert get_call_parameters(sent.fn, (None, rounds), {}) == {"run": None, "rounds": rounds}
    assert len(cloudpickle.dumps(task)) < 10_000


@pytest.mark.slow
def test_a_run_on_threads_imports_no_engine() -> None:
    """They would take half a second of each start."""
    program = """
import sys, evalflows.flows.run_experiment, evalflows.flows.compare_experiments
print([name for name in ("dask", "distributed", "prefect_dask", "ray", "prefect_ray") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
