"""A run that is killed loses nothing, doubles nothing, and pays for no more than what was in flight again."""

import random
import re
import signal
import time
from pathlib import Path

import pytest
from endpoint import Endpoint, serving
from interrupted_runs import (
    IN_FLIGHT,
    ITEMS,
    PER_ITEM,
    finish,
    in_process,
    killed_and_resumed,
    output_of,
    rows_of,
    start,
    when_called,
    write_spec,
)
from trials import KILLS

from evalflows.store import connect


@pytest.mark.parametrize(
    ("items", "kills"),
    [pytest.param(ITEMS, 1, marks=pytest.mark.slow), pytest.param(2000, KILLS, marks=pytest.mark.soak)],
)
def test_killed_and_resumed(tmp_path: Path, prefect_environment: dict[str, str], items: int, kills: int) -> None:
    total = items * PER_ITEM
    moments = sorted(random.Random(7).sample(range(20, total - 20), kills))
    with serving(Endpoint(latency_s=0.02)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url, items)
        finish(killed_and_resumed(tmp_path, prefect_environment, spec, endpoint, moments))
        seen, repeated = endpoint.calls, endpoint.repeated()

        if kills > 1:
            finish(start(tmp_path, prefect_environment, tmp_path / "unbroken", "run", str(spec)))

    killed = rows_of(tmp_path / "killed")
    assert kills == 1 or killed == rows_of(tmp_path / "unbroken")
    assert {row[5] for row in killed} == {"scored"}
    assert len(killed) == items * 2  # a row for each example and metric
    assert len({(row[0], row[2]) for row in killed}) == items * 2
    print(f"killed at calls {moments}: the endpoint saw {seen} calls for {total}, {repeated} of them again")
    assert repeated <= kills * IN_FLIGHT
    assert seen - repeated == total
    with connect(tmp_path / "killed") as catalog:
        (recorded,) = catalog.execute("select count(*) from calls").fetchall()[0]
        assert seen <= recorded <= seen + kills * IN_FLIGHT, "calls in flight when it was killed are paid too"
        assert catalog.execute(
            "select count(*), count(distinct state), any_value(state) from experiments"
        ).fetchall() == [(1, 1, "completed")]
    assert not list((tmp_path / "killed-spool").rglob("*.jsonl"))


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), pytest.param(signal.SIGTERM, marks=pytest.mark.soak)],
)
def test_stopped_by_a_signal_and_resumed(
    tmp_path: Path, prefect_environment: dict[str, str], number: signal.Signals
) -> None:
    with serving(Endpoint(latency_s=0.2)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url)
        process = start(tmp_path, prefect_environment, tmp_path / "stopped", "run", str(spec))
        when_called(process, endpoint, 40)
        process.send_signal(number)
        output = output_of(process, within=60)
        assert process.returncode == 130
        assert re.fullmatch(r"evalflows: stopped; `evalflows resume exp-\w+` continues\n", output)
        assert endpoint.calls < 100, "no call begins once it is stopped"
        endpoint.latency_s = 0.0
        in_process(tmp_path / "stopped", "resume", "killed")
    assert endpoint.repeated() <= IN_FLIGHT
    assert len(rows_of(tmp_path / "stopped")) == ITEMS * 2


@pytest.mark.soak
def test_further_signals_end_it_at_once_without_a_traceback(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    with serving(Endpoint(latency_s=5.0)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url)
        process = start(tmp_path, prefect_environment, tmp_path / "stopped", "run", str(spec))
        when_called(process, endpoint, IN_FLIGHT)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        output = output_of(process, within=60)
        assert process.returncode == 130
        gently = r"stopped; `evalflows resume exp-\w+` continues"
        assert re.fullmatch(
            rf"evalflows: ({gently}|stopped at once; finished calls are kept: `evalflows ls`)\n", output
        )
        endpoint.latency_s = 0.0
        in_process(tmp_path / "stopped", "resume", "killed")
    assert len(rows_of(tmp_path / "stopped")) == ITEMS * 2
