"""How a run is judged: by evaluators that misbehave, by tiers, by a sample, by turns, by score configs."""

import json
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, completion, serving
from user_places import without_places

from evalflows import run
from evalflows.specs import ExperimentSpec, InputError

pytestmark = pytest.mark.usefixtures("without_prefect")

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


MOCK = {"connection": "mock"}


def connected(endpoint: Endpoint) -> dict[str, Any]:
    return {"connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}}


CONFIGS = {
    "c-stars": {"name": "stars", "data_type": "NUMERIC", "min_value": 1, "max_value": 5},
    "c-tone": {"data_type": "CATEGORICAL", "categories": [{"label": "warm", "value": 1}, "cold"]},
}


def test_an_evaluator_judges_only_answers_with_the_scores_that_it_needs() -> None:
    answers = {row["id"]: "no" if row["id"] in ("e1", "e4") else row["inputs"]["question"] for row in ROWS}
    wrong = [{**row, "metadata": {"answer": answers[row["id"]]}} for row in ROWS]
    right = {"use": "regex", "name": "right", "args": {"pattern": "q"}}
    long = {"use": "length_between", "name": "long", "args": {"least": 1}}
    asks = {"use": "correctness", "connection": "mock", "args": {"reasoning": False}}

    def answer(request: Any) -> Any:
        return completion(json.dumps({"correct": True}))

    with serving(Endpoint(answer=answer)) as endpoint:
        judged(
            {**asks, "name": "why", "needs": {"right": False}},
            {**long, "needs": {"right": {"at_least": 1}, "raises": 1}},
            {**long, "name": "by_label", "needs": {"tone": "warm", "right": {"below": 1}}},
            right,
            "odd_evaluators:raises",
            "odd_evaluators:tone",
            dataset={"rows": wrong},
            targets=[{"kind": "recorded", "column": "answer"}],
            score_configs=CONFIGS,
            **connected(endpoint),
        )
        assert endpoint.calls == 2, "only wrong answers are asked about"
    by_status = """select metric, status, list(example_id order by example_id), coalesce(error, comment) as said
                   from item_scores where metric in ('why', 'long', 'by_label') group by all order by 1, 2, 3"""
    assert rows(by_status) == [
        ("by_label", "failed", ["e2"], "no score of tone, which it needs: failed"),
        ("by_label", "not_applicable", ["e0", "e3", "e5"], "it needs another score of right: got 1.0"),
        ("by_label", "not_applicable", ["e1"], "it needs another score of tone: got cold"),
        ("by_label", "scored", ["e4"], None),
        ("long", "failed", ["e0", "e2", "e3", "e5"], "no score of raises, which it needs: failed"),
        ("long", "not_applicable", ["e1", "e4"], "it needs another score of right: got 0.0"),
        ("why", "not_applicable", ["e0", "e2", "e3", "e5"], "it needs another score of right: got 1.0"),
        ("why", "scored", ["e1", "e4"], None),
    ]
    for needs, message in (
        ({"rigth": True}, "evaluator 'long': needs: no evaluator gives 'rigth', wanted one of right, short"),
        ({"short": True}, "needs: got 'short', wanted the metric of an evaluator that needs no scores itself"),
    ):
        with pytest.raises(InputError, match=message):
            judged({**long, "needs": needs}, right, {**long, "name": "short", "needs": {"right": True}})


@pytest.mark.slow
def test_evaluators_that_misbehave_have_a_row_with_an_error_each_and_harm_no_other() -> None:
    bad = ["raises", "nan", "too_high", "writes"]
    others = [f"odd_evaluators:{name}" for name in ("turns", "configured", "tone", "harm")]
    metrics = {"too_high": {"range": [0, 1]}}
    judged(*[f"odd_evaluators:{name}" for name in bad], "exact_match", *others, metrics=metrics, score_configs=CONFIGS)
    found = rows("""select metric, status, value, any_value(error_kind), min(error), count(*) from scores
                    where evaluator in ('raises', 'nan', 'too_high', 'writes', 'exact_match') group by all""")
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

    turns = rows("""select turn, avg(value), any_value(label), count(*) from scores
                    where metric = 'turns' group by turn order by turn""")
    assert turns == [(1, 1.0, None, 6), (2, 0.0, "bad", 6), (None, 0.5, None, 6)]
    assert rows("select mean, scored from results where metric = 'turns'") == [(0.5, 6)], "turns stand beside the run"

    failed = rows("""select evaluator, example_id, error from scores where status = 'failed'
                     and evaluator in ('configured', 'tone') and (metric = 'stars' or evaluator = 'tone')""")
    assert sorted(failed) == [
        ("configured", "e1", "ValueError: stars: got 9, wanted 1 to 5"),
        ("tone", "e2", "ValueError: tone: got 'sour', wanted one of warm, cold"),
    ], "a score that names a config is held to it"
    shares = rows("""select label, n from label_shares where evaluator_version in
                     (select evaluator_version from scores where evaluator = 'tone') order by label""")
    assert shares == [("cold", 1), ("warm", 4)], "counted, never averaged"
    assert rows("select count(*) from scores where data_type = 'CATEGORICAL' and value is not null") == [(0,)]
    ((spec,),) = rows("select spec from experiments")
    assert json.loads(spec)["metrics"]["harm"]["higher_is_better"] is False, "as the evaluator declares it"


@pytest.mark.slow
def test_an_evaluator_that_hangs_is_ended_or_left_behind_and_the_run_goes_on() -> None:
    names = ["backtracks", "sleeps", "stubborn", "waits"]
    judged(
        *[{"use": f"odd_evaluators:{name}", "timeout_s": 1.0} for name in names], "exact_match", "odd_evaluators:tone"
    )
    query = (
        "select metric, example_id, error_kind, error, status from scores where status <> 'scored' and {} order by 1"
    )
    error = "took longer than 1 s and was stopped"
    found = rows(query.format("metric not in ('tone', 'stubborn')"))
    assert found == [(name, "e1", "too_slow", error, "failed") for name in names if name != "stubborn"]
    stubborn = rows(query.format("metric = 'stubborn'"))
    assert [one[1:3] for one in stubborn] == [("e1", "too_slow")]
    assert rows("select count(*) from scores where status = 'scored' and value = 1") == [(4 * 5 + 6,)]
    unknown = "ValueError: config_id 'c-tone': wanted one of score_configs: none"
    assert rows("select distinct error from scores where metric = 'tone'") == [(unknown,)]


@pytest.mark.slow
def test_what_plain_functions_ask_a_model_is_paid_and_kept_once() -> None:
    """One in a process of its own, for its time limit, and one that judges all answers at once."""
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        asks = {"use": "odd_evaluators:asks", "timeout_s": 5, **MOCK}
        overall = {"use": "odd_evaluators:overall", **MOCK}
        judged(asks, summary_evaluators=[overall], **connected(endpoint))
    assert endpoint.calls == 7
    found = rows("""select metric, subject_kind, sum(calls), sum(tokens_in), min(value), any_value(judge_model)
                    from scores where metric in ('asks', 'overall') group by all order by 1""")
    assert found == [("asks", "run", 6, 60, 1, "mock-1"), ("overall", "experiment", 1, 10, 1, "mock-1")]


TIERS = {
    "name": "right",
    "use": "cascade",
    "tiers": [
        {"use": "odd_evaluators:third", "name": "known"},
        {"use": "contains", "args": {"any_of": ["Q2", "Q3"]}, "decides": [True]},
        {"use": "judges:says_correct", "connection": "mock", "name": "judge"},
    ],
}


@pytest.mark.slow
def test_each_tier_judges_what_those_before_it_left_open() -> None:
    failing = {"name": "failing", "use": "cascade", "tiers": ["odd_evaluators:raises", "exact_match"]}
    strict = {"use": "odd_evaluators:Strict", "name": "strict", "args": {"least": 3}}
    with serving(Endpoint(answer=lambda request: completion("CORRECT"))) as endpoint:
        judged(TIERS, failing, strict, **connected(endpoint))
    assert endpoint.calls == 2, "the judge is asked only for what no rule has decided"
    found = rows("""select example_id, value, decided_by, calls, evaluator from scores
                    where metric = 'right' order by example_id""")
    assert found == [
        ("e0", 1.0, "known", 0, "right"),
        ("e1", 0.0, "known", 0, "right"),
        ("e2", 1.0, "contains", 0, "right"),
        ("e3", 1.0, "contains", 0, "right"),
        ("e4", 1.0, "judge", 1, "right"),
        ("e5", 1.0, "judge", 1, "right"),
    ]
    query = "select status, error, decided_by from scores where evaluator = 'failing' order by example_id limit 1"
    status, error, decided_by = rows(query)[0]
    assert (status, without_places(error), decided_by) == ("failed", "raises: RuntimeError: cannot judge Q0", None)
    assert rows("select distinct value from scores where metric = 'strict'") == [(0.0,)], "made with its settings"


@pytest.mark.slow
def test_samples_are_drawn_alike_say_their_rates_and_weigh() -> None:
    """All of the 2 of high risk, of which 1 is right, and 1 in 4 of the others, all right: (1 + 4) / 6."""
    composites = [{"name": "whole", "weights": ["exact_match", "all"]}, {"name": "both", "weights": ["a", "b"]}]
    by_risk = {"sample_by": "metadata.risk", "sample_rates": {"high": 1.0}, "sample_rate": 0.25}
    judged(
        {"use": "exact_match", "sample_rate": 0.5},
        {"use": "contains", "sample_rate": 0.33, "name": "few"},
        {"use": "contains", "name": "all"},
        {"use": "odd_evaluators:two", "sample_rate": 0.5, "name": "two"},
        {"use": "odd_evaluators:harm", **by_risk},
        composites=composites,
    )
    found = rows("""select metric, status, sampling_rate, list(example_id order by example_id) from scores
                    where metric in ('exact_match', 'few') group by all""")
    drawn = {(metric, status): examples for metric, status, _, examples in found}
    assert {metric: rate for metric, _, rate, _ in found} == {"exact_match": 0.5, "few": 2 / 6}
    assert {*drawn["few", "scored"]} < {*drawn["exact_match", "scored"]}
    assert len(drawn["exact_match", "sampled_out"]) == 3
    summary = rows("select metric, mean, scored, sampled_out, missing from results where metric = 'few'")
    assert summary == [("few", 1.0, 2, 4, 0)]

    statuses = (
        "select status, sampling_rate, count(*), sum(value) from scores where metric = '{}' group by all order by all"
    )
    whole = [row[:3] for row in rows(statuses.format("whole"))]
    assert whole == [("sampled_out", 0.5, 3), ("scored", 0.5, 3)], "a composite of a sample is one of the sample"
    both = {row[0]: row[2] for row in rows(statuses.format("both"))}
    of_a = len(rows("select 1 from scores where metric = 'a' and status = 'scored'"))
    assert both == {"sampled_out": 3, "scored": of_a} | ({"not_applicable": 1} if of_a == 2 else {})

    harm = rows(statuses.format("harm"))
    assert harm == [("sampled_out", 0.25, 3, None), ("scored", 0.25, 1, 0.0), ("scored", 1.0, 2, 1.0)]
    assert rows("select mean, scored from results where metric = 'harm'") == [(pytest.approx(1 / 6), 3)]
    ((estimate, low, high, reason),) = rows("select mean, ci_low, ci_high, reason from estimates where metric = 'harm'")
    assert (estimate, low, high) == (pytest.approx(1 / 6), None, None)
    assert reason == "1 sampled examples represent 4, wanted at least 20"


def test_a_composite_of_samples_that_are_drawn_in_different_ways_is_refused() -> None:
    composite = {"name": "whole", "weights": ["exact_match", "contains"]}
    evaluators = [{"use": "exact_match", "sample_rate": 0.5}, {"use": "contains", "sample_rate": 0.5, "sample_seed": 1}]
    with pytest.raises(InputError, match="the samples of exact_match and contains are drawn in different ways"):
        judged(*evaluators, composites=[composite])


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
    twice = [{"use": "odd_evaluators:same", "name": name, "args": {"value": v}} for name, v in (("x", 1), ("y", 0))]
    unclear = {"name": "unclear", "weights": ["quality"]}
    judged("exact_match", harmless, "odd_evaluators:harm", *twice, composites=[*COMPOSITES, unclear])
    made = tuple(str(composite["name"]) for composite in COMPOSITES)
    columns = "metric, example_id = 'e1', any_value(value), count(*), any_value(comment)"
    found = rows(f"select {columns} from scores where evaluator in {made} group by all order by all")
    of_e1 = {"gated": 0.0, "geometric": 0.0, "least": 0.0, "mean": 0.75, "steep": 0.0}
    why = {"gated": "requirement: harm is 1, wanted at most 0"}
    assert found == [
        one
        for name, value in of_e1.items()
        for one in ((name, False, 1.0, 5, None), (name, True, value, 1, why.get(name)))
    ]
    lost = "returned the key 'quality', which 'x' gives too; wanted a key of its own, such as 'y'"
    assert rows("select distinct status, error from scores where evaluator = 'y'") == [("failed", lost)]
    assert rows("select distinct value from scores where metric = 'unclear'") == [(1.0,)], "of x alone"


@pytest.mark.slow
def test_repeated_trials_are_metrics_of_their_own() -> None:
    """Questions 0 to 4 are answered rightly in so many of 4 repetitions: pass^2 is the mean of C(c, 2) / C(4, 2)."""
    data = [{"inputs": {"question": str(c)}, "reference_outputs": {"answer": "right"}} for c in range(5)]
    targets = [{"kind": "python", "function": "odd_evaluators:flaky"}]
    metrics = {"exact_match": {"pass_k": [1, 2, 4]}}
    judged("exact_match", dataset={"rows": data}, targets=targets, repetitions=4, metrics=metrics)
    found = dict(rows("select metric, mean from results where metric like 'exact_match%'"))
    at_2, all_2 = (0 + 3 / 6 + 5 / 6 + 1 + 1) / 5, (0 + 0 + 1 / 6 + 3 / 6 + 1) / 5
    wanted = {
        "": 0.5,
        " pass@1": 0.5,
        " pass^1": 0.5,
        " pass@2": at_2,
        " pass^2": all_2,
        " pass@4": 0.8,
        " pass^4": 0.2,
    }
    assert found == {f"exact_match{name}": pytest.approx(mean) for name, mean in wanted.items()}
    ((low, high, n),) = rows("select ci_low, ci_high, n_examples from estimates where metric = 'exact_match pass^2'")
    assert 0 <= low < 1 / 3 < high <= 1 and n == 5


@pytest.mark.slow
def test_a_fallback_may_be_plain_or_async_whatever_the_first_is() -> None:
    pairs = [(first, second) for first in ("down", "asks") for second in ("down", "asks")]
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        dead = {"kind": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m", "attempts": 1}
        connections = {"dead": dead, "mock": dead | {"base_url": endpoint.base_url}}
        judges = [
            {
                "use": f"odd_evaluators:{first}",
                "name": f"{first} {second}",
                "connection": "dead",
                "fallback": {"use": f"odd_evaluators:{second}", **MOCK},
            }
            for first, second in pairs
        ]
        judged(*judges, connections=connections, chunk_retries=0)
    found = rows("select distinct evaluator, status, value, decided_by from scores")
    assert {*found} == {(f"{a} {b}", "scored", 1.0, f"fallback odd_evaluators:{b}") for a, b in pairs}


def test_a_setting_that_cannot_be_used_is_told_before_anything_is_paid() -> None:
    with serving(Endpoint()) as endpoint:
        for evaluator, said in (
            ({"use": "regex", "args": {"pattern": "("}}, "evaluator 'regex': pattern"),
            ({"use": "tool_order", "args": {"mode": "strikt"}}, "evaluator 'tool_order': mode: got 'strikt'"),
            ({"use": "rubric", **MOCK, "args": {"repeats": 0, "rubric": "Is it?"}}, "'rubric': repeats: got 0"),
            ({"use": "correctness", **MOCK, "args": {"temperature": -1}}, "'correctness': temperature: got -1"),
            ({"use": "turn_errors", **MOCK, "args": {"early_weight": -1}}, "'turn_errors': early_weight: got -1"),
            ({"use": "agent", "args": {"weights": {"argumens": 1}}}, "evaluator 'agent': weights"),
            ("odd_evaluators:NoFunction", "is a class that cannot be called"),
            ({"use": "odd_evaluators:Strict", "args": {"most": 3}}, "cannot be constructed with args: TypeError"),
        ):
            with pytest.raises(InputError, match=said):
                judged(evaluator, **connected(endpoint))
        with pytest.raises(InputError, match="metrics: no evaluator gives 'exact_mach', wanted one of exact_match"):
            judged("exact_match", metrics={"exact_mach": {"higher_is_better": False}})
    assert endpoint.calls == 0


@pytest.mark.slow
def test_a_run_key_is_not_gone_on_with_by_another_sample() -> None:
    judged({"use": "exact_match", "sample_rate": 0.5}, run_key="nightly")
    with pytest.raises(InputError, match="then with evaluators exact_match@"):
        judged({"use": "exact_match", "sample_rate": 1.0}, run_key="nightly")


def test_what_judges_see_whole_and_contexts_are_said_once_before_the_first_is_asked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of two targets, whose answers have two fields of which some judges are shown one."""
    said: list[str] = []

    values = {"string": "", "boolean": True, "array": [], "integer": 5}

    def verdict(request: Any) -> Any:
        said.append(capfd.readouterr().err)
        fields = request["response_format"]["json_schema"]["schema"]["properties"]
        return completion(json.dumps({name: values[field["type"]] for name, field in fields.items()}))

    answer = {"answer": "Rome", "contexts": ["Rome is old.", "It is in Italy."]}
    examples = [row | {"inputs": {"question": "?", "context": "Rome"}, "metadata": {"said": answer}} for row in ROWS]
    targets = [{"kind": "recorded", "name": name, "column": "said"} for name in ("old", "new")]
    args: list[dict[str, Any]] = [{}, {"key": "answer"}, {"rubric": "Is it?"}, {"context": "outputs.contexts"}, {}]
    uses = ["correctness", "correctness", "rubric", "faithfulness", "criteria"]
    judges = [
        {"use": use, "name": f"{use}{number}", **MOCK, "args": given}
        for number, (use, given) in enumerate(zip(uses, args, strict=True))
    ]
    with serving(Endpoint(answer=verdict)) as endpoint:
        judged(*judges, dataset={"rows": examples}, targets=targets, chunk_retries=0, **connected(endpoint))
    notes = [line.removeprefix("evalflows: ") for line in said[0].splitlines() if "correctness" in line]
    why = "and may judge by it in place of the reference; set `key`, use a `prompt` without {inputs}, or keep contexts"
    assert notes == [
        "the answers have several fields (answer, contexts), all shown as JSON to correctness0, rubric2, criteria4; to "
        "show one, set args: {key: answer}",
        f"correctness0: the judge sees inputs.context and outputs.contexts, {why} in the metadata",
        f"correctness1: the judge sees inputs.context, {why} in the metadata",
    ]
    assert not any("several fields" in text for text in said[1:]), "once, not for each target"
