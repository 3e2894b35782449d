"""A failed row is tried again soon, and the progress says so."""

import json
import time
from typing import Any

import pytest
from catalog_rows import one
from endpoint import Endpoint, Reply, Request, echo, error, serving

from evalflows import Progress, run
from evalflows.reports.progress import counts
from evalflows.specs import ExperimentSpec

pytestmark = pytest.mark.usefixtures("prefect_api")

N = 6


def spec(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}
    fields: dict[str, Any] = {
        "name": "retried",
        "dataset": {"rows": [{"inputs": {"question": f"q{i}"}, "outputs": {"a": "b"}} for i in range(N)]},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": ["contains"],
        "connections": {"mock": connection},
    }
    return ExperimentSpec.model_validate(fields | changes)


def failing_once(request: Request) -> Reply:
    if '"q3"' in json.dumps(request) and not failing_once.asked:  # type: ignore[attr-defined]
        failing_once.asked = True  # type: ignore[attr-defined]
        return error(500, "down")
    return echo(request)


@pytest.mark.slow
def test_a_failed_row_is_named_while_it_waits_and_is_tried_again_soon() -> None:
    failing_once.asked = False  # type: ignore[attr-defined]
    seen: list[Progress] = []
    with serving(Endpoint(answer=failing_once)) as endpoint:
        run(spec(endpoint), watch=seen.append)
    waiting = [counts(state) for state in seen if state.failed]
    assert waiting[0].startswith(f"answering and judging: {N - 1}/{N} answers, 0/{N} judgements, 1 failed, again in ")
    assert waiting[0].endswith((" 1 s", " 2 s")), "the default is two seconds"
    assert [state.answers for state in seen if state.stage == "answering and judging"][-1] == N
    assert not seen[-1].failed
    assert one("select count(*) filter (status = 'ok') from outputs") == (N,)


@pytest.mark.slow
def test_a_retry_waits_for_the_pause_of_an_open_breaker() -> None:
    """A service that is down for a second is asked again when its breaker admits an item, not before."""
    up_at = time.monotonic() + 1.5

    def answer(request: Request) -> Reply:
        return error(500, "down") if time.monotonic() < up_at else echo(request)

    with serving(Endpoint(answer=answer)) as endpoint:
        settings = {"breaker_window": 4, "breaker_pause_s": 1.0, "chunk_retry_delay_s": 0.01}
        run(spec(endpoint, max_concurrency=1, **settings))
    assert one("select count(*) filter (status = 'ok') from outputs") == (N,)
