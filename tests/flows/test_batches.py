"""Calls that a provider's batch interface answers: targets, judges, pairs and traces, and whatever a batch may lack."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from batch_endpoint import BatchEndpoint, Lines, as_lines, serve_batches, structured
from catalog_rows import one, rows
from click.testing import CliRunner
from endpoint import Reply, Request, completion, echo
from made_traces import traces, write

from evalflows import evaluate_traces, run
from evalflows.cli.main import cli
from evalflows.engine.open_batches import waiting_run, waiting_runs
from evalflows.flows.resume_batches import resume_batches
from evalflows.specs import IncompleteError, InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store import Store
from evalflows.store.erasing import Selection
from evalflows.store.retention import erase

pytestmark = pytest.mark.usefixtures("store_root", "without_prefect")

N = 20
USD = 1e-6 * (10 * 1.0 + 5 * 2.0)
"""What one call costs directly."""


@pytest.fixture
def endpoint() -> Iterator[BatchEndpoint]:
    with serve_batches(BatchEndpoint()) as served:
        yield served


def spec(endpoint: BatchEndpoint, batch: dict[str, Any] | None = None, **changes: Any) -> ExperimentSpec:
    connection = {
        "kind": "endpoint",
        "base_url": endpoint.base_url,
        "model": "m",
        "usd_per_million_input_tokens": 1.0,
        "usd_per_million_output_tokens": 2.0,
        "batch": {"poll_s": 0.01} | (batch or {}),
    }

    examples = [{"id": f"e{n}", "inputs": {"question": f"q{n}"}, "reference_outputs": {"a": f"a{n}"}} for n in range(N)]
    whole = {
        "name": "batched",
        "mode": "batch",
        "run_key": "k",
        "dataset": {"rows": examples},
        "connections": {"m": connection},
        "targets": [{"kind": "chat", "connection": "m", "name": "t", "user": "{question}"}],
        "chunk_retries": 0,
    }
    return ExperimentSpec.model_validate(whole | changes)


def test_a_run_in_batches_is_that_without_at_half_the_price(endpoint: BatchEndpoint) -> None:
    judges = [
        {"use": "correctness", "connection": "m"},
        {"use": "rubric", "args": {"rubric": "It is short."}, "connection": "m", "repeats": 3},
    ]
    targets = [{"kind": "chat", "connection": "m", "name": n, "user": f"{n} {{question}}"} for n in ("x", "y")]
    pairwise = {"evaluators": [{"use": "pairwise_preference", "connection": "m"}], "both_orders": True}
    asked = {"evaluators": judges, "targets": targets, "compare": pairwise}
    run(spec(endpoint, **asked))
    judged = """select e.target, s.metric, s.example_id, s.value from scores s join experiments e using (experiment_id)
                where e.run_group = (select max(run_group) from experiments) order by all"""
    preferred = "select example_id, winner from judgements where winner is not null order by all"
    batched, won, n_batches = rows(judged), rows(preferred), len(endpoint.batches)
    figures = "select count(*), count(distinct batch_id), count(latency_s), sum(cost_usd) from calls"
    n_calls, *others = one(f"{figures} where batch_id is not null")
    trials = endpoint.direct  # of the judges' parameters, before anything is submitted
    assert n_batches == 3, "of answers, of judgements, of pairs: an item makes its calls together"
    assert trials <= 2 and others == [3, 0, pytest.approx(n_calls * USD / 2)]
    assert len(batched) == 4 * N and len(won) == 2 * N and n_calls == 2 * N + 2 * N * 4 + 2 * N
    assert one("select count(latency_s) from outputs") == one("select count(latency_s) from judgements") == (0,)
    assert len(endpoint.deleted) == 2 * n_batches and not waiting_runs(Store())

    run(spec(endpoint, **asked, mode=None, run_key="direct", use_cache=False))
    assert n_calls <= endpoint.direct <= n_calls + 2 * trials and len(endpoint.batches) == n_batches
    assert rows(judged) == batched and sorted(rows(preferred)) == sorted(2 * won)


def lacking(entries: Lines) -> str:
    return as_lines(entries[4:])


def doubled(entries: Lines) -> str:
    return as_lines([*entries, *entries[:3]])


def mixed(entries: Lines) -> str:
    return as_lines([*entries, {**entries[0], "custom_id": "call-of-another"}])


def torn(entries: Lines) -> str:
    return as_lines(entries)[:-40]


def forty_percent(batch: dict[str, Any], entries: Lines) -> Lines:
    batch["status"] = "expired"
    return entries[: len(entries) * 2 // 5]


@pytest.mark.parametrize(
    ("result", "end", "said", "submitted"),
    [
        (lacking, None, r"4 calls have no answer \(it ended as completed\)", N + 4),
        (doubled, None, "3 rows for a call that already has one; not used", N),
        (mixed, None, "1 row for a call that is not in this batch; not used", N),
        (torn, None, r"1 row cannot be read; not used|1 call has no answer \(it ended as completed\)", N + 1),
        (as_lines, forty_percent, r"12 calls have no answer \(it ended as expired\)", N + 12),
    ],
)
def test_what_a_batch_lacks_is_submitted_again(
    endpoint: BatchEndpoint, capsys: pytest.CaptureFixture[str], result: Any, end: Any, said: str, submitted: int
) -> None:
    endpoint.result, endpoint.end = result, end

    def whole_from_now_on(what: str) -> None:
        if what.startswith("POST /v1/files") and endpoint.batches:
            endpoint.result, endpoint.end = as_lines, None

    endpoint.before = whole_from_now_on
    run(spec(endpoint))
    notes = [line for line in capsys.readouterr().err.splitlines() if "batch_0" in line]
    assert sorted(re.sub(r".*batch_0: ", "", note) for note in notes) == sorted(notes_in(said, notes))
    assert endpoint.submitted.total() == submitted and endpoint.direct == 0
    assert one("select count(*), count(distinct example_id) from outputs where status = 'ok'") == (N, N)
    calls = "select count(*), sum(cost_usd), count(distinct batch_id), max(attempts) from calls"
    assert one(calls) == (N, pytest.approx(N * USD / 2), len(endpoint.batches), len(endpoint.batches))


def notes_in(said: str, notes: list[str]) -> list[str]:
    """The notes, if each says one of the alternatives; in place of any other, what it says."""
    expected = said.split("|")
    assert len(notes) == len(expected)
    return [re.sub(r".*batch_0: ", "", note) for note in notes if any(re.search(one, note) for one in expected)]


@pytest.mark.parametrize("then", ["fail", "direct"])
def test_after_its_attempts_a_call_fails_or_is_made_directly(endpoint: BatchEndpoint, then: str) -> None:
    endpoint.end = forty_percent
    asked = spec(endpoint, {"attempts": 2, "then": then})
    if then == "direct":
        run(asked)
        assert endpoint.direct == 8 and one("select count(*) from outputs where status = 'ok'") == (N,)
        assert one("select sum(cost_usd), count(*) from calls") == (pytest.approx((6 + 8) * USD), N)
        return
    with pytest.raises(IncompleteError, match=r"not done: 8 of 20 answers"):
        run(asked)
    assert rows("select status, error_kind, count(*) from outputs group by all order by all") == [
        ("not_attempted", "expired", 8),
        ("ok", None, 12),
    ]
    assert one("select sum(cost_usd), count(*), sum(attempts) from calls where status = 'failed'") == (0.0, 8, 16)
    assert endpoint.submitted.total() == N + 12 and not waiting_runs(Store())


def test_unusable_answers_are_paid_and_asked_for_again(endpoint: BatchEndpoint) -> None:
    asked_before: set[str] = set()

    def answer(request: Request) -> Reply:
        text = json.dumps(request["messages"])
        if "q7" in text:
            return Reply({"error": {"message": "Unsupported parameter: 'x'"}}, 400)
        if "q3" in text and text not in asked_before:
            asked_before.add(text)
            return completion(None) if "schema" in text else Reply({"id": "x"})
        return echo(request)

    endpoint.answer = answer
    run(spec(endpoint, evaluators=["exact_match"]))
    failed = one("select error_kind, error, cost_usd from calls where status = 'failed'")
    assert failed == ("bad_request", "HTTP 400: Unsupported parameter: 'x'", 0.0)
    assert one("select attempts, status from calls where request like '%q3%'") == (2, "ok")
    assert endpoint.submitted.total() == N + 1


def test_a_budget_is_set_aside_at_submission_and_settled_by_the_answers(endpoint: BatchEndpoint) -> None:
    estimate = 1e-6 * 0.5 * (20 * 1.0 + 100 * 2.0)  # of a call with at most 100 tokens, some 60 bytes long
    target = {"kind": "chat", "connection": "m", "name": "t", "user": "{question}", "max_tokens": 100}
    run(spec(endpoint, targets=[target], budget_usd=7 * estimate))
    assert len(endpoint.batches) > 1, "more fits once it is known that calls cost less"
    batched = one("select count(*), sum(cost_usd) from calls where batch_id is not null")
    assert batched == (N, pytest.approx(N * USD / 2))

    with pytest.raises(IncompleteError, match=r"budget is spent|does not fit the budget"):
        run(spec(endpoint, targets=[target], budget_usd=1.2 * estimate, run_key="small", use_cache=False))
    spent = one(
        "select sum(cost_usd), count(*) from calls where experiment_id = (select max(experiment_id) from experiments)"
    )
    assert 0 < spent[0] <= 1.2 * estimate


def test_a_run_that_may_not_wait_is_resumed_when_its_batches_have_ended(
    endpoint: BatchEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.looks = 4
    asked = spec(endpoint, batch_wait_s=0.0)
    with pytest.raises(IncompleteError, match="waiting for 1 batch, 0 of 20 answered"):
        run(asked)
    (waiting,) = waiting_runs(Store())
    assert waiting_run(Store(), "batched") == waiting and waiting.called == "experiment 'batched'"
    unanswered = one("select count(*), sum(estimated_usd), count(cost_usd), max(error_kind) from calls")
    assert unanswered[0] == N and unanswered[1] > N * USD / 2 and unanswered[2:] == (0, "unanswered")
    shown = CliRunner().invoke(cli, ["show", "batched", "--all"], env={"COLUMNS": "200"}).output
    assert f"{N} calls wait for batches, at most {unanswered[1]:.4f} USD; 0.0000 USD already spent" in shown, shown
    with pytest.raises(InputError, match=r"calls that wait for a batch, wanted .*resume \S+ first, or delete"):
        erase(Store(), Selection(examples=["e1"]), None)
    assert resume_batches() == [] and resume_batches() == [], "it has not ended"
    assert resume_batches() == [waiting.id]
    assert one("select count(*), sum(cost_usd), min(status) from calls") == (N, pytest.approx(N * USD / 2), "ok")
    assert endpoint.submitted.total() == N and not waiting_runs(Store())
    with pytest.raises(InputError, match="'batched' does not wait for a batch, wanted one of: none"):
        waiting_run(Store(), "batched")


def test_a_call_of_two_experiments_is_paid_once_also_when_they_are_resumed(endpoint: BatchEndpoint) -> None:
    endpoint.answer = lambda request: structured(request) if "response_format" in request else completion("the same")
    targets = [{"kind": "chat", "connection": "m", "name": n, "user": f"{n} {{question}}"} for n in ("x", "y")]
    judge = {"use": "rubric", "args": {"rubric": "It is short."}, "connection": "m"}
    asked = spec(endpoint, targets=targets, evaluators=[judge], batch_wait_s=0.0)
    endpoint.looks = 2
    for _ in range(2):
        with pytest.raises(IncompleteError, match=r"longer than batch_wait_s .0 s.; `.*resume exp-\S+ continues"):
            run(asked)
    run(asked)
    assert rows("select status, count(*) from calls where batch_id is not null group by 1") == [("ok", 3 * N)]
    assert one("select sum(cost_usd) from calls where batch_id is not null") == (pytest.approx(3 * N * USD / 2),)
    assert one("select count(*), count(distinct example_id) from scores where status = 'scored'") == (2 * N, N)


@pytest.mark.parametrize("then", ["fail", "direct"])
@pytest.mark.parametrize("refusal", [(404, "Not Found"), (200, "no batch")])
def test_an_endpoint_without_batches(endpoint: BatchEndpoint, refusal: tuple[int, str], then: str) -> None:
    endpoint.refusals = [refusal] * 4
    asked = spec(endpoint, {"then": then})
    if then == "direct":
        run(asked)
        assert endpoint.direct == N and not waiting_runs(Store())
    else:
        wanted = "wanted an endpoint with batches, `mode: direct`"
        with pytest.raises(IncompleteError, match=rf"connection 'm' .*: a batch could not be submitted: .*; {wanted}"):
            run(asked)
        run(asked.model_copy(update={"mode": "direct"}))
        assert endpoint.direct == N
    assert one("select count(*), sum(cost_usd), max(batch_id) from calls") == (N, pytest.approx(N * USD), None)


def test_cancelled_batches_end_the_run_and_a_resumption_submits_the_rest(endpoint: BatchEndpoint) -> None:
    endpoint.looks = 1000

    def cancelled(what: str) -> None:
        if what.startswith("GET /v1/batches/") and endpoint.looked["batch_0"] == 2:
            (waiting,) = waiting_runs(Store())
            service = waiting.service_of(Store())(waiting.batches[0])
            endpoint.before = lambda _: None
            endpoint._ended(endpoint.batches["batch_0"] | {"status": "cancelled"}, run=5)
            assert service.line("a", "/chat/completions", {})

    endpoint.before = cancelled
    with pytest.raises(IncompleteError, match="15 of 20 answers"):
        run(spec(endpoint))
    assert rows("select status, error_kind, count(*) from outputs group by all order by all") == [
        ("not_attempted", "stopped", 15),
        ("ok", None, 5),
    ]
    endpoint.looks = 1
    run(spec(endpoint))
    assert endpoint.submitted.total() == N + 15 and one("select count(*) from outputs where status = 'ok'") == (N,)


def test_a_run_whose_batch_was_cancelled_meanwhile_submits_the_rest_when_it_is_resumed(endpoint: BatchEndpoint) -> None:
    endpoint.looks = 1000
    with pytest.raises(IncompleteError, match="waiting for 1 batch"):
        run(spec(endpoint, batch_wait_s=0.0))
    done = CliRunner().invoke(cli, ["cancel", "batched"])
    assert done.exit_code == 0 and done.output.startswith("cancelled batch_0: 0 of 20 calls were answered"), done.output
    assert "being cancelled" in CliRunner().invoke(cli, ["status"]).output
    endpoint.looks = 1
    run(spec(endpoint))
    assert one("select count(*) from outputs where status = 'ok'") == (N,) and not waiting_runs(Store())
    assert endpoint.submitted.total() == 2 * N


@pytest.mark.parametrize(
    ("refusals", "submitted"), [([(500, "busy")], N), ([(500, "busy"), (503, "busy")], N), ([(400, "no such file")], 0)]
)
def test_a_batch_that_is_refused(
    endpoint: BatchEndpoint, refusals: list[tuple[int, str]], submitted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalflows.tasks.batches._sleep", lambda *_: None)
    endpoint.refusals = refusals
    if submitted:
        run(spec(endpoint))
    else:
        with pytest.raises(IncompleteError, match=r"a batch could not be submitted: HTTP 400: no such file; wanted"):
            run(spec(endpoint))
        run(spec(endpoint))
    assert endpoint.submitted.total() == N and one("select count(*) from outputs where status = 'ok'") == (N,)


def test_user_code_cannot_swallow_a_call_that_is_put_off(endpoint: BatchEndpoint) -> None:
    run(spec(endpoint, evaluators=[{"use": "batch_judges:swallowing", "connection": "m"},
                                   {"use": "batch_judges:of_scores"},
                                   {"use": "batch_judges:blocking", "connection": "m"}]))  # fmt: skip
    assert rows("select metric, min(value), max(value), count(*) from scores group by 1 order by 1") == [
        ("blocking", 1.0, 1.0, N),
        ("of_scores", 2.0, 2.0, N),
        ("swallowing", 1.0, 1.0, N),
    ]
    assert endpoint.direct == 0 and len(endpoint.batches) == 2


def test_traces_are_judged_in_batches_with_their_composites(endpoint: BatchEndpoint) -> None:
    write(Store(), traces(N))
    judges = [{"use": f"batch_judges:{name}", "connection": "m"} for name in ("swallowing", "blocking")]
    asked = TraceEvaluationSpec.model_validate(
        {
            "name": "watched",
            "mode": "batch",
            "evaluators": judges,
            "composites": [{"name": "both", "weights": {"swallowing": 1, "blocking": 1}}],
            "connections": spec(endpoint).model_dump()["connections"],
            "settle_s": 0,
            "fetch_batch_size": 8,
            "batch_wait_s": 0.0,
        }
    )
    endpoint.looks = 3
    with pytest.raises(IncompleteError, match="waiting for 1 batch, 0 of 40 answered"):
        evaluate_traces(asked)
    assert waiting_run(Store(), "watched").called == "trace evaluation 'watched'"
    assert resume_batches() == [] and len(resume_batches()) == 1
    assert rows("select metric, min(value), max(value), count(*) from trace_scores group by 1 order by 1") == [
        (name, 1.0, 1.0, N) for name in ("blocking", "both", "swallowing")
    ]
    assert endpoint.submitted.total() == 2 * N and len(endpoint.batches) == 1 and endpoint.direct == 0
    state = (
        "select state, items_processed, scores_created, calls from source.watermarks order by recorded_at desc limit 1"
    )
    assert Store().query(state) == [("completed", N, 2 * N, 2 * N)]


def test_batches_of_anthropic(endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
    asked = spec(endpoint, batch_wait_s=0.0)
    fields = {**asked.connections["m"].model_dump(exclude_unset=True), "kind": "anthropic"}
    fields["base_url"] = endpoint.base_url.removesuffix("/v1")
    asked = ExperimentSpec.model_validate({**asked.model_dump(exclude_unset=True), "connections": {"m": fields}})
    endpoint.looks = 2
    with pytest.raises(IncompleteError, match="waiting for 1 batch, 0 of 20 answered"):
        run(asked)
    run(asked.model_copy(update={"batch_wait_s": None}))
    assert endpoint.submitted.total() == N + 4 + 1 and endpoint.direct == 0, "2 had expired, and 2 were refused"
    assert rows("select outputs ->> 'output', count(*) from outputs group by 1") == [("yes", N)]
    assert one("select count(*), sum(cost_usd), max(attempts) from calls") == (N, pytest.approx(N * USD / 2), 3)
    assert len(endpoint.deleted) == len(endpoint.batches) == 3


def test_batches_send_nothing_that_direct_calls_may_not_send(
    endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: secret-1")
    monkeypatch.setattr("evalflows.llm.client.may_receive", lambda *_: False)
    run(spec(endpoint))
    sent = {name for headers in endpoint.headers for name in headers}
    assert len(endpoint.headers) >= 6 and not sent & {"openai-organization", "x-secret", "authorization"}, sent


def test_a_key_that_an_answer_quotes_is_not_kept(endpoint: BatchEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-0123456789abcdef"
    monkeypatch.setenv("MY_KEY", key)
    endpoint.answer = lambda _: completion(f"my key is {key}")
    asked = spec(endpoint)
    fields = {**asked.connections["m"].model_dump(exclude_unset=True), "api_key_env": "MY_KEY"}
    run(ExperimentSpec.model_validate({**asked.model_dump(exclude_unset=True), "connections": {"m": fields}}))
    assert rows("select distinct outputs ->> 'output' from outputs") == [("my key is …",)]
    assert one("select count(*) from calls where response::varchar like '%0123456789abcdef%'") == (0,)


def test_files_are_within_the_limits_of_rows_and_bytes(endpoint: BatchEndpoint) -> None:
    run(spec(endpoint, {"rows": 8}))
    assert [batch["request_counts"]["total"] for batch in endpoint.batches.values()] == [8, 8, 4]
    run(spec(endpoint, {"mb": 0.001}, run_key="small", use_cache=False))
    sizes = [len(content) for content in endpoint.files.values() if b'"method"' in content]
    assert len(sizes) > 5 and max(sizes[3:]) <= 1000
