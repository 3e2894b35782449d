"""A model endpoint that is killed in the middle of a run: the run waits for it."""

import time
from pathlib import Path

import pytest
from endpoint import Endpoint, outages
from interrupted_runs import PER_ITEM, finish, output_of, rows_of, start, when_called, write_spec
from trials import IS_LONG, OUTAGE_S

from evalflows.store import connect

ITEMS = 400 if IS_LONG else 120
CALLS = ITEMS * PER_ITEM
LATENCY_S = 0.15 if IS_LONG else 0.1
MOMENTS = [CALLS // 4, CALLS // 2, 4 * CALLS // 5] if IS_LONG else [CALLS // 2]


def check_rows(folder: Path, environment: dict[str, str], endpoint: Endpoint, spec: Path) -> None:
    """None of the rows failed, there was one experiment, and in long trials the rows are those without an outage."""
    endpoint.latency_s = 0.0
    rows = rows_of(folder / "cut")
    if IS_LONG:
        finish(start(folder, environment, folder / "unbroken", "run", str(spec)))
        assert rows == rows_of(folder / "unbroken")
    assert len(rows) == len({(row[0], row[2]) for row in rows}) == ITEMS * 2
    with connect(folder / "cut") as catalog:
        assert catalog.sql("select state, reason from experiments").fetchall() == [("completed", None)]
        assert catalog.sql("select distinct status from outputs").fetchall() == [("ok",)]
        assert catalog.sql("select distinct status from scores").fetchall() == [("scored",)]
        assert catalog.sql("select count(*) from calls where status = 'ok'").fetchall() == [(CALLS,)]


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_goes_on_by_itself_when_its_endpoint_is_back(
    tmp_path: Path, prefect_environment: dict[str, str], moment: int
) -> None:
    with outages(endpoint := Endpoint(latency_s=LATENCY_S)) as served:
        spec = write_spec(tmp_path, endpoint.base_url, ITEMS)
        run = start(tmp_path, prefect_environment, tmp_path / "cut", "run", str(spec))
        when_called(run, endpoint, moment)
        cut = served.kill()
        time.sleep(OUTAGE_S)
        assert run.poll() is None, "it waits"
        served.revive()
        said = output_of(run, within=180)
        print(f"down for {OUTAGE_S:g} s from call {moment}: {endpoint.repeated()} calls again of {cut} in flight")
        assert run.returncode == 0, said
        assert endpoint.repeated() <= cut
        assert endpoint.calls - endpoint.repeated() == CALLS
        check_rows(tmp_path, prefect_environment, endpoint, spec)
