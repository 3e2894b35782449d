"""Two processes, or two threads, on one experiment or one comparison: one works, and nothing is paid twice."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import command, with_support
from endpoint import Endpoint, echo, serving
from matched import asked
from progress_lines import is_progress, without_progress
from trials import REPEATS

from evalflows import run
from evalflows.cli.late_commands import INCOMPLETE
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError
from evalflows.store import Store
from evalflows.store.leases import hold_lease

pytestmark = pytest.mark.usefixtures("prefect_api")

ITEMS, IN_FLIGHT = 100, 8
TOTAL = 2 * ITEMS
SLOWLY_S = 0.6


def spec_of(endpoint: Endpoint, **changes: Any) -> dict[str, Any]:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": IN_FLIGHT}
    return {
        "name": "shared",
        "dataset": {"rows": [{"inputs": {"question": f"q{i}"}, "outputs": {"a": "b"}} for i in range(ITEMS)]},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": connection},
        "chunk_size": 25,
    } | changes


def completed(folder: Path) -> None:
    assert asked("select state, reason from experiments") == [("completed", None)]
    assert not list((folder / "spool").rglob("*.jsonl"))


def write(folder: Path, endpoint: Endpoint, **changes: Any) -> None:
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec_of(endpoint, **changes)))


def started(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start the command in its own process, on this test's store."""
    own, line = with_support(environment), command("run", "spec.yaml")
    return subprocess.Popen(line, cwd=folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    said = without_progress(errors).splitlines(keepends=True)
    return process.returncode, "".join(line for line in said if not line.startswith("evalflows: reusing "))


def when_called(process: subprocess.Popen[str], endpoint: Endpoint, calls: int) -> None:
    deadline = time.monotonic() + 60
    while endpoint.calls < calls:
        assert process.poll() is None and time.monotonic() < deadline, "ended too early"
        time.sleep(0.01)


def waiting_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if not is_progress(line))


@pytest.mark.soak
def test_a_run_with_the_same_run_key_waits_and_pays_nothing(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    with serving(Endpoint(latency_s=SLOWLY_S, answer=echo)) as endpoint:
        write(tmp_path, endpoint, run_key="nightly", max_calls=TOTAL)
        first = started(tmp_path, prefect_environment)
        when_called(first, endpoint, IN_FLIGHT)
        second = started(tmp_path, prefect_environment)
        assert waiting_line(second).startswith(f"evalflows: experiment 'shared': waiting for process {first.pid} on ")
        assert first.poll() is None
        endpoint.latency_s = 0.0
        assert [ended(first), ended(second)] == [(0, ""), (0, "")]
        assert (endpoint.calls, endpoint.repeated()) == (TOTAL, 0)
    completed(tmp_path)


@pytest.mark.soak
def test_two_that_start_at_once_pay_once(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    with serving(Endpoint(latency_s=0.01, answer=echo)) as endpoint:
        for number in range(1, REPEATS + 1):
            write(tmp_path, endpoint, run_key=f"nightly {number}", use_cache=False)
            ends = [ended(one) for one in [started(tmp_path, prefect_environment) for _ in range(2)]]
            assert [code for code, _ in ends] == [0, 0], ends
            assert endpoint.calls == number * TOTAL
            assert asked("select state, reason from experiments") == [("completed", None)] * number
        assert asked("select count(*) from item_scores") == [(REPEATS * TOTAL,)]


@pytest.mark.soak
def test_whoever_waits_goes_on_when_the_first_is_killed(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    with serving(Endpoint(latency_s=SLOWLY_S, answer=echo)) as endpoint:
        write(tmp_path, endpoint, run_key="nightly")
        first = started(tmp_path, prefect_environment)
        when_called(first, endpoint, 3 * IN_FLIGHT)
        second = started(tmp_path, prefect_environment)
        assert "waiting for" in waiting_line(second)
        first.kill()
        first.communicate()
        endpoint.latency_s = 0.0
        assert ended(second) == (0, "")
        assert endpoint.repeated() <= IN_FLIGHT
        assert endpoint.calls - endpoint.repeated() == TOTAL
    completed(tmp_path)


@pytest.mark.soak
def test_a_budget_holds_over_processes_that_start_at_once_and_are_killed(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    """In each round, which may pay more, two of four are killed, whoever works; the others go on until it is spent."""
    rounds, most = 4, TOTAL - 2 * IN_FLIGHT
    with serving(Endpoint(latency_s=0.05, answer=echo)) as endpoint:
        for number in range(1, rounds + 1):
            before, limit = endpoint.calls, most * number // rounds
            write(tmp_path, endpoint, run_key="nightly", max_calls=limit, use_cache=False)
            running = [started(tmp_path, prefect_environment) for _ in range(4)]
            for process, share in zip(running, (0.3, 0.6), strict=False):
                deadline = time.monotonic() + 100
                while endpoint.calls < before + share * (limit - before) and time.monotonic() < deadline:
                    time.sleep(0.005)
                process.kill()
                process.wait()
            ends = [ended(process) for process in running[2:]]
            assert [code for code, _ in ends] == [INCOMPLETE, INCOMPLETE], (number, ends)
            assert all("the budget is spent" in said for _, said in ends), (number, ends)
            assert limit - 2 * IN_FLIGHT <= endpoint.calls <= limit
        print(f"{endpoint.calls} calls of {limit}, {endpoint.repeated()} repeated, {2 * rounds} processes killed")
    assert asked("select sum(calls) <= ? from experiments", limit) == [(True,)]


@pytest.mark.slow
@pytest.mark.parametrize("root", [None, "memory://shared"])
def test_threads_with_one_run_key_pay_once(root: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if root is not None:
        monkeypatch.setenv("EVALFLOWS_STORE", root)
    with serving(Endpoint(latency_s=0.02)) as endpoint:
        spec = ExperimentSpec.model_validate(spec_of(endpoint, run_key="nightly"))
        with ThreadPoolExecutor(2) as threads:
            first, second = (threads.submit(copy_context().run, run, spec) for _ in range(2))
        assert first.result() == second.result()
        assert (endpoint.calls, endpoint.repeated()) == (TOTAL, 0)
    assert asked("select state, reason from experiments") == [("completed", None)]


@pytest.mark.slow
def test_what_is_running_is_not_resumed_by_the_api() -> None:
    with serving(Endpoint()) as endpoint:
        spec = ExperimentSpec.model_validate(spec_of(endpoint))
        run(spec)
        ((group,),) = asked("select run_group from experiments")
        with hold_lease(Store(), group, "work", wait=False):
            refused = pytest.raises(InputError, match=r"^experiment 'shared': in use by process \d+ on .*stop it, then")
            with refused:
                run(spec, resume=group)
        run(spec, resume=group)
        assert endpoint.calls == TOTAL
