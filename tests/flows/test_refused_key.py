"""Runs whose key is refused: resuming with a valid key repeats only what failed."""

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, Reply, Request, completion, error, serving
from failing_service import WINDOW, WORKERS, N, Service, chat, complete, connection, incomplete, spec

from evalflows import run

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


@pytest.mark.slow
def test_a_resume_repeats_only_rows_whose_key_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is refused for three questions: too few to open the breaker."""
    refused = {"q3", "q30", "q77"}
    wrong = True

    def answer(request: Request) -> Reply:
        question = request["messages"][-1]["content"]
        return error(401, "Incorrect API key provided") if wrong and question in refused else completion("x")

    monkeypatch.setenv("ENDPOINT_KEY", "first-key")
    with serving(Endpoint(answer=answer)) as endpoint:
        asked = spec({"judge": connection(endpoint, api_key_env="ENDPOINT_KEY")}, **chat(), run_key=None)
        run(asked)
        assert endpoint.calls == N
        wanted = [("failed", "authentication", 1, 3), ("ok", None, 1, N - 3)]
        assert rows("select status, error_kind, attempts, count(*) from outputs group by all order by 1") == wanted
        (group,) = one("select run_group from experiments")
        wrong = False
        monkeypatch.setenv("ENDPOINT_KEY", "second-key")
        complete(asked, resume=group)
    again = [request["messages"][-1]["content"] for request in endpoint.requests[N:]]
    assert {*again} == refused and len(again) == 3
    assert endpoint.keys[N:] == ["bearer second-key"] * 3
    assert rows("select status, count(*) from outputs group by 1") == [("ok", N)]
    assert rows("select status, count(*) from scores where evaluator = 'contains' group by 1") == [("scored", N)]


@pytest.mark.slow
def test_a_revoked_key_stops_the_run_and_a_valid_key_completes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(breaks_after=N // 2, fault=error(401, "Incorrect API key provided"))
    monkeypatch.setenv("ENDPOINT_KEY", "first-key")
    with serving(Endpoint(latency_s=0.002, answer=service)) as endpoint:
        asked = spec({"judge": connection(endpoint, api_key_env="ENDPOINT_KEY", attempts=4)}, **chat(), run_key=None)
        reason = incomplete(asked)
        assert "failed, most recently with: HTTP 401: Incorrect API key provided" in reason
        calls = endpoint.calls
        assert calls <= N // 2 + WINDOW // 2 + 1 + WORKERS
        service.mend()
        (group,) = one("select run_group from experiments")
        complete(asked, resume=group)
    assert endpoint.calls == calls + N - N // 2
    assert rows("select status, count(*) from outputs group by 1") == [("ok", N)]
