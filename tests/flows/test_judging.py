"""How a run is judged: by evaluators that misbehave, by tiers, by a sample, by turns, by score configs."""

import json
from typing import Any

import pytest
from endpoint import Endpoint, completion, serving
from user_places import without_places

from evalflows import evaluate, run
from evalflows.specs import ExperimentSpec, InputError
from evalflows.store import connect

pytestmark = pytest.mark.usefixtures("prefect_api")

ROWS = [
    {
        "id": f"e{i}",
        "inputs": {"question": f"q{i}"},
        "reference_outputs": {"answer": f"Q{i}"},
        "metadata": {"risk": "high" if i < 2 else "low"},
    }
    for i in range(6)
]


def judged(*evaluators: Any, **changes: Any) -> str:
    """Six questions, answered by their own words in capitals, judged; the experiment's id."""
    fields: dict[str, Any] = {
        "name": "judging",
        "dataset": {"rows": ROWS},
        "targets": [{"kind": "recorded", "column": "reference_outputs"}],
        "evaluators": list(evaluators),
        "chunk_retry_delay_s": 0.05,
    }
    return run(ExperimentSpec.model_validate(fields | changes))[0]


def rows(query: str) -> list[tuple[Any, ...]]:
    with connect() as catalog:
        return catalog.execute(query).fetchall()


@pytest.mark.slow
def test_evaluators_that_misbehave_have_a_row_with_an_error_each_and_harm_no_other() -> None:
    bad = ["raises", "nan", "too_high", "writes"]
    judged(*[f"odd_evaluators:{name}" for name in bad], "exact_match", metrics={"too_high": {"range": [0, 1]}})
    found = rows("select metric, status, value, any_value(error_kind), min(error), count(*) from scores group by all")
    assert {row[0]: (*row[1:4], row[4] and without_places(row[4]), row[5]) for row in found} == {
        "raises": ("failed", None, "raised", "RuntimeError: cannot judge Q0", 6),
        "nan": ("failed", None, "bad_return", "ValueError: returned nan, wanted a finite number, or None if the "
                "evaluator does not apply", 6),
        "too_high": ("failed", None, "bad_return", "ValueError: too_high: got 1.7, wanted 0 to 1", 6),
        "writes": ("scored", 1.0, None, None, 6),
        "exact_match": ("scored", 1.0, None, None, 6),
    }  # fmt: skip
    assert rows("select outputs->>'answer' from outputs order by example_id") == [(f"Q{i}",) for i in range(6)]
    assert rows("select inputs->>'question' from examples order by example_id") == [(f"q{i}",) for i in range(6)]


@pytest.mark.slow
def test_an_evaluator_that_hangs_is_ended_and_the_run_goes_on() -> None:
    names = ["sleeps", "backtracks", "waits"]
    judged(*[{"use": f"odd_evaluators:{name}", "timeout_s": 1.0} for name in names], "exact_match")
    n_missing = (
        "select metric, example_id, error_kind, error, status from scores where status <> 'scored' order by metric"
    )
    error = "took longer than 1 s and was stopped"
    assert rows(n_missing) == [(name, "e1", "too_slow", error, "failed") for name in sorted(names)]
    assert rows("select count(*) from scores where status = 'scored' and value = 1") == [(3 * 5 + 6,)]


@pytest.mark.slow
def test_what_a_plain_function_with_a_time_limit_asks_a_model_is_paid_and_kept_once() -> None:
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        spec = {"use": "odd_evaluators:asks", "timeout_s": 5, "connection": "mock"}
        judged(spec, connections=connections)
    assert endpoint.calls == 6
    found = rows("select sum(calls), sum(tokens_in), min(value), any_value(judge_model) from scores")
    assert found == [(6, 60, 1, "mock-1")]


TIERS = {
    "name": "right",
    "use": "cascade",
    "tiers": [
        {"use": "odd_evaluators:third", "name": "known"},
        {"use": "contains", "args": {"any_of": ["Q2", "Q3"]}, "decides": [True]},
        {"use": "judges:says_correct", "connection": "mock", "name": "judge"},
    ],
}


def test_each_tier_judges_what_those_before_it_left_open() -> None:
    with serving(Endpoint(answer=lambda request: completion("CORRECT"))) as endpoint:
        judged(TIERS, connections={"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}})
    assert endpoint.calls == 2, "the judge is asked only for what no rule has decided"
    found = rows("select example_id, metric, value, decided_by, calls, evaluator from scores order by example_id")
    assert found == [
        ("e0", "right", 1.0, "known", 0, "right"),
        ("e1", "right", 0.0, "known", 0, "right"),
        ("e2", "right", 1.0, "contains", 0, "right"),
        ("e3", "right", 1.0, "contains", 0, "right"),
        ("e4", "right", 1.0, "judge", 1, "right"),
        ("e5", "right", 1.0, "judge", 1, "right"),
    ]


def test_a_tier_that_fails_is_a_row_with_its_error_and_not_left_to_the_next() -> None:
    judged({"name": "right", "use": "cascade", "tiers": ["odd_evaluators:raises", "exact_match"]})
    status, error, decided_by = rows("select status, error, decided_by from scores order by example_id limit 1")[0]
    assert (status, without_places(error), decided_by) == ("failed", "raises: RuntimeError: cannot judge Q0", None)


def test_a_sample_is_drawn_alike_for_every_evaluator_and_says_its_rate() -> None:
    judged({"use": "exact_match", "sample_rate": 0.5}, {"use": "contains", "sample_rate": 0.33, "name": "few"})
    found = rows("select metric, status, sampling_rate, list(example_id order by example_id) from scores group by all")
    drawn = {(metric, status): examples for metric, status, _, examples in found}
    assert {metric: rate for metric, _, rate, _ in found} == {"exact_match": 0.5, "few": 2 / 6}
    assert {*drawn["few", "scored"]} < {*drawn["exact_match", "scored"]}
    assert len(drawn["exact_match", "sampled_out"]) == 3
    summary = rows("select metric, mean, scored, sampled_out, missing from results where metric = 'few'")
    assert summary == [("few", 1.0, 2, 4, 0)]


def test_where_some_are_drawn_more_often_the_mean_is_still_that_of_all() -> None:
    """All of the 2 of high risk, of which 1 is right, and 1 in 4 of the others, all right: (1 + 4) / 6."""
    by_risk = {"sample_by": "metadata.risk", "sample_rates": {"high": 1.0}, "sample_rate": 0.25}
    judged({"use": "odd_evaluators:harm", **by_risk})
    found = rows("select status, sampling_rate, count(*), sum(value) from scores group by all order by all")
    assert found == [("sampled_out", 0.25, 3, None), ("scored", 0.25, 1, 0.0), ("scored", 1.0, 2, 1.0)]
    ((mean, scored),) = rows("select mean, scored from results where metric = 'harm'")
    assert (mean, scored) == (pytest.approx(1 / 6), 3)
    ((estimate, method),) = rows("select mean, method from estimates where metric = 'harm'")
    assert (estimate, method) == (pytest.approx(1 / 6), "skew-corrected t, weighted by inverse sampling probability")


@pytest.mark.slow
def test_a_composite_of_a_sampled_metric_is_that_of_the_sample() -> None:
    composite = {"name": "whole", "weights": ["exact_match", "contains"]}
    judged({"use": "exact_match", "sample_rate": 0.5}, "contains", composites=[composite])
    found = rows("select status, sampling_rate, count(*) from scores where metric = 'whole' group by all order by all")
    assert found == [("sampled_out", 0.5, 3), ("scored", 0.5, 3)]


def test_a_composite_of_samples_that_are_drawn_in_different_ways_is_refused() -> None:
    composite = {"name": "whole", "weights": ["exact_match", "contains"]}
    evaluators = [{"use": "exact_match", "sample_rate": 0.5}, {"use": "contains", "sample_rate": 0.5, "sample_seed": 1}]
    with pytest.raises(InputError, match="the samples of exact_match and contains are drawn in different ways"):
        judged(*evaluators, composites=[composite])


@pytest.mark.slow
def test_scores_of_turns_are_rows_beside_that_of_the_run() -> None:
    judged("odd_evaluators:turns")
    found = rows("select turn, avg(value), any_value(label), count(*) from scores group by turn order by turn")
    assert found == [(1, 1.0, None, 6), (2, 0.0, "bad", 6), (None, 0.5, None, 6)]
    assert rows("select mean, scored from results where metric = 'turns'") == [(0.5, 6)]


CONFIGS = {
    "c-stars": {"name": "stars", "data_type": "NUMERIC", "min_value": 1, "max_value": 5},
    "c-tone": {"data_type": "CATEGORICAL", "categories": [{"label": "warm", "value": 1}, "cold"]},
}


@pytest.mark.slow
def test_a_score_that_names_a_config_is_held_to_it() -> None:
    judged("odd_evaluators:configured", "odd_evaluators:tone", score_configs=CONFIGS)
    failed = rows("select evaluator, example_id, error from scores where status = 'failed' and metric <> 'tone' or "
                  "(status = 'failed' and evaluator = 'tone') order by all")  # fmt: skip
    assert failed == [
        ("configured", "e1", "ValueError: stars: got 9, wanted 1 to 5"),
        ("tone", "e2", "ValueError: tone: got 'sour', wanted one of warm, cold"),
    ]
    shares = rows("select label, n from label_shares where evaluator_version in (select evaluator_version from scores "
                  "where evaluator = 'tone') order by label")  # fmt: skip
    assert shares == [("cold", 1), ("warm", 4)], "counted, never averaged"
    assert rows("select count(*) from scores where label is not null and value is not null") == [(0,)]


@pytest.mark.slow
def test_a_config_that_there_is_not_is_an_error_of_the_row() -> None:
    judged("odd_evaluators:tone")
    error = "ValueError: config_id 'c-tone': wanted one of score_configs: none"
    assert rows("select distinct error from scores") == [(error,)]


@pytest.mark.slow
def test_an_evaluators_own_word_on_its_direction_decides_unless_the_spec_says_another() -> None:
    def conclusion(**changes: Any) -> str:
        harmful = {"answer": "Q1"}, {"answer": "Q2"}
        data = [
            {"inputs": {"n": n}, "metadata": {"old": {"answer": "Q2"}, "new": harmful[n % 4 == 0]}} for n in range(40)
        ]
        targets = [{"kind": "recorded", "name": name, "column": name} for name in ("old", "new")]
        judged("odd_evaluators:harm", dataset={"rows": data}, targets=targets, **changes)
        ((found,),) = rows("select conclusion from verdicts where metric = 'harm' order by recorded_at desc limit 1")
        return str(found)

    assert conclusion() == "worse"
    assert conclusion(metrics={"harm": {"higher_is_better": True}}) == "better"


COMPOSITES: list[dict[str, Any]] = [
    {"name": "mean", "weights": {"exact_match": 3, "harmless": 1}},
    {"name": "geometric", "weights": ["exact_match", "harmless"], "aggregation": "geometric_mean"},
    {"name": "least", "weights": ["exact_match", "harmless"], "aggregation": "minimum"},
    {"name": "gated", "weights": ["exact_match"], "requirements": {"harm": 0}},
    {"name": "steep", "weights": ["exact_match", "harmless"], "function": "odd_evaluators:steep"},
]


@pytest.mark.slow
def test_composites_of_every_kind() -> None:
    harmless = {"use": "regex", "name": "harmless", "args": {"pattern": "^Q[^1]"}}
    judged("exact_match", harmless, "odd_evaluators:harm", composites=COMPOSITES)
    made = ", ".join(f"'{composite['name']}'" for composite in COMPOSITES)
    found = rows("select metric, example_id = 'e1', any_value(value), count(*), any_value(comment) from scores "
                 f"where evaluator in ({made}) group by all order by all")  # fmt: skip
    assert found == [
        ("gated", False, 1.0, 5, None),
        ("gated", True, 0.0, 1, "requirement: harm is 1, wanted at most 0"),
        ("geometric", False, 1.0, 5, None),
        ("geometric", True, 0.0, 1, None),
        ("least", False, 1.0, 5, None),
        ("least", True, 0.0, 1, None),
        ("mean", False, 1.0, 5, None),
        ("mean", True, 0.75, 1, None),
        ("steep", False, 1.0, 5, None),
        ("steep", True, 0.0, 1, None),
    ]


@pytest.mark.slow
def test_repeated_trials_are_metrics_of_their_own() -> None:
    """Questions 0 to 4 are answered rightly in so many of 4 repetitions: pass^2 is the mean of C(c, 2) / C(4, 2)."""
    data = [{"inputs": {"question": str(c)}, "reference_outputs": {"answer": "right"}} for c in range(5)]
    judged(
        "exact_match",
        dataset={"rows": data},
        targets=[{"kind": "python", "function": "odd_evaluators:flaky"}],
        repetitions=4,
        metrics={"exact_match": {"pass_k": [1, 2, 4]}},
    )
    found = dict(rows("select metric, mean from results where metric like 'exact_match%'"))
    assert found == {
        "exact_match": pytest.approx(0.5),
        "exact_match pass@1": pytest.approx(0.5),
        "exact_match pass^1": pytest.approx(0.5),
        "exact_match pass@2": pytest.approx((0 + 3 / 6 + 5 / 6 + 1 + 1) / 5),
        "exact_match pass^2": pytest.approx((0 + 0 + 1 / 6 + 3 / 6 + 1) / 5),
        "exact_match pass@4": pytest.approx(4 / 5),
        "exact_match pass^4": pytest.approx(1 / 5),
    }
    ((low, high, n),) = rows("select ci_low, ci_high, n_examples from estimates where metric = 'exact_match pass^2'")
    assert 0 <= low < 1 / 3 < high <= 1 and n == 5


@pytest.mark.slow
def test_the_spec_that_is_kept_names_what_evaluators_declared() -> None:
    judged("odd_evaluators:harm")
    ((spec,),) = rows("select spec from experiments")
    assert json.loads(spec)["metrics"]["harm"]["higher_is_better"] is False


@pytest.mark.slow
def test_a_plain_evaluator_of_the_whole_may_ask_a_model() -> None:
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        judge = {"use": "odd_evaluators:overall", "connection": "mock"}
        judged("exact_match", summary_evaluators=[judge], connections=connections)
    found = rows("select subject_kind, value, calls from scores where metric = 'overall'")
    assert found == [("experiment", 1.0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("down", "asks"), ("asks", "down"), ("down", "down"), ("asks", "asks")])
def test_a_fallback_may_be_plain_or_async_whatever_the_first_is(first: str, second: str) -> None:
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        dead = {"kind": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m", "attempts": 1}
        connections = {"dead": dead, "mock": dead | {"base_url": endpoint.base_url}}
        fallback = {"use": f"odd_evaluators:{second}", "connection": "mock"}
        judge = {"use": f"odd_evaluators:{first}", "name": "judge", "connection": "dead", "fallback": fallback}
        judged(judge, connections=connections, chunk_retries=0)
    found = rows("select distinct status, value, decided_by from scores")
    assert found == [("scored", 1.0, f"fallback odd_evaluators:{second}")]


@pytest.mark.slow
def test_an_async_evaluator_that_does_not_let_itself_be_ended_is_left_behind() -> None:
    judged({"use": "odd_evaluators:stubborn", "timeout_s": 0.5})
    found = rows("select status, error_kind, count(*) from scores group by all order by all")
    assert found == [("failed", "too_slow", 1), ("scored", None, 5)]


@pytest.mark.slow
def test_a_composite_of_metrics_by_other_names_knows_what_became_of_their_evaluator() -> None:
    composite = {"name": "both", "weights": ["a", "b"]}
    judged({"use": "odd_evaluators:two", "sample_rate": 0.5, "name": "two"}, composites=[composite])
    found = dict(rows("select status, count(*) from scores where metric = 'both' group by all"))
    drawn = {example for (example,) in rows("select example_id from scores where metric = 'a' and status = 'scored'")}
    assert found == {"sampled_out": 3, "scored": len(drawn)} | ({"not_applicable": 1} if len(drawn) == 2 else {})


@pytest.mark.slow
def test_a_metric_that_two_evaluators_give_is_not_weighed() -> None:
    one, other = (
        {"use": "odd_evaluators:same", "name": name, "args": {"value": v}} for name, v in (("x", 1), ("y", 0))
    )
    judged(one, other, composites=[{"name": "whole", "weights": ["quality"]}])
    found = rows("select distinct status, error from scores where metric = 'whole'")
    assert found == [("failed", "quality is missing: x and y both return it")]


@pytest.mark.slow
def test_a_class_of_ones_own_is_made_with_its_settings() -> None:
    judged({"use": "odd_evaluators:Strict", "name": "strict", "args": {"least": 3}})
    assert rows("select distinct metric, value from scores") == [("strict", 0.0)]
    with pytest.raises(InputError, match="is a class that cannot be called"):
        judged("odd_evaluators:NoFunction")
    with pytest.raises(InputError, match="cannot be constructed with args: TypeError"):
        judged({"use": "odd_evaluators:Strict", "args": {"most": 3}})


MOCK = {"connection": "mock"}


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        ({"use": "regex", "args": {"pattern": "("}}, "evaluator 'regex': pattern"),
        ({"use": "tool_order", "args": {"mode": "strikt"}}, "evaluator 'tool_order': mode: got 'strikt'"),
        ({"use": "rubric", **MOCK, "args": {"repeats": 0, "rubric": "Is it?"}}, "evaluator 'rubric': repeats: got 0"),
        ({"use": "correctness", **MOCK, "args": {"temperature": -1}}, "'correctness': temperature: got -1"),
        ({"use": "turn_errors", **MOCK, "args": {"early_weight": -1}}, "'turn_errors': early_weight: got -1"),
        ({"use": "agent", "args": {"weights": {"argumens": 1}}}, "evaluator 'agent': weights"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_told_before_anything_is_paid(evaluator: dict[str, Any], said: str) -> None:
    with serving(Endpoint()) as endpoint:
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        with pytest.raises(InputError, match=said):
            judged(evaluator, connections=connections)
    assert endpoint.calls == 0


@pytest.mark.slow
def test_a_run_key_is_not_gone_on_with_by_another_sample() -> None:
    judged({"use": "exact_match", "sample_rate": 0.5}, run_key="nightly")
    with pytest.raises(InputError, match="then with evaluators exact_match@"):
        judged({"use": "exact_match", "sample_rate": 1.0}, run_key="nightly")


def test_what_is_said_of_a_metric_that_there_is_not_is_a_slip() -> None:
    with pytest.raises(InputError, match="metrics: no evaluator gives 'exact_mach', wanted one of exact_match"):
        judged("exact_match", metrics={"exact_mach": {"higher_is_better": False}})


@pytest.mark.slow
def test_where_few_examples_stand_for_many_there_is_no_interval() -> None:
    judged({"use": "exact_match", "sample_rate": 0.25, "sample_by": "metadata.risk", "sample_rates": {"high": 1.0}})
    ((low, high, reason),) = rows("select ci_low, ci_high, reason from estimates where metric = 'exact_match'")
    assert (low, high, reason) == (
        *(None, None),
        "1 sampled examples represent 4, wanted at least 20",
    )


@pytest.mark.slow
def test_functions_may_stand_in_a_mapping() -> None:
    def brief(outputs: dict[str, Any]) -> bool:
        return len(outputs["output"]) < 4

    spec = {"use": brief, "timeout_s": 5}
    tiers = {"use": "cascade", "name": "tiered", "tiers": [{"use": brief, "decides": [True]}, "exact_match"]}
    result = evaluate(lambda question: question.upper(), ROWS, [spec, tiers])
    assert result.scores("brief") == result.scores("tiered") == [1.0] * 6
