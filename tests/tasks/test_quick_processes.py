"""Recorded answers that are judged by our rules in processes: the same rows, and what becomes of a killed process."""

import os
import random
import signal
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from isolated import is_running
from made_traces import traces, write
from rule_rows import comparable, run_without_flow, stored

from evalflows import evaluate_traces
from evalflows.engine import quick_processes
from evalflows.engine.chunks import rounds_of
from evalflows.engine.jobs import judge_in_process
from evalflows.engine.quick_processes import QuickProcesses
from evalflows.llm import loop
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.traces import batch_row
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id
from evalflows.tasks.snapshot import check_and_freeze
from evalflows.tasks.start import start_experiments
from evalflows.tasks.work_through import execute_rounds

ROWS = [
    {"inputs": {"q": number}, "reference_outputs": {"answer": "yes"}, "metadata": {"said": "yes"} if number % 3 else {}}
    for number in range(40)
]


def spec_of(name: str, *more: str, **changes: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate(
        {
            "name": name,
            "dataset": {"rows": ROWS},
            "targets": [
                {"kind": "recorded", "column": "said"},
                {"kind": "recorded", "column": "reference_outputs", "name": "b"},
            ],
            "evaluators": ["exact_match", "contains", *more],
            "repetitions": 2,
            "chunk_size": 15,
        }
        | changes
    )


@pytest.mark.slow
def test_the_rows_are_the_same_as_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here, worked = stored(run_without_flow(spec_of("here"))), list[object]()
    monkeypatch.setattr(quick_processes, "MANY_JUDGEMENTS", 1)
    monkeypatch.setattr(quick_processes, "cores", lambda: 2)
    work = QuickProcesses.work
    monkeypatch.setattr(QuickProcesses, "work", lambda *given: worked.append(given) or work(*given))
    there = stored(run_without_flow(spec_of("there")))
    assert len(worked) == 6
    assert len(here["judgements"]) == 160
    for table in ("outputs", "judgements"):
        assert comparable(there[table]) == comparable(here[table])


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_items_of_production_are_judged_as_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, traces(7))
    monkeypatch.setattr(quick_processes, "cores", lambda: 2)
    worked, work = list[object](), QuickProcesses.work
    monkeypatch.setattr(QuickProcesses, "work", lambda *given: worked.append(given) or work(*given))
    for name, many in (("here", 100), ("there", 14)):
        monkeypatch.setattr(quick_processes, "MANY_JUDGEMENTS", many)
        fields = {"name": name, "mapper": {"output": "input"}, "settle_s": 0, "fetch_batch_size": 3}
        rules = [{"use": "length_between", "args": {"most": 9}}, "json_valid"]
        composite = {"name": "both", "weights": {"length_between": 1, "json_valid": 1}}
        spec = TraceEvaluationSpec.model_validate(fields | {"evaluators": rules, "composites": [composite]})
        batch = batch_row(store, evaluate_traces(spec))
        assert (batch.items_processed, batch.scores_created, batch.composite_scores_created) == (7, 14, 7)
    assert len(worked) == 3
    here, there = (
        store.query(
            "select subject_id, metric, value from scores where starts_with(experiment_id, ?) order by all", [e]
        )
        for e in map(evaluation_id, ("here", "there"))
    )
    assert here == there and len(here) == 21


def test_a_rule_that_was_changed_meanwhile_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = tmp_path / "changed_meanwhile.py"
    rule.write_text("def is_short(outputs):\n    return len(outputs) < 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = spec_of("changed", "changed_meanwhile:is_short", task_runner={"kind": "processes", "processes": 1})
    run = check_and_freeze(spec)
    experiments = start_experiments.fn(run)
    rule.write_text("def is_short(outputs):\n    return len(outputs) < 9\n")
    rounds, *_ = rounds_of(experiments)
    wanted = r"process \d+ of this machine: evaluators of exp-\w+: got code other than the run's, wanted the same"
    with pytest.raises(InputError, match=wanted) as caught, run.handed_on():
        execute_rounds.fn(run, rounds)
    assert "cluster" not in str(caught.value)


def test_the_work_of_a_killed_process_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_processes, "cores", lambda: 1)
    processes = QuickProcesses()
    assert processes.work(os.getpid) != os.getpid()
    with pytest.raises(ZeroDivisionError):
        processes.work(divmod, 1, 0)
    os.kill(processes.work(os.getpid), signal.SIGKILL)
    assert processes.work(os.getpid) == os.getpid()


def test_each_draws_other_random_numbers_and_none_is_left_once_they_are_ended() -> None:
    processes = QuickProcesses(2)
    with ThreadPoolExecutor(2) as threads:
        drawn = [*threads.map(lambda _: processes.work(_draw), range(2))]
    assert all(len(set(values)) == 2 for values in zip(*drawn, strict=True)), "processes, and numbers"
    assert all(is_running(pid) for pid, *_ in drawn)
    processes.end()
    for pid, *_ in drawn:
        with pytest.raises(ProcessLookupError):  # not even as a zombie
            os.kill(pid, 0)


def _draw() -> tuple[int, float, float]:
    time.sleep(0.1)  # so that the other process takes the other
    return os.getpid(), random.random(), float(np.random.random())


def test_an_interrupted_run_does_not_go_on_here(monkeypatch: pytest.MonkeyPatch) -> None:
    run = check_and_freeze(spec_of("interrupted"))
    rounds, *_ = rounds_of(start_experiments.fn(run))
    execute_rounds.fn(run, rounds)
    processes = QuickProcesses(1)
    with pytest.raises(KeyboardInterrupt), loop.ends_with():
        thread = copy_context()
        raise KeyboardInterrupt
    processes.end()
    with pytest.raises(CancelledError):
        thread.run(processes.work, judge_in_process, run, rounds.chunks[0])
