"""From a dataset to a verdict: checks, targets of every kind, composites, run-level scores, differences, artifacts."""

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving
from prefect.client.orchestration import get_client

from evalflows import aevaluate, evaluate, run
from evalflows.reports.results import results_of, sentences
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.specs.reference import refer
from evalflows.stats import mean_estimate, paired_difference
from evalflows.store import Store, connect

pytestmark = pytest.mark.usefixtures("prefect_api")

ROOT = Path(__file__).parent.parent.parent
N = 40
ROWS = [{"id": f"q{i}", "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]


def number(question: str) -> int:
    return int(question[1:])


def always(question: str) -> str:
    return question.upper()


def often(question: str) -> str:
    """Right but for every fourth question."""
    return question.upper() if number(question) % 4 else "no idea"


def seldom(question: str) -> str:
    return question.upper() if number(question) % 4 == 0 else "no idea"


def targets(**functions: Callable[..., Any]) -> list[dict[str, Any]]:
    return [{"kind": "python", "name": name, "function": refer(function)} for name, function in functions.items()]


def spec(**changes: Any) -> ExperimentSpec:
    fields: dict[str, Any] = {
        "name": "main",
        "dataset": {"rows": ROWS, "name": "rows"},
        "targets": targets(often=often, seldom=seldom),
        "evaluators": ["exact_match"],
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


def rows(query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with connect() as catalog:
        return catalog.execute(query, list(parameters)).fetchall()


def verdict(metric: str) -> tuple[Any, ...]:
    (found,) = rows(
        "select conclusion, reason, difference from results where metric = ? and baseline is not null", metric
    )
    return found


# The difference


def test_a_planted_difference_is_found_with_the_figures_that_the_statistics_give() -> None:
    run(spec())
    good, bad = ([1.0 if (i % 4 == 0) is flip else 0.0 for i in range(N)] for flip in (False, True))
    wanted = paired_difference(bad, good, binary=True)
    ((conclusion, difference, low, high, p, n, baseline),) = rows(
        """select conclusion, difference, difference_low, difference_high, p_value, n_pairs, baseline
           from results where metric = 'exact_match' and baseline is not null"""
    )
    assert (conclusion, baseline, n) == ("worse", "often", N)
    assert (difference, low, high, p) == (wanted.difference, wanted.low, wanted.high, wanted.p_value)
    mean = mean_estimate(good, binary=True)
    assert rows("select mean, ci_low, ci_high from results where metric = 'exact_match' and target = 'often'") == [
        (mean.mean, mean.low, mean.high)
    ]


def test_the_baseline_may_be_another_than_the_first() -> None:
    run(spec(baseline="seldom"))
    assert verdict("exact_match")[0] == "better"


def test_the_same_target_twice_is_not_told_apart() -> None:
    run(spec(targets=targets(one=often, two=often)))
    conclusion, reason, difference = verdict("exact_match")
    assert (conclusion, difference) == ("not_enough_evidence", 0.0)
    assert reason == f"no significant difference ({N} pairs)"


def test_of_a_measure_less_is_better() -> None:
    run(spec(targets=targets(long=lambda question: "word " * (9 + number(question) % 3), short=often)))
    assert verdict("length")[0] == "better"
    assert verdict("tokens")[0] == "not_enough_evidence"


def test_what_is_missing_may_turn_a_difference_and_then_it_decides_nothing() -> None:
    def fails_on_half(outputs: dict[str, Any], reference_outputs: dict[str, Any], example: Any) -> bool:
        if number(example.id) % 2:
            raise RuntimeError("judge is down")
        return bool(outputs["output"] == reference_outputs["answer"])

    run(spec(evaluators=[{"use": refer(fails_on_half), "name": "half"}]))
    conclusion, reason, difference = verdict("half")
    assert (conclusion, difference) == ("not_enough_evidence", 0.0)
    ((low, high, n_missing),) = rows(
        "select worst_case_low, worst_case_high, candidate_missing from verdicts where metric = 'half'"
    )
    assert (low, high, n_missing) == (-0.5, 0.5, N // 2)

    run(
        spec(
            name="turned",
            targets=targets(always=always, seldom=lambda question: "no"),
            evaluators=["exact_match", {"use": refer(fails_on_half), "name": "half"}],
        )
    )
    ((conclusion, reason),) = rows(
        "select conclusion, reason from results where metric = 'half' and experiment = 'turned-seldom'"
    )
    assert conclusion == "not_enough_evidence"
    assert (
        reason == f"{N // 2} pairs with a missing value could change the conclusion (worst-case interval -1 to +0.302)"
    )  # the ends of the intervals then


def test_examples_that_were_sampled_together_are_weighed_together() -> None:
    clustered = [row | {"cluster": f"c{i % 5}"} for i, row in enumerate(ROWS)]
    run(spec(dataset={"rows": clustered}))
    ((method, clusters),) = rows("select method, n_clusters from verdicts where metric = 'exact_match'")
    assert "cluster" in method and clusters == 5


def test_repetitions_are_averaged_within_an_example() -> None:
    calls: list[str] = []

    def every_second_time(question: str) -> str:
        calls.append(question)
        return question.upper() if calls.count(question) % 2 else "no"

    run(spec(targets=targets(target=every_second_time), repetitions=2, max_concurrency=1))
    assert rows("select n_examples, mean, method from estimates where metric = 'exact_match'")[0][:2] == (N, 0.5)


# Composites, run-level scores, measures


def test_a_composite_weighs_scaled_metrics_and_a_run_level_score_sees_all_of_them() -> None:
    def share_of_long(outputs: list[Any], item_results: list[Any]) -> dict[str, Any]:
        assert len(outputs) == N and [item.item.id for item in item_results] == [row["id"] for row in ROWS]
        assert item_results[1].evaluations["quality"].value == pytest.approx((3 * 1.0 + 0.8) / 4)
        return {"key": "long", "score": sum(len(output["output"]) > 3 for output in outputs) / N}

    run(
        spec(
            targets=targets(target=often),
            composites=[{"name": "quality", "weights": {"exact_match": 3, "length": 1}}],
            metrics={"length": {"higher_is_better": False, "range": [0, 10]}},
            summary_evaluators=[{"use": refer(share_of_long), "name": "summary"}],
        )
    )
    assert rows(
        "select value, metadata ->> '$.parts.length' from scores where metric = 'quality' and example_id = 'q1'"
    ) == [(pytest.approx(0.95), "0.8")]
    assert rows("select subject_kind, mean, scored from metric_summary where metric = 'long'") == [
        ("experiment", 0.25, 1)
    ]
    assert rows("select state, reason from experiments") == [("completed", None)]


@pytest.mark.parametrize(
    ("policy", "status", "value"), [("fail", "failed", None), ("leave_out", "scored", 1.0), ("worst", "scored", 0.5)]
)
def test_a_missing_part_does_what_the_policy_says(policy: str, status: str, value: float | None) -> None:
    def raises(outputs: dict[str, Any]) -> bool:
        raise RuntimeError("down")

    run(
        spec(
            targets=targets(target=always),
            evaluators=["exact_match", {"use": refer(raises), "name": "raises"}],
            composites=[{"name": "both", "weights": {"exact_match": 1, "raises": 1}, "missing": policy}],
        )
    )
    assert rows("select distinct status, value from scores where metric = 'both'") == [(status, value)]


def test_every_run_is_measured() -> None:
    run(spec(targets=targets(target=often)))
    measured = dict(rows("select metric, mean from metric_summary where evaluator = 'measured'"))
    assert measured["length"] == pytest.approx(sum(len(often(str(row["inputs"]["question"]))) for row in ROWS) / N)  # type: ignore[index]
    assert measured["latency"] > 0
    assert (measured["cost"], measured["tokens"]) == (None, None), "not known is not zero"


# A judge that is tried


def answers(says: Callable[[str, str], bool]) -> Callable[[Request], Reply]:
    """An endpoint that repeats a question in capitals, and judges: `says` gets the reference and the answer."""

    def answer(request: Request) -> Reply:
        text = request["messages"][-1]["content"]
        fenced = re.findall(r"\[BEGIN (\w+)\]\n(.*?)\n\[END \1\]", text, flags=re.S)
        if not fenced:
            return completion(text.upper())
        (_, reference), (_, candidate) = fenced[1:]
        return completion(json.dumps({"reasoning": "Because.", "correct": says(reference, candidate)}))

    return answer


def judged_spec(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    return spec(
        evaluators=[{"use": "correctness", "name": "judge", "connection": "mock", "controls": 10}],
        composites=[{"name": "all", "weights": {"judge": 1}}],
        connections={"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}},
        **changes,
    )


def test_a_judge_that_tells_right_from_wrong_decides() -> None:
    with serving(Endpoint(answer=answers(lambda reference, answer: reference == answer))) as endpoint:
        run(judged_spec(endpoint))
    assert rows("select passed, n_checked from checks where subject_kind = 'judge'") == [(True, 30)]
    assert verdict("judge")[:2] == ("worse", None)
    assert endpoint.calls <= 2 * N + 20


def test_nothing_rests_on_a_judge_that_prefers_one_side_whatever_is_right() -> None:
    with serving(Endpoint(answer=answers(lambda reference, answer: answer != "no idea"))) as endpoint:
        identities = run(judged_spec(endpoint))
    assert rows("select passed from checks where subject_kind = 'judge'") == [(False,)]
    conclusion, reason, difference = verdict("judge")
    assert (conclusion, difference) == ("not_enough_evidence", -0.5)
    assert reason.startswith(
        "on known-answer controls, this judge accepted 100% of 10 right answers and 100% of 10 wrong"
    )
    assert verdict("all")[1].startswith("it depends on judge: on known-answer controls")
    assert any(text.startswith("judge is inconclusive") for text in sentences(results_of(Store(), identities)))


def test_a_judge_that_is_down_judges_nothing_and_a_resume_asks_it_again() -> None:
    fair = answers(lambda reference, answer: reference == answer)
    with serving(Endpoint(answer=lambda request: error(503, "down"))) as endpoint:
        down = judged_spec(endpoint, chunk_retries=0, max_concurrency=4)  # fewer at once than open the breaker
        with pytest.raises(IncompleteError, match=r"by judge \(\d+ of the last \d+ failed, .*: HTTP 503: down\)"):
            run(down)
        assert verdict("judge")[0] == "not_enough_evidence"
        assert rows("select count(*), count(value) from scores where metric = 'judge'") == [(2 * N, 0)]
        ((group,),) = rows("select distinct run_group from experiments")
        endpoint.answer = fair
        run(down, resume=group)
    assert verdict("judge")[:2] == ("worse", None)
    assert rows("select status, count(*) from scores where metric = 'judge' group by all") == [("scored", 2 * N)]


def test_a_judge_that_is_down_is_said_also_where_it_does_not_apply_to_every_example() -> None:
    partly = [*ROWS[:5], {"id": "q99", "inputs": {"question": "q99"}}]
    with serving(Endpoint(answer=lambda request: error(401, "no such key"))) as endpoint:
        refused = judged_spec(endpoint, dataset={"rows": partly})
        with pytest.raises(IncompleteError, match=r"judge judged none of 5 answers: HTTP 401: no such key"):
            run(refused)
    ((message,),) = rows("select message from checks where subject_kind = 'judge'")
    assert message.startswith("this judge could not be validated") and message.endswith(
        "failed: HTTP 401: no such key)"
    )


def test_no_interval_leaves_the_bounds_of_its_metric() -> None:
    few = ROWS[1:6]
    run(spec(dataset={"rows": few}, targets=targets(often=often, seldom=seldom), repetitions=3))
    outside = rows(
        """select metric, ci_low, ci_high, difference_low, difference_high from results
           where (metric = 'exact_match' and (ci_low < 0 or ci_high > 1 or abs(difference_low) > 1))
              or (metric in ('latency', 'length') and ci_low < 0)"""
    )
    assert outside == []
    assert rows("select ci_high from results where metric = 'exact_match' and target = 'often'") == [(1.0,)]


def test_a_wrong_key_is_said_and_no_attempt_repeated() -> None:
    refusal = r"none of 40 answered: HTTP 401: Incorrect API key provided"
    endpoint = Endpoint(answer=lambda request: error(401, "Incorrect API key provided"))
    with serving(endpoint), pytest.raises(IncompleteError, match=refusal):
        run(
            spec(
                targets=[{"kind": "chat", "connection": "mock", "user": "{question}"}],
                connections={"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
            )
        )
    assert endpoint.calls == N


def test_an_endpoint_that_is_down_is_said() -> None:
    with serving(Endpoint()) as endpoint:
        url = endpoint.base_url
    connection = {"kind": "endpoint", "base_url": url, "model": "m", "attempts": 1}
    with pytest.raises(IncompleteError, match=r"none of 40 answered: Connect"):
        run(
            spec(
                targets=[{"kind": "chat", "connection": "gone", "user": "{question}"}],
                connections={"gone": connection},
                chunk_retries=0,
            )
        )
    assert rows("select distinct error_kind from outputs") == [("connection",)]


# Checks of the data


def test_a_failed_check_stops_the_run_before_anything_is_paid() -> None:
    topics = [row | {"metadata": {"topic": "login" if i else "weather"}} for i, row in enumerate(ROWS)]
    expectation = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "metadata.topic", "value_set": ["login", "billing"]},
    }
    with serving(Endpoint()) as endpoint:
        wanted = r"dataset 'support': wanted metadata.topic: .* in set .*; 1 of 40 fail, such as 'weather'"
        chat = {"kind": "chat", "connection": "mock", "user": "{question}"}
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        dataset = {"rows": topics, "name": "support", "expectations": [expectation]}
        with pytest.raises(InputError, match=wanted):
            run(spec(dataset=dataset, targets=[chat], connections=connections))
        assert endpoint.calls == 0
        assert rows("select passed, n_unexpected from checks where column_name = 'metadata.topic'") == [(False, 1)]
        assert rows("select count(*) from experiments") == [(0,)]
        dataset["expectations"] = [expectation | {"severity": "warning"}]
        run(spec(dataset=dataset, targets=[chat], connections=connections))
        assert endpoint.calls == N


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ({"type": "expect_nonsense"}, "expectation 'expect_nonsense': expect_nonsense not found"),
        (
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "inputs.nowhere"}},
            "could not be checked: .*nowhere",
        ),
        ({"type": "expect_column_values_to_be_unique", "kwargs": {}}, "column field required"),
    ],
)
def test_an_expectation_that_cannot_be_checked_has_not_passed(expectation: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(spec(dataset={"rows": ROWS, "expectations": [expectation]}))
    assert rows("select count(*) from experiments") == [(0,)]


def test_a_snapshot_that_another_program_wrote_is_checked_too() -> None:
    from dataclasses import replace

    from evalflows.store.records import SnapshotRow
    from evalflows.store.snapshots import to_examples

    store, examples = Store(), to_examples(enumerate(ROWS, start=1), "rows")
    spoilt = [replace(row, snapshot_id="snap-spoilt", reference_outputs="{not json") for row in examples]
    store.publish("examples", "snap-spoilt", spoilt)
    store.publish("snapshots", "snap-spoilt", [SnapshotRow(snapshot_id="snap-spoilt", n_examples=N, splits="{}")])
    with pytest.raises(InputError, match=r"wanted reference_outputs: column values to be json parseable; 40 of 40"):
        run(spec(dataset={"snapshot": "snap-spoilt"}))


def test_blank_and_repeated_inputs_are_warnings() -> None:
    odd = [{"inputs": {"question": "q1", "context": ""}}, {"inputs": {"question": "q1", "context": ""}}]
    run(spec(dataset={"rows": odd}, evaluators=[{"use": "length_between", "args": {"least": 1}}]))
    failed = rows("select column_name, severity from checks where not passed order by 1")
    assert failed == [("inputs", "warning"), ("inputs.context", "warning")]


def test_splits_and_a_sample_are_drawn_once_and_for_all() -> None:
    halves = [row | {"split": "test" if i % 2 else "dev"} for i, row in enumerate(ROWS)]
    drawn = {"rows": halves, "name": "halves", "splits": ["test"], "sample": 7, "seed": 3}
    first, second = (run(spec(dataset=drawn, targets=targets(target=always)))[0] for _ in range(2))
    seen = [rows("select example_id from outputs where experiment_id = ? order by 1", one) for one in (first, second)]
    assert seen[0] == seen[1] and len(seen[0]) == 7
    assert {number(identity) % 2 for (identity,) in seen[0]} == {1}
    assert rows("select n_examples from datasets where name = 'halves'") == [(N,)], "the name stands for the whole"


# Targets


def test_an_application_behind_http_is_asked() -> None:
    def application(request: Request) -> Reply:
        return Reply({"choices": [{"text": request["ask"]["it"].upper()}], "asked": request})

    with serving(Endpoint(answer=application)) as endpoint:
        body = {"ask": {"it": "{question}"}, "user": "u"}
        http = {"kind": "http", "url": endpoint.base_url, "body": body, "answer": "choices.0.text"}
        run(spec(targets=[http]))
    assert endpoint.calls == N
    assert rows("select mean from metric_summary where metric = 'exact_match'") == [(1.0,)]
    assert rows("select min(latency_s) > 0, max(attempts) from outputs") == [(True, 1)]


def test_another_experiments_answers_are_judged_without_calling_anyone() -> None:
    (first,) = run(spec(name="first", targets=targets(target=often), repetitions=2, evaluators=[]))
    (second,) = run(spec(name="second", targets=[{"kind": "recorded", "experiment": "first"}], repetitions=2))
    assert rows("select mean, scored from metric_summary where metric = 'exact_match'") == [(0.75, 2 * N)]
    pairs = rows(
        """select count(*), bool_and(a.run_id = b.reused_from and a.outputs = b.outputs and a.latency_s = b.latency_s)
           from outputs b join outputs a on a.run_id = b.reused_from where b.experiment_id = ?""",
        second,
    )
    assert pairs == [(2 * N, True)]
    assert rows("select spec ->> '$.targets[0].experiment' from experiments where experiment_id = ?", second) == [
        (first,)
    ]


def test_answers_in_a_column_of_the_dataset_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(
        "question,truth,ours,theirs\n" + "\n".join(f"q{i},Q{i},Q{i},{'no' if i % 2 else f'Q{i}'}" for i in range(N))
    )
    columns = {"inputs": "question", "reference_outputs": {"answer": "truth"}}
    both = [{"kind": "recorded", "name": name, "column": name} for name in ("ours", "theirs")]
    run(spec(dataset={"path": str(path), "columns": columns}, targets=both))
    assert verdict("exact_match") == ("worse", None, -0.5)
    assert rows("select name from datasets") == [("answers",)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"targets": [{"kind": "recorded", "column": "nothing"}]},
            r"target 'target': .* has no 'nothing'; no answer for any of 40 examples",
        ),
        ({"targets": [{"kind": "recorded", "experiment": "none"}]}, r"experiment 'none': not in .*, which is empty"),
        (
            {"targets": [{"kind": "http", "url": "http://127.0.0.1:1", "body": {"q": "{nothing}"}}]},
            r"target 'target': body asks for \{nothing\}, example 'q0' has question",
        ),
        (
            {"targets": [{"kind": "http", "url": "http://127.0.0.1:1", "headers": {"X-Key": "${EVALFLOWS_NOT_SET}"}}]},
            "target 'target': headers: X-Key: the environment variable EVALFLOWS_NOT_SET is not set",
        ),
        ({"targets": [{"kind": "chat", "connection": "local", "messages": "turns"}]}, "messages are read from 'turns'"),
        (
            {"composites": [{"name": "c", "weights": {"exact_mach": 1}}]},
            "composite 'c': no evaluator gives 'exact_mach'",
        ),
        ({"composites": [{"name": "c", "weights": {"latency": 1}}]}, "composite 'c': latency has no bounds"),
        ({"summary_evaluators": ["keyword_safety"]}, "evaluator 'keyword_safety': asks for 'blocked'"),
        ({"evaluators": [{"use": "exact_match", "controls": 5}]}, "evaluator 'exact_match': controls need a model"),
        ({"dataset": {"rows": ROWS, "splits": ["none"]}}, "dataset: splits: got"),
        ({"dataset": {"path": "${EVALFLOWS_NOT_SET}/x.csv"}}, "EVALFLOWS_NOT_SET is not set"),
        ({"dataset": {"path": "rows.txt"}}, "rows.txt: got .txt, wanted one of .jsonl"),
        ({"dataset": {"function": "judges:upper"}}, "function 'judges:upper': TypeError"),
        ({"dataset": {"rows": ROWS, "expectations": "no-suite.json"}}, "no-suite.json: cannot be read"),
    ],
)
def test_bad_input_is_told_before_anything_is_written(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(spec(**changes))
    assert "\n" not in str(caught.value)
    assert rows("select count(*) from snapshots") == [(0,)]


# What is shown


def artifacts(key: str) -> list[Any]:
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client._client.post(
            "/artifacts/filter",
            json={
                "artifacts": ArtifactFilter(key=ArtifactFilterKey(any_=[key])).model_dump(mode="json"),
                "sort": "CREATED_DESC",
            },
        )
    return list(found.json())


def test_a_run_leaves_a_page_of_results_its_checks_and_how_far_it_came() -> None:
    identities = run(spec(name="shown"))
    page = artifacts("result")[0]["data"]
    assert "- seldom against often: worse in exact_match -0.500" in page
    assert re.search(
        r"\| seldom \| exact_match \| 0.250 \| \[0.142, 0.402\] \| -0.500 \[.*?\] \| [<0.]+\d+ \| [<0.]+\d+ \| worse "
        r"\| 0.0000 \| 0 \| 40 \|",
        page,
    )
    assert all(identity in page for identity in identities)
    assert "example_id: column values to be unique" in artifacts("dataset-checks")[0]["data"]
    assert artifacts("progress")[0]["data"] == 100.0


def test_whoever_watches_is_told_how_far_the_run_is() -> None:
    seen: list[Any] = []
    run(spec(), watch=seen.append)
    assert (seen[-1].answers, seen[-1].judgements, seen[-1].percent) == (2 * N, 2 * N, 100.0)


def test_evaluate_in_a_program_with_an_event_loop() -> None:
    async def target(question: str) -> str:
        await asyncio.sleep(0)
        return question.upper()

    def best(outputs: list[Any]) -> float:
        return float(len(outputs))

    async def program() -> Any:
        other = asyncio.create_task(asyncio.sleep(0.01, "the loop goes on"))
        result = await aevaluate(target, ROWS, ["exact_match"], summary_evaluators=[best], num_repetitions=2)
        return result, await other

    result, said = asyncio.run(program())
    assert said == "the loop goes on"
    assert result.scores("exact_match") == [1.0] * (2 * N)
    assert rows("select mean from metric_summary where subject_kind = 'experiment'") == [(2.0 * N,)]


def test_a_dataset_may_be_a_function_a_file_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(ROWS))
    first = evaluate(always, path, ["exact_match"])
    second = evaluate(always, "table", ["exact_match"])
    assert first.scores("exact_match") == second.scores("exact_match") == [1.0] * N


PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data")) / "vicuna80"


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published answers are not there (EVALFLOWS_PUBLISHED_DATA)")
def test_published_answers_are_judged_by_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    from evalflows.specs import load_experiment

    monkeypatch.setenv("EVALFLOWS_PUBLISHED_DATA", str(PUBLISHED.parent))
    identities = run(load_experiment(ROOT / "examples" / "vicuna80.yaml"))
    found = {(one.target, one.metric): one for one in results_of(Store(), identities)}
    assert all(
        one.missing == 0 and one.scored == 80
        for one in found.values()
        if one.metric not in ("cost", "tokens", "latency")
    )
    assert found["vicuna-13b", "structured"].conclusion == "better"
    assert found["bard", "no_disclaimer"].conclusion == "not_enough_evidence"
