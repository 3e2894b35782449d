"""Runs whose judge or target goes down: the breaker, fallbacks, and resuming."""

import re

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, Reply, Request, completion, error, serving
from failing_service import WINDOW, WORKERS, N, Service, chat, complete, connection, incomplete, spec

from evalflows import run
from evalflows.cli.show import overview_line
from evalflows.llm import limiter
from evalflows.reports.experiment_report import overviews
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.reference import refer
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


@pytest.mark.slow
def test_a_judge_failing_half_way_stops_being_called_and_a_resume_pays_only_for_the_rest() -> None:
    service = Service(breaks_after=N // 2)
    with serving(Endpoint(latency_s=0.002, answer=service)) as endpoint:
        asked = spec({"judge": connection(endpoint)}, chunk_size=N // 10)
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


DATABASE: list[str] = []


def needs_its_database(inputs: dict[str, str]) -> str:
    if not DATABASE:
        raise RuntimeError(f"no database for {inputs['question']!r}, tried {len(inputs['question'])} times")
    return inputs["question"]


def test_an_application_whose_first_answers_all_raise_the_same_is_asked_no_more_and_a_resume_asks_all() -> None:
    asked = spec(
        {},
        targets=[{"kind": "python", "function": refer(needs_its_database)}],
        evaluators=["json_valid"],
        max_concurrency=1,
    )
    assert re.fullmatch(
        rf"not done: {N - 10} of {N} answers, {N - 10} of {N} by json_valid \(stopped: the first 10 answers all failed "
        r"with: RuntimeError: no database for 'q\d+', tried . times \(.*\)\)",
        incomplete(asked),
    )
    assert rows("select status, error_kind, count(*) from outputs group by all order by 1") == [
        ("failed", "raised", 10),
        ("not_attempted", "stopped", N - 10),
    ]
    DATABASE.append("up")
    run(asked)
    assert one("select state, reason from experiments") == ("completed", None)
    assert rows("select status, count(*) from outputs group by 1") == [("ok", N)]


@pytest.mark.slow
def test_limiter_widths_are_stored_with_their_reasons() -> None:
    with serving(Endpoint(latency_s=0.3, answer=Service())) as endpoint:  # a busy machine needs as long to start calls
        endpoint.cap = limiter.FIRST_WIDTH + 1
        run(spec({"judge": connection(endpoint, max_in_flight=64, attempts=8)}, **chat(), max_concurrency=32))
    assert endpoint.refused > 0
    assert rows("select distinct connection, experiment_id = (select experiment_id from experiments) from limits") == [
        ("judge", True)
    ]
    found = rows("select reason, width, changed_at from limits order by changed_at")
    assert found[0][:2] == ("began", limiter.FIRST_WIDTH)
    assert {"began", "grown", "refused"} <= {reason for reason, _, _ in found}
    assert all(1 <= width <= 64 for _, width, _ in found)


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


def test_an_answer_that_was_cut_off_and_is_scored_is_counted() -> None:
    def answer(request: Request) -> Reply:
        is_cut = request["messages"][-1]["content"] == "1"
        return completion("half of" if is_cut else "whole", finish_reason="length" if is_cut else "stop")

    with serving(Endpoint(answer=answer)) as endpoint:
        target = {"kind": "chat", "connection": "own", "user": "{q}", "truncated": "score"}
        data = {"rows": [{"inputs": {"q": str(number)}} for number in range(3)]}
        spec = {"name": "cut", "dataset": data, "targets": [target], "connections": {"own": connection(endpoint)}}
        (identity,) = run(ExperimentSpec.model_validate(spec))
    assert one("select answered, cut_off, failed from experiment_overview") == (3, 1, 0)
    (overview,) = overviews(Store(), "experiment_id = $1", [identity])
    assert "3 of 3 answered, 1 of them cut off at the token limit" in overview_line(overview).plain


def fails_at_first(inputs: dict[str, str]) -> str:
    if int(inputs["question"].lstrip("q").split()[0]) < 10:
        raise RuntimeError("no such row")
    return inputs["question"]


def test_a_resumption_goes_on_where_only_the_first_rows_are_at_fault() -> None:
    targets = [{"kind": "python", "function": refer(fails_at_first)}]
    asked = spec({}, targets=targets, evaluators=["json_valid"], max_concurrency=1)
    assert "the first 10 answers all failed" in incomplete(asked)
    run(asked)
    assert rows("select status, count(*) from outputs group by 1 order by 1") == [("failed", 10), ("ok", N - 10)]
