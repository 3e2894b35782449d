"""Runs whose judge or target goes down: the breaker, fallbacks, and resuming."""

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, Reply, Request, error, serving
from failing_service import WINDOW, WORKERS, N, Service, chat, complete, connection, incomplete, spec

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


# A judge that is down


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [N, N // 10])
def test_a_judge_failing_half_way_stops_being_called_and_a_resume_pays_only_for_the_rest(chunk_size: int) -> None:
    service = Service(breaks_after=N // 2)
    with serving(Endpoint(latency_s=0.002, answer=service)) as endpoint:
        asked = spec({"judge": connection(endpoint)}, chunk_size=chunk_size)
        reason = incomplete(asked)
        assert endpoint.calls <= N // 2 + WINDOW // 2 + 1 + WORKERS, "once it is found down, it is asked no more"
        scored, not_attempted = (
            one("select count(*) from scores where evaluator = 'says_correct' and status = ?", status)[0]
            for status in ("scored", "not_attempted")
        )
        assert scored == N // 2 and scored + not_attempted == N
        why = "11 of the last 20 failed, most recently with: HTTP 500: down"
        assert reason == f"not done: {not_attempted} of {N} by says_correct ({why})"
        assert rows("select distinct error_kind, value from scores where status = 'not_attempted'") == [
            ("stopped", None)
        ]
        service.mend()
        calls = endpoint.calls
        complete(asked)
    assert endpoint.calls == calls + N // 2, "each judgement that lacked, once"
    assert rows("select status, count(*) from scores where evaluator = 'says_correct' group by 1") == [("scored", N)]
    assert one("select count(*), count(*) filter (status = 'ok') from calls")[1] == N


@pytest.mark.slow
def test_the_fallback_judges_when_the_judge_is_down() -> None:
    service, spare = Service(breaks_after=N // 2), Service()
    fallback = {"use": "judges:says_correct", "connection": "spare"}
    judge = {"use": "judges:says_correct", "connection": "judge", "name": "right", "fallback": fallback}
    with (
        serving(Endpoint(latency_s=0.002, answer=service)) as endpoint,
        serving(Endpoint(latency_s=0.002, answer=spare)) as other,
    ):
        both = {"judge": connection(endpoint), "spare": connection(other, model="spare")}
        complete(spec(both, evaluators=[judge]))
    assert endpoint.calls <= N // 2 + WINDOW // 2 + 1 + WORKERS
    assert other.calls == N - N // 2
    assert rows(
        """select metric, status, decided_by, judge_model, count(*), count(value) from scores
           where evaluator = 'right' group by all order by all"""
    ) == [
        ("right", "scored", "fallback judges:says_correct", "spare-1", N // 2, N // 2),
        ("right", "scored", None, "m-1", N // 2, N // 2),
    ]


@pytest.mark.slow
def test_a_fallback_may_be_a_rule_without_a_model() -> None:
    judge = {"use": "judges:says_correct", "connection": "judge", "fallback": {"use": "contains"}}
    with serving(Endpoint(answer=Service(breaks_after=0))) as endpoint:
        complete(spec({"judge": connection(endpoint)}, evaluators=[judge]))
    assert endpoint.calls <= WINDOW // 2 + WORKERS
    assert rows(
        """select metric, status, decided_by, judge_model, value, count(*) from scores
           where evaluator = 'says_correct' group by all"""
    ) == [("says_correct", "scored", "fallback contains", None, 1.0, N)]


def test_a_failing_fallback_is_reported_with_its_judge() -> None:
    judge = {"use": "judges:says_correct", "connection": "judge"}
    down = Service(breaks_after=0)
    with serving(Endpoint(answer=down)) as endpoint, serving(Endpoint(answer=Service(breaks_after=0))) as other:
        both = {"judge": connection(endpoint), "spare": connection(other)}
        fallback = {"fallback": {"use": "judges:says_correct", "connection": "spare"}}
        reason = incomplete(spec(both, evaluators=[judge | fallback]))
        assert "fallback judges:says_correct also failed: " in reason
        assert max(endpoint.calls, other.calls) <= WINDOW // 2 + WORKERS
    assert one("select count(value) from scores where evaluator = 'says_correct'") == (0,)


@pytest.mark.slow
def test_the_breaker_closes_within_the_run_when_the_judge_recovers() -> None:
    """The chunk is retried after a pause: one judgement probes the judge, then the others follow."""
    service = Service(breaks_after=N // 2, fault=error(503, "busy"))

    def answer(request: Request) -> Reply:
        if service.asked > N // 2 + WINDOW // 2:  # as many have failed as open it
            service.mend()
        return service(request)

    with serving(Endpoint(latency_s=0.002, answer=answer)) as endpoint:
        asked = spec({"judge": connection(endpoint)}, breaker_pause_s=0.01)
        complete(asked)
    assert rows("select status, count(*) from scores where evaluator = 'says_correct' group by 1") == [("scored", N)]


# A target that is down


@pytest.mark.slow
def test_a_target_that_is_down_is_not_called_for_every_example() -> None:
    service = Service(breaks_after=0)
    with serving(Endpoint(answer=service)) as endpoint:
        asked = spec({"judge": connection(endpoint, attempts=4)}, **chat())
        reason = incomplete(asked)
        assert endpoint.calls <= 4 * (WINDOW // 2 + WORKERS) < 4 * N // 2
        not_attempted = one("select count(*) from outputs where status = 'not_attempted'")[0]
        assert not_attempted >= N - (WINDOW // 2 + WORKERS)
        why = "10 of the last 10 failed, most recently with: HTTP 500: down"
        assert reason.startswith(f"not done: {not_attempted} of {N} answers, {not_attempted} of {N} by contains ({why}")
        service.mend()
        calls = endpoint.calls
        complete(asked)
    assert endpoint.calls == calls + N
    assert rows("select status, count(*) from outputs group by 1") == [("ok", N)]
    assert rows("select status, count(*) from scores where evaluator = 'contains' group by 1") == [("scored", N)]
