"""The concurrency limiter's history in the store."""

import pytest
from catalog_rows import rows
from endpoint import Endpoint, serving
from failing_service import Service, chat, connection, spec

from evalflows import run
from evalflows.llm import limiter

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


@pytest.mark.slow
def test_limiter_widths_are_stored_with_their_reasons() -> None:
    with serving(Endpoint(latency_s=0.05, answer=Service())) as endpoint:
        endpoint.cap = 25
        run(spec({"judge": connection(endpoint, max_in_flight=64, attempts=8)}, **chat(), repetitions=4))
    assert endpoint.refused > 0
    assert rows("select distinct connection, experiment_id = (select experiment_id from experiments) from limits") == [
        ("judge", True)
    ]
    found = rows("select reason, width, changed_at from limits order by changed_at")
    assert found[0][:2] == ("began", limiter.FIRST_WIDTH)
    assert {"began", "grown", "refused"} <= {reason for reason, _, _ in found}
    assert all(1 <= width <= 64 for _, width, _ in found)


def test_a_run_without_calls_stores_no_limiter_history() -> None:
    run(spec({}, evaluators=["contains"]))
    assert rows("select count(*) from limits") == [(0,)]
