"""Panels of judges: who decides, what is kept and shown, and how people's labels count, in runs and in production."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, Reply, Request, completion, error, serving
from labelled import write_csv
from made_traces import traces, write
from past import Past, passes
from planted_difference import ROWS, N, spec
from store_rows import make_row

from evalflows import evaluate_traces, run
from evalflows.analysis.comparability import judge_models
from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.analysis.reviewing import Review
from evalflows.engine.panels import MIN_LABELS, seats_of
from evalflows.evaluators.panel import panel_verdict
from evalflows.reports.decisions import find_decision, with_limits
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.results import results_of
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.metrics import CompositeSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store import Store
from evalflows.store.labels import import_labels
from evalflows.store.queries.people_checks import PeopleAlpha
from evalflows.store.queries.review_items import judged_metrics, reviewed
from evalflows.store.records import JudgementRow, controls_batch
from evalflows.tasks.score import validate_judge

without_prefect = pytest.mark.usefixtures("without_prefect", "short_pauses")

FENCED = re.compile(r"\[BEGIN (?:JSON )?(\w+)\]\n(.*?)\n\[END \1\]", flags=re.DOTALL)


def judges(request: Request) -> Reply:
    """Say by the model: `good` what is right, `slips` the same but for questions that end in 1, `yes` yes, and `down`
    nothing."""
    (_, question), (_, reference), (_, answer) = FENCED.findall(request["messages"][-1]["content"])
    model = request["model"]
    if model == "down":
        return error(400, "no")
    is_right = (reference == answer) != (model == "slips" and question.rstrip('"}').endswith("1"))
    return completion(json.dumps({"reasoning": f"{model} says so.", "correct": model == "yes" or is_right}))


def panel(endpoint: Endpoint, *models: str, **fields: Any) -> dict[str, Any]:
    """The fields of a spec with a panel of models."""
    members = [{"use": "correctness", "model": model, "connection": "mock"} for model in models]
    return {
        "evaluators": [{"use": "panel", "name": "quality", "panel": members, **fields}],
        "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}},
    }


def panel_scores(owner: str) -> list[tuple[Any, ...]]:
    return rows(
        "select status, repeats, decided_by, count(*) from scores where experiment_id = ? and metric = 'quality' "
        "group by all order by all",
        owner,
    )


@without_prefect
def test_a_judge_that_failed_validation_is_left_out_and_the_panel_is_one_metric() -> None:
    gate = {"name": "release", "thresholds": {"quality": 0.1}, "min_examples": 10}
    with serving(Endpoint(answer=judges)) as endpoint:
        given = spec(**panel(endpoint, "good", "slips", "yes", controls=10), gates=[gate])
        assert ExperimentSpec.model_validate_json(given.model_dump_json()) == given
        often, seldom = run(given)
    for owner in (often, seldom):
        assert panel_scores(owner) == [("scored", 2, "good, slips", N)]
    assert one("select count(*), min(calls), sum(cost_usd) from scores where metric = 'quality'") == (2 * N, 0, 0.0)
    of_two = (
        "select agreement, round(spread, 3), comment from scores where metric = 'quality' and agreement = ? limit 1"
    )
    assert {*rows(of_two, 0.0)} == {(0.0, 0.707, "good says so.")}
    assert {*rows(of_two, 1.0)} == {(1.0, 0.0, "good says so.")}
    assert {metric for (metric,) in rows("select metric from verdicts")}.isdisjoint({"quality/good", "quality/slips"})
    assert rows("select metric from verdicts where metric = 'quality' and decision_id is null") == [("quality",)]
    assert {"quality/good", "quality/slips", "quality/yes"} < {m for (m,) in rows("select metric from estimates")}
    store = Store()
    excluded = excluded_metrics(store, {seldom: one("select run_group from experiments limit 1")[0]})
    assert {metric for _, metric in excluded} == {"quality/yes"}
    (decision,) = with_limits(store, [find_decision(store, "release")])
    (limit,) = [text for text in decision.limits if "judged by" in text]
    assert limit.startswith("quality: judged by good and slips; yes was left out: judge failed validation: tried on")
    assert decision.conclusion == "PASS" and not any("validated" in text for text in decision.limits), decision.limits
    report = experiments_report(store, [often, seldom], results_of(store, [often, seldom]))
    (said,) = [remark.text for remark in report.remarks if remark.kind == "panel"]
    assert said == "quality: judged by good and slips; yes was left out: judge failed validation"


@without_prefect
def test_people_who_label_the_panel_weigh_its_judges_and_review_shows_where_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(Endpoint(answer=judges)) as endpoint:
        fields = panel(endpoint, "good", "slips", "yes")
        often, seldom = run(spec(**fields))
        paid = endpoint.calls
        right = rows("select run_id, value from scores where metric = 'quality/good'")
        labels = [{"run_id": run_id, "value": value, "drawn": "fair"} for run_id, value in right]
        import_labels(Store(), write_csv("labels.csv", labels), metric="quality")
        batch = validate_judge.fn(often, "quality", None, 0.95)
        checked = rows("select subject_id from checks where batch_id = ? order by all", batch)
        assert [subject for (subject,) in checked] == ["quality", "quality/good", "quality/slips", "quality/yes"]
        one_judge = validate_judge.fn(often, "quality/slips", None, 0.95)
        assert one("select observed ->> 'people_metric' from checks where batch_id = ?", one_judge) == ("quality",)
        fields["evaluators"][0]["combine"] = "weighted"
        again, _ = run(spec(**fields, name="weighted"))
        assert endpoint.calls == paid, "judgements come from the ledger"
    assert panel_scores(again) == [("scored", 2, "good, slips", N)], "people's labels reject the one that says yes"
    (text,) = one("select metadata::varchar from scores where experiment_id = ? and metric = 'quality' limit 1", again)
    about = json.loads(text)
    assert about["weights"]["good"] == 1 > about["weights"]["slips"] > 0 and "note" not in about
    assert about["left_out"]["yes"].startswith("judge rejected by people's labels: ")
    labelled = rows("select distinct metric from judge_labels where people_metric = 'quality' order by all")
    assert [metric for (metric,) in labelled] == ["quality", "quality/good", "quality/slips", "quality/yes"]
    listed = {(found.subject_id, found.metric): found.n_differing for found in judged_metrics(Store())}
    assert listed[often, "quality"] == N // 4 + 4 and {metric for _, metric in listed} == {"quality"}
    review = Review(reviewed=reviewed(Store(), seldom, "quality"), labeller="ada", order="disagreement")
    shown = review.next()
    assert shown is not None and shown.disagreement == max(item.disagreement or 0 for item in review.reviewed.items)


@without_prefect
def test_judges_that_failed_are_made_up_for_unless_most_did() -> None:
    with serving(Endpoint(answer=judges)) as endpoint:
        given = panel(endpoint, "good", "yes", "down")
        given["evaluators"].append({**panel(endpoint, "good", "down", "broken")["evaluators"][0], "name": "few"})
        given["evaluators"][1]["panel"][2] = {"use": "judges:longer_than", "args": {"characters": "many"}}
        often, _ = run(spec(**given))
    assert panel_scores(often) == [("scored", 2, "good, yes", N)]
    failed = "select distinct status, error from scores where experiment_id = ? and metric = 'few'"
    ((status, why),) = rows(failed, often)
    assert status == "failed" and why.startswith("1 of 3 judges gave a score, wanted at least half: down: HTTP 400")


@without_prefect
def test_production_has_the_panel_and_leaves_out_whom_labels_have_rejected(store: Store) -> None:
    write(store, traces(3))
    metrics = [{"use": f"{__name__}:{name}"} for name in ("low", "middle", "high")]
    given = TraceEvaluationSpec.model_validate(
        {
            "name": "live",
            "evaluators": [{"use": "panel", "name": "tone", "panel": metrics}],
            "composites": [{"name": "all", "weights": {"tone": 1}}],
            "metrics": {"tone": {"range": [0, 5]}},
            "watch": ["tone"],
            "settle_s": 0,
        }
    )
    evaluate_traces(given)
    scores = (
        "select metric, value, judge_model, count(*) from trace_scores where metric in ('tone', 'all') group by all"
    )
    assert rows(f"{scores} order by all") == [("all", 0.4, None, 3), ("tone", 2.0, "low, middle, high", 3)]
    (version,) = one("select distinct evaluator_version from trace_scores where metric = 'tone/low'")
    observed = {"evaluator_version": version, "evaluator": "tone/low", "alpha": {"alpha": -0.1}}
    of = {"batch_id": "people-1", "subject_kind": "judge", "subject_id": "tone/low", "name": "people"}
    check = make_row("checks", check_id="p", passed=False, observed=json.dumps(observed), **of)
    store.publish("checks", "people-1", [check])
    write(store, traces(2, first=3))
    evaluate_traces(given)
    assert rows(f"{scores} having metric = 'tone' order by all") == [
        ("tone", 2.0, "low, middle, high", 3),
        ("tone", 3.0, "middle, high", 2),
    ]


def low() -> float:
    return 1.0


def middle() -> float:
    return 2.0


def high() -> float:
    return 4.0


def test_a_panel_decides_nothing_only_if_none_of_its_judges_counts() -> None:
    past, names = Past(), ("q/a", "q/b", "q", "all")
    composites = [{"name": "q", "panel": ["q/a", "q/b"]}, {"name": "all", "weights": {"q": 1}}]
    described = json.dumps([{"name": name, "version": f"v {name}"} for name in names])
    scores = {name: passes(0.5, 20, 1)[:, 0] for name in names}
    both = [
        past.experiment(scores, spec=past.spec(composites=composites), evaluators=described, run_group=group)
        for group in ("one", "none")
    ]
    for row, failed in zip(both, (["q/a"], ["q/a", "q/b"]), strict=True):
        of = {"experiment_id": row.experiment_id, "mean": 0.5}
        made = [make_row("estimates", estimate_id=n, metric=n, evaluator_version=f"v {n}", **of) for n in names]
        past.store.publish("estimates", row.experiment_id, made)
        batch = controls_batch(row.run_group)
        told = {"subject_kind": "judge", "name": "controls", "passed": False}
        checks = [make_row("checks", check_id=name, batch_id=batch, subject_id=name, **told) for name in failed]
        past.store.publish("checks", batch, checks)
    found = excluded_metrics(past.store, {row.experiment_id: row.run_group for row in both})
    by_owner = [{metric for owner, metric in found if owner == row.experiment_id} for row in both]
    assert by_owner == [{"q/a"}, set(names)]
    seated = [
        replace(each, judge_model="a", decided_by="a" if place else "b")
        for place, each in enumerate(past.store.read("judgements", both[0].experiment_id))
        if each.metric == "q"
    ]
    past.store.publish("judgements", both[0].experiment_id, seated)
    assert judge_models(past.store, both[0]) == {("q", ""): "a"}, "who counts is compared, not who failed on an answer"


def verdicts(*said: tuple[Any, str]) -> Sequence[JudgementRow]:
    return [
        make_row("judgements", value=None if kind == "CATEGORICAL" else float(value), data_type=kind, status="scored")
        if kind != "CATEGORICAL"
        else make_row("judgements", value=None, label=value, data_type=kind, status="scored")
        for value, kind in said
    ]


@pytest.mark.parametrize(
    ("said", "combine", "weights", "value", "agreement"),
    [
        ([(True, "BOOLEAN"), (False, "BOOLEAN"), (False, "BOOLEAN")], None, [1, 1, 1], 0.0, 1 / 3),
        ([(True, "BOOLEAN"), (False, "BOOLEAN"), (False, "BOOLEAN")], "weighted", [0.9, 0.3, 0.4], 1.0, 1 / 3),
        ([(True, "BOOLEAN"), (False, "BOOLEAN")], None, [1, 1], 1.0, 0.0),
        ([(True, "BOOLEAN"), (False, "BOOLEAN")], "mean", [1, 1], 0.5, 0.0),
        ([(1, "NUMERIC"), (2, "NUMERIC"), (5, "NUMERIC")], None, [1, 1, 1], 2.0, 0.0),
        ([(1, "NUMERIC"), (2, "NUMERIC"), (5, "NUMERIC")], "weighted", [0, 1, 2], 4.0, 0.0),
        ([("a", "CATEGORICAL"), ("b", "CATEGORICAL"), ("b", "CATEGORICAL")], "mean", [1, 1, 1], "b", 1 / 3),
        ([("a", "CATEGORICAL"), ("b", "CATEGORICAL"), ("b", "CATEGORICAL")], "weighted", [3, 1, 1], "a", 1 / 3),
    ],
)
def test_verdicts_are_combined_in_their_own_unit(
    said: Any, combine: Any, weights: Any, value: Any, agreement: float
) -> None:
    found = panel_verdict(verdicts(*said), combine, weights)
    assert (found.label if found.value is None else found.value, found.agreement) == (value, pytest.approx(agreement))


def test_weights_need_labels_of_every_judge_that_counts() -> None:
    panel = CompositeSpec(name="q", panel=["q/a", "q/b", "q/c"], combine="weighted")
    versions = {metric: f"v {metric}" for metric in panel.panel}
    alphas = {("v q/a", "q/a"): PeopleAlpha(0.8, 60), ("v q/b", "q/b"): PeopleAlpha(-0.2, MIN_LABELS)}
    seats = seats_of(panel, versions, {"q/c": "down"}, alphas)
    assert (seats.counted, seats.weights, seats.note) == (["q/a", "q/b"], {"q/a": 0.8, "q/b": 0.0}, None)
    seats = seats_of(panel, versions, {}, alphas)
    assert seats.weights == {} and seats.note is not None and "fewer than 20 labels of c" in seats.note
    seats = seats_of(panel, versions, {"q/a": "x", "q/c": "y"}, alphas)
    assert seats.note == "all count equally, since none agrees with people better than by chance"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"panel": []}, "panel: got use: panel without, wanted use: panel and panel, or neither"),
        ({"panel": ["exact_match"]}, "panel: got one judge, wanted at least two"),
        ({"panel": ["exact_match", "exact_match"]}, "panel: got two judges 'exact_match', wanted a name for each"),
        ({"model": "m"}, "panel: got model beside it, wanted it for each judge within the panel"),
        ({"repeats": 3}, "repeats: got 3 with a panel, wanted one of the two"),
        ({"use": "contains"}, "panel: got use: contains with members"),
        ({"name": "cost"}, "'cost' is a built-in measure of every run"),
    ],
)
def test_a_panel_that_cannot_be_meant_is_refused(fields: dict[str, Any], message: str) -> None:
    evaluator = {"use": "panel", "name": "quality", "panel": ["exact_match", "contains"], **fields}
    with pytest.raises(ValueError, match=re.escape(message)):
        spec(evaluators=[evaluator])


@without_prefect
def test_judges_of_several_metrics_or_units_are_refused_before_anything_is_paid() -> None:
    several = {"use": "rubric", "args": {"criteria": {"tone": "kind", "tact": "tactful"}}, "connection": "c"}
    apart = {"use": "rubric", "args": {"rubric": "kind"}, "connection": "c", "name": "scale"}
    connections = {"c": {"kind": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m"}}
    toxicity = {"use": "toxicity", "connection": "c"}
    for other, message in ((several, "gives 'tone' too"), (toxicity, "its judges differ in range or higher_is_better")):
        evaluator = {"use": "panel", "name": "quality", "panel": [apart, other]}
        with pytest.raises(InputError, match=f"panel 'quality': .*{message}"):
            run(spec(evaluators=[evaluator], connections=connections, dataset={"rows": ROWS[:3]}))
