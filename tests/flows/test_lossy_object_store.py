"""An object store whose answers break off, are lost or say 503: gates and resumes finish, and are right."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_rows import rows
from endpoint import Endpoint, serving
from failing_service import N, Service, connection, spec
from fake_s3 import Faults, fake_s3
from gated import decided, drawn, fallen, gated

from evalflows import run
from evalflows.specs.errors import IncompleteError

pytestmark = pytest.mark.usefixtures("without_prefect")

GATE = {"non_inferiority": {"exact_match": 0.1}}


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    with fake_s3(honours=True, faults=Faults(torn=0.02, lost=0.06, refused=0.08)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        monkeypatch.setenv("EVALFLOWS_STORE", "s3://evals/lossy")
        yield server.faults


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.soak)])
def test_gates_and_resumes_finish_and_are_right(
    n: int, faults: Faults, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    right = drawn(200, 0.8)
    for number in range(n):
        sides = {"old": right, "new": fallen(right, 0.4 * (number % 2 == 0))}
        decision = decided(gated(tmp_path, [GATE], {"run_key": f"gate-{number}"}, **sides))
        assert decision.conclusion == ("PASS" if number % 2 else "FAIL")
    for number in range(n):
        service = Service(breaks_after=N // 2)
        with serving(Endpoint(answer=service)) as endpoint:
            asked = spec({"judge": connection(endpoint)}, run_key=f"run-{number}", chunk_size=N // 4)
            with pytest.raises(IncompleteError):
                run(asked)
            service.mend()
            (experiment,) = run(asked)
        scored = f"select status, count(*), sum(value) from scores where experiment_id = '{experiment}' group by 1"
        assert rows(scored) == [("scored", N, float(N))]
    assert min(faults.n[kind] for kind in ("torn", "lost", "refused")) > 5
    assert "ignores If-None-Match" not in capfd.readouterr().err
