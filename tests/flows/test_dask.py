"""Chunks on the processes of a Dask cluster: the same rows as on threads, and nothing paid twice."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command import with_support
from endpoint import Endpoint, serving
from made_traces import traces, write
from matched import asked
from pairwise_runs import answered, by_length

from evalflows import compare, evaluate_traces, run
from evalflows.reports.progress import Progress
from evalflows.specs import ExperimentSpec
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_api", "importable_judges")]

ITEMS, CHUNK, IN_FLIGHT = 100, 25, 8
MOST_STARTS, MOST_KILLS = 6, 6
ROWS = """
select example_id, repetition, metric, value, label, status, output_status, outputs::varchar
from item_scores where experiment = ? order by all
"""
ON_DASK = {"kind": "dask", "processes": 2}


@pytest.fixture
def importable_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a cluster find `judges` as this one does."""
    monkeypatch.setenv("PYTHONPATH", with_support()["PYTHONPATH"])


def spec_of(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": IN_FLIGHT}
    fields = {
        "name": "spread",
        "dataset": {"rows": rows(f"q{i}" for i in range(ITEMS))},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": connection | changes.pop("connection", {})},
        "chunk_size": CHUNK,
        "task_runner": ON_DASK,
    }
    return ExperimentSpec.model_validate(fields | changes)


def rows(questions: Iterator[str]) -> list[dict[str, Any]]:
    return [
        {"id": f"e{n}", "inputs": {"question": question}, "outputs": {"a": "b"}} for n, question in enumerate(questions)
    ]


def stored(name: str) -> list[Any]:
    """All of an experiment but ids and times."""
    return asked(ROWS, name)


def cluster_processes() -> set[int]:
    """The processes of the clusters that this one has started."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_text()
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if "multiprocessing.spawn" in command and int(parent) == os.getpid():
                found.add(int(folder.name))
    return found


@pytest.mark.soak
def test_the_rows_are_those_of_threads() -> None:
    seen: list[Progress] = []
    with serving(Endpoint(latency_s=0.02)) as endpoint:
        run(spec_of(endpoint, use_cache=False), watch=seen.append)
        assert (endpoint.calls, endpoint.repeated()) == (2 * ITEMS, 0)
        assert {(one.answers, one.judgements) for one in seen} >= {(0, 0), (ITEMS, 2 * ITEMS)}
        assert max(one.calls for one in seen) == 2 * ITEMS
        run(spec_of(endpoint, name="threads", task_runner="threads", use_cache=False))
        assert endpoint.calls == 4 * ITEMS
        run(spec_of(endpoint, name="again"))
        assert endpoint.calls == 4 * ITEMS, "the ledger has all calls, whoever paid them"
    states = asked("select name, state, reason, calls from experiments order by 1")
    assert states == [
        (name, "completed", None, calls)
        for name, calls in [("again", 0), ("spread", 2 * ITEMS), ("threads", 2 * ITEMS)]
    ]
    assert stored("spread") == stored("threads") == stored("again")
    assert len(stored("spread")) == 2 * ITEMS
    query = """select count(distinct process) > 1 from limits join experiments using (experiment_id)
               where name = 'spread'"""
    assert asked(query) == [(True,)], "the history of the limiters in all processes is kept"


def test_a_process_that_is_killed_costs_only_what_was_in_flight() -> None:
    with serving(Endpoint(latency_s=0.1)) as endpoint:
        with ThreadPoolExecutor(1) as threads:
            spec, seen = spec_of(endpoint, use_cache=False, name="killed"), list[Progress]()
            running = threads.submit(copy_context().run, run, spec, None, seen.append)
            while endpoint.calls < ITEMS:
                assert not running.done()
                time.sleep(0.005)
            os.kill(min(cluster_processes()), signal.SIGKILL)
            running.result(120)
        repeated = endpoint.repeated()
        assert endpoint.calls - repeated == 2 * ITEMS
        assert repeated <= IN_FLIGHT, "the calls of one process"
        assert max(one.calls for one in seen) >= 2 * ITEMS, "those of the killed process, too"
        run(spec_of(endpoint, name="unbroken", task_runner="threads"))
    assert asked("select state, reason from experiments where name = 'killed'") == [("completed", None)]
    assert stored("killed") == stored("unbroken")
    assert not cluster_processes()


@pytest.mark.soak
@pytest.mark.parametrize(
    "runner",
    [
        pytest.param(ON_DASK, id="dask"),
        pytest.param(
            {"kind": "ray"},
            id="ray",
            marks=pytest.mark.skipif(find_spec("prefect_ray") is None, reason="the extra ray is not installed"),
        ),
    ],
)
def test_processes_may_be_killed_again_and_again(runner: dict[str, Any]) -> None:
    """What they had in flight is repeated; a run that gives up is resumed; the rows are those of an unbroken one."""
    kills = 0
    with serving(Endpoint(latency_s=0.1)) as endpoint:
        spec = spec_of(endpoint, use_cache=False, name="killed", run_key="killed", task_runner=runner)
        with ThreadPoolExecutor(1) as threads:
            for _ in range(MOST_STARTS):
                running = threads.submit(copy_context().run, run, spec)
                while not running.done() and kills < MOST_KILLS:
                    before = endpoint.calls
                    while endpoint.calls < before + ITEMS // 5 and not running.done():
                        time.sleep(0.005)
                    if not running.done() and (alive := worker_processes(runner["kind"])):
                        os.kill(min(alive), signal.SIGKILL)
                        kills += 1
                if not isinstance(running.exception(120), IncompleteError):
                    break
        running.result()
        repeated = endpoint.repeated()
        print(f"{kills} killed, {repeated} of {2 * ITEMS} calls repeated")
        assert endpoint.calls - repeated == 2 * ITEMS and repeated <= kills * IN_FLIGHT
        run(spec_of(endpoint, name="unbroken", task_runner="threads"))
    assert kills > 2 and stored("killed") == stored("unbroken")


def worker_processes(kind: str) -> set[int]:
    """Return the processes that run chunks for this one."""
    if kind == "dask":
        return cluster_processes()
    import psutil

    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if child.name().startswith("ray::")}


@pytest.mark.soak
def test_a_chunk_that_kills_its_processes_is_given_up() -> None:
    with serving(Endpoint()) as endpoint:
        targets = [{"kind": "python", "name": "deadly", "function": "deadly:dies"}]
        dataset = {"rows": rows(iter(["q"]))}
        with pytest.raises(IncompleteError, match=r"^a chunk was given up after .*: KilledWorker; finished calls are"):
            run(spec_of(endpoint, targets=targets, dataset=dataset, evaluators=["contains"]))
    assert asked("select state from experiments") == [("interrupted",)], "to be resumed"
    assert not cluster_processes()


@pytest.mark.soak
def test_the_budget_holds_over_all_processes() -> None:
    with serving(Endpoint(latency_s=0.02)) as endpoint:
        with pytest.raises(IncompleteError, match="the budget is spent"):
            run(spec_of(endpoint, max_calls=70, run_key="budget"))
        assert endpoint.calls == 70
        run(spec_of(endpoint, max_calls=2 * ITEMS, run_key="budget"))
        assert (endpoint.calls, endpoint.repeated()) == (2 * ITEMS, 0)
    assert asked("select state, calls from experiments") == [("completed", 2 * ITEMS)]


@pytest.mark.soak
def test_a_comparison_has_the_rows_of_threads() -> None:
    query = """select example_id, metric, outcome, shown_first, status from pair_outcomes
               join comparison_sets using (comparison_id) where name = ? order by all"""
    with serving(Endpoint(latency_s=0.02, answer=by_length)) as endpoint:
        fields = {
            "experiments": answered("old", "new", n=ITEMS),
            "evaluators": [{"use": "pairwise_preference", "connection": "mock"}],
            "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
            "chunk_size": 20,
            "use_cache": False,
            "max_calls": ITEMS,
        }
        for name, runner in (("spread", ON_DASK), ("threads", "threads")):
            compare(ComparisonSpec.model_validate(fields | {"name": name, "task_runner": runner}))
        assert endpoint.calls == 2 * ITEMS
    assert len(asked(query, "spread")) == ITEMS
    assert asked(query, "spread") == asked(query, "threads")


@pytest.mark.soak
def test_items_of_production_are_judged_once_though_a_process_is_killed(store: Store) -> None:
    write(store, traces(ITEMS))
    with serving(Endpoint(latency_s=0.1)) as endpoint:
        connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": IN_FLIGHT}
        fields = {
            "name": "watch",
            "evaluators": [{"use": "judges:says_correct", "connection": "mock"}],
            "connections": {"mock": connection},
            "settle_s": 0,
            "fetch_batch_size": CHUNK,
            "task_runner": ON_DASK,
            "max_calls": ITEMS + IN_FLIGHT,
        }
        spec = TraceEvaluationSpec.model_validate(fields)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(copy_context().run, evaluate_traces, spec)
            while endpoint.calls < ITEMS // 2:
                assert not running.done()
                time.sleep(0.005)
            os.kill(min(cluster_processes()), signal.SIGKILL)
            running.result(120)
        assert endpoint.calls - endpoint.repeated() == ITEMS
        assert endpoint.repeated() <= IN_FLIGHT
    assert asked("select state, items_processed, scores_created from watermarks") == [("completed", ITEMS, ITEMS)]
    assert asked("select status, count(*) from trace_scores group by 1") == [("scored", ITEMS)]
    assert asked("select count(*) > 0 from limits") == [(True,)], "the history of its limiters is kept"


@pytest.mark.soak
def test_a_running_cluster_is_joined_and_must_have_the_store_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
        runner = {"kind": "dask", "address": cluster.scheduler_address}
        with serving(Endpoint(latency_s=0.02)) as endpoint:
            run(spec_of(endpoint, task_runner=runner))
            assert (endpoint.calls, endpoint.repeated()) == (2 * ITEMS, 0)
            monkeypatch.setenv("EVALFLOWS_STORE", str(tmp_path / "elsewhere"))
            wanted = r"wanted EVALFLOWS_STORE of that process to name the store of the run"
            with pytest.raises(InputError, match=wanted):
                run(spec_of(endpoint, task_runner=runner))
            assert endpoint.calls == 2 * ITEMS


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalflows.tasks.engines.CONNECTED_WITHIN_S", 1)
    with serving(Endpoint()) as endpoint:
        runner = {"kind": "dask", "address": "tcp://127.0.0.1:9"}
        with pytest.raises(InputError, match=r"^task_runner: dask at tcp://127\.0\.0\.1:9: "):
            run(spec_of(endpoint, task_runner=runner))
        assert endpoint.calls == 0
