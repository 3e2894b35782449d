"""What a run does when what it asks goes down, refuses its key, or costs more than it may spend; and how it goes on."""

import threading
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows import run
from evalflows.llm import attempts, limiter
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.store import Store, connect

pytestmark = pytest.mark.usefixtures("prefect_api")

N = 100
IN_FLIGHT = 4
WORKERS = 16
"""Items under way at once, of which some wait for one of the IN_FLIGHT places."""
WINDOW = 20
ROWS = [{"id": f"q{i}", "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]
PRICES = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 10.0}
COST = (10 * 1.0 + 5 * 10.0) / 1e6
"""USD that an answer of the endpoint costs."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(limiter, "FIRST_HOLD_S", 0.01)


class Service:
    """Answers, under the name of the model that was asked, until it breaks; mended, it answers again."""

    def __init__(self, *, breaks_after: int | None = None, fault: Reply | None = None) -> None:
        self.breaks_after, self.fault = breaks_after, fault or error(500, "down")
        self.asked = 0
        self._lock = threading.Lock()

    def mend(self) -> None:
        self.breaks_after = None

    def __call__(self, request: Request) -> Reply:
        with self._lock:
            self.asked += 1
            if self.breaks_after is not None and self.asked > self.breaks_after:
                return self.fault
        reply = completion("CORRECT")
        return Reply(reply.body | {"model": f"{request['model']}-1"})


def connection(endpoint: Endpoint, **changes: Any) -> dict[str, Any]:
    fields = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": IN_FLIGHT}
    return fields | {"attempts": 1} | changes


def spec(connections: dict[str, Any], **changes: Any) -> ExperimentSpec:
    """A target that calls nobody, and a judge that does."""
    fields: dict[str, Any] = {
        "name": "standing",
        "run_key": "k",
        "dataset": {"rows": ROWS},
        "targets": [{"kind": "python", "function": "judges:upper"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "judge"}],
        "connections": connections,
        "breaker_window": WINDOW,
        "breaker_pause_s": 600.0,
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


def chat(**changes: Any) -> dict[str, Any]:
    """Changes to the spec by which the target asks the service, and a rule judges."""
    target = {"kind": "chat", "connection": "judge", "user": "{question}"}
    return {"targets": [target | changes], "evaluators": ["contains"]}


def rows(query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with connect() as catalog:
        return catalog.execute(query, list(parameters)).fetchall()


def one(query: str, *parameters: object) -> tuple[Any, ...]:
    (row,) = rows(query, *parameters)
    return row


def incomplete(asked: ExperimentSpec, resume: str | None = None) -> str:
    """What is said of a run that does not come to its end, which stands in the experiment's row too."""
    with pytest.raises(IncompleteError) as caught:
        run(asked, resume)
    state, reason, name, identity = one("select state, reason, name, experiment_id from experiments")
    assert (state, str(caught.value)) == ("incomplete", f"experiment {name!r} ({identity}): {reason}")
    assert "\n" not in reason
    return str(reason)


def complete(asked: ExperimentSpec, resume: str | None = None) -> None:
    (identity,) = run(asked, resume)
    assert one("select state, reason from experiments") == ("completed", None)
    assert all(Store().is_sealed(table, identity) for table in ("outputs", "scores", "calls", "experiments"))


# A judge that is down


@pytest.mark.parametrize("chunk_size", [N, N // 10])
def test_a_judge_that_goes_down_half_way_is_left_alone_and_a_resume_pays_only_for_what_lacks(chunk_size: int) -> None:
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


def test_where_a_judge_is_down_its_fallback_judges() -> None:
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


def test_a_fallback_that_needs_no_model_judges_too() -> None:
    judge = {"use": "judges:says_correct", "connection": "judge", "fallback": {"use": "contains"}}
    with serving(Endpoint(answer=Service(breaks_after=0))) as endpoint:
        complete(spec({"judge": connection(endpoint)}, evaluators=[judge]))
    assert endpoint.calls <= WINDOW // 2 + WORKERS
    assert rows(
        """select metric, status, decided_by, judge_model, value, count(*) from scores
           where evaluator = 'says_correct' group by all"""
    ) == [("says_correct", "scored", "fallback contains", None, 1.0, N)]


def test_where_the_fallback_is_down_too_both_are_told() -> None:
    judge = {"use": "judges:says_correct", "connection": "judge"}
    down = Service(breaks_after=0)
    with serving(Endpoint(answer=down)) as endpoint, serving(Endpoint(answer=Service(breaks_after=0))) as other:
        both = {"judge": connection(endpoint), "spare": connection(other)}
        fallback = {"fallback": {"use": "judges:says_correct", "connection": "spare"}}
        reason = incomplete(spec(both, evaluators=[judge | fallback]))
        assert "fallback judges:says_correct also failed: " in reason
        assert max(endpoint.calls, other.calls) <= WINDOW // 2 + WORKERS
    assert one("select count(value) from scores where evaluator = 'says_correct'") == (0,)


def test_a_breaker_that_finds_a_judge_up_again_lets_the_rest_through_within_the_run() -> None:
    """The chunk is run again after a pause; one judgement tries it, and then come the others."""
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


def test_a_target_that_is_down_from_the_start_is_not_tried_to_the_end() -> None:
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


# A budget


def test_no_more_calls_than_allowed_and_more_where_more_are_allowed() -> None:
    both = chat() | {"evaluators": ["contains", {"use": "judges:says_correct", "connection": "judge"}]}
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint)}
        reason = incomplete(spec(connections, **both, max_calls=30))
        assert endpoint.calls == 30
        assert "(the budget is spent (30 of 30 calls))" in reason
        statuses = rows(
            """select status, error_kind, count(*) from
               (from outputs select status, error_kind union all by name
                from scores select status, error_kind where evaluator = 'says_correct')
               where error_kind is distinct from 'no_output' group by all order by all"""
        )
        assert {(status, kind) for status, kind, _ in statuses} == {("not_attempted", "over_budget"), ("ok", None)} | (
            {("scored", None)} if len(statuses) == 3 else set()
        )
        assert incomplete(spec(connections, **both, max_calls=30)) == reason, "as it was, with nothing paid"
        assert endpoint.calls == 30
        incomplete(spec(connections, **both, max_calls=N + 7))
        assert endpoint.calls == N + 7
        complete(spec(connections, **both, max_calls=2 * N))
    assert endpoint.calls == 2 * N and endpoint.repeated() == 0
    assert one("select calls, max_calls from experiments") == (2 * N, 2 * N)


def test_the_experiments_of_one_run_share_what_it_may_spend() -> None:
    two = [{"kind": "chat", "connection": "judge", "user": f"{name} {{question}}", "name": name} for name in "ab"]
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        asked = spec({"judge": connection(endpoint)}, targets=two, evaluators=["contains"], max_calls=N + 10)
        with pytest.raises(IncompleteError, match=f"the budget is spent .{N + 10} of {N + 10} calls"):
            run(asked)
    assert endpoint.calls == N + 10
    assert one("select sum(calls) from experiments") == (N + 10,)


def test_no_more_money_than_allowed() -> None:
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint, **PRICES)}
        asked = chat(max_tokens=5)
        reason = incomplete(spec(connections, **asked, budget_usd=20.5 * COST))
        spent, calls = one("select cost_usd, calls from experiments")
        assert 10 <= calls == endpoint.calls <= 20
        assert spent == pytest.approx(calls * COST) and spent <= 20.5 * COST
        assert f"(the budget is spent ({spent:.4f} of {20.5 * COST:g} USD))" in reason
        assert rows("select error_kind, count(*) from outputs where status <> 'ok' group by 1") == [
            ("over_budget", N - calls)
        ]
        complete(spec(connections, **asked, budget_usd=(N + 5) * COST))
    assert endpoint.calls == N
    assert one("select cost_usd, budget_usd from experiments") == (
        pytest.approx(N * COST),
        pytest.approx((N + 5) * COST),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        chat(),
        chat(model="other"),
        {"evaluators": [{"use": "contains", "fallback": {"use": "judges:says_correct", "connection": "judge"}}]},
        {"evaluators": [{"use": "semantic_similarity", "connection": "judge"}]},
    ],
    ids=["a judge", "a target", "a target's own model", "a fallback", "an embedding"],
)
def test_a_budget_of_money_that_cannot_hold_is_refused_before_anything_is_written_or_paid(
    changes: dict[str, Any], store_root: Path
) -> None:
    with serving(Endpoint(answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint, embedding_model="e")}
        with pytest.raises(InputError, match="budget_usd cannot be enforced without the price of") as caught:
            run(spec(connections, **changes, budget_usd=1.0))
        assert endpoint.calls == 0 and "\n" not in str(caught.value)
    assert {path.name for path in store_root.rglob("*") if path.is_file()} <= {"_.parquet", "evalflows.json"}


def test_a_budget_of_money_without_prices_holds_by_its_calls() -> None:
    with serving(Endpoint(answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint)}
        complete(spec(connections, budget_usd=1.0, max_calls=N))
        assert endpoint.calls == N
    assert one("select calls, cost_usd from experiments") == (N, None)


# A key


def test_after_a_key_was_refused_exactly_those_rows_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is refused for three of the questions: too few to say that all is down."""
    refused = {"q3", "q30", "q77"}
    wrong = True

    def answer(request: Request) -> Reply:
        question = request["messages"][-1]["content"]
        return error(401, "Incorrect API key provided") if wrong and question in refused else completion("x")

    monkeypatch.setenv("STANDING_KEY", "first-key")
    with serving(Endpoint(answer=answer)) as endpoint:
        asked = spec({"judge": connection(endpoint, api_key_env="STANDING_KEY")}, **chat(), run_key=None)
        run(asked)
        assert endpoint.calls == N
        wanted = [("failed", "authentication", 1, 3), ("ok", None, 1, N - 3)]
        assert rows("select status, error_kind, attempts, count(*) from outputs group by all order by 1") == wanted
        (group,) = one("select run_group from experiments")
        wrong = False
        monkeypatch.setenv("STANDING_KEY", "second-key")
        complete(asked, resume=group)
    again = [request["messages"][-1]["content"] for request in endpoint.requests[N:]]
    assert {*again} == refused and len(again) == 3
    assert endpoint.keys[N:] == ["bearer second-key"] * 3
    assert rows("select status, count(*) from outputs group by 1") == [("ok", N)]
    assert rows("select status, count(*) from scores where evaluator = 'contains' group by 1") == [("scored", N)]


def test_a_key_that_is_revoked_in_the_middle_stops_the_run_and_a_right_one_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(breaks_after=N // 2, fault=error(401, "Incorrect API key provided"))
    monkeypatch.setenv("STANDING_KEY", "first-key")
    with serving(Endpoint(latency_s=0.002, answer=service)) as endpoint:
        asked = spec({"judge": connection(endpoint, api_key_env="STANDING_KEY", attempts=4)}, **chat(), run_key=None)
        reason = incomplete(asked)
        assert "failed, most recently with: HTTP 401: Incorrect API key provided" in reason
        calls = endpoint.calls
        assert calls <= N // 2 + WINDOW // 2 + 1 + WORKERS
        service.mend()
        (group,) = one("select run_group from experiments")
        complete(asked, resume=group)
    assert endpoint.calls == calls + N - N // 2
    assert rows("select status, count(*) from outputs group by 1") == [("ok", N)]


# How wide it was


def test_how_wide_the_limiter_was_is_kept_with_the_reasons() -> None:
    with serving(Endpoint(latency_s=0.01, answer=Service())) as endpoint:
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


def test_where_nobody_is_called_there_is_no_limiter() -> None:
    run(spec({}, evaluators=["contains"]))
    assert rows("select count(*) from limits") == [(0,)]


# Vectors


def by_text(request: Request) -> Reply:
    """A vector of the letters of a text, as an endpoint of embeddings gives it."""
    vector = [float(request["input"].count(letter)) for letter in "Qx0123456789"]
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    return Reply({"data": [{"index": 0, "embedding": vector}], "model": "embed-1", "usage": usage})


def test_answers_are_compared_by_an_endpoints_vectors() -> None:
    similar = {"use": "semantic_similarity", "connection": "judge"}
    twice = [row | {"outputs": {"answer": f"Q{i} x"} if i % 2 else row["outputs"]} for i, row in enumerate(ROWS)]
    with serving(Endpoint(answer=by_text)) as endpoint:
        connections = {"judge": connection(endpoint, embedding_model="e", **PRICES)}
        complete(spec(connections, evaluators=[similar], dataset={"rows": twice}, budget_usd=1.0))
        assert endpoint.calls == N + N // 2 and endpoint.repeated() == 0, "each text once"
    found = dict(rows("select example_id, value from scores where metric = 'semantic_similarity'"))
    assert all(found[f"q{i}"] == pytest.approx(1.0) for i in range(0, N, 2))
    assert found["q1"] == pytest.approx((2 / 3) ** 0.5) and all(0 < value < 1 for i, value in found.items() if odd(i))
    assert one(
        """select any_value(judge_model), count(distinct judge_model), sum(calls), sum(tokens_out)
           from scores where metric = 'semantic_similarity'"""
    ) == ("embed-1", 1, N + N // 2, None)
    assert one("select cost_usd, calls from experiments") == (pytest.approx(1.5 * N * 5e-6), N + N // 2)
    assert rows("select distinct kind, evaluator from calls") == [("embedding", "semantic_similarity")]


def odd(example_id: str) -> bool:
    return int(example_id[1:]) % 2 == 1


def test_vectors_that_do_not_come_are_judgements_that_lack() -> None:
    broken = True

    def answer(request: Request) -> Reply:
        return error(500, "down") if broken else by_text(request)

    similar = {"use": "semantic_similarity", "connection": "judge"}
    with serving(Endpoint(answer=answer)) as endpoint:
        asked = spec({"judge": connection(endpoint, embedding_model="e")}, evaluators=[similar])
        assert "by semantic_similarity" in incomplete(asked)
        assert endpoint.calls <= 2 * (WINDOW // 2 + WORKERS)
        broken = False
        complete(asked)
    assert rows(
        "select status, round(value, 9), count(*) from scores where metric = 'semantic_similarity' group by all"
    ) == [("scored", 1.0, N)]
