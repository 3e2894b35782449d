"""Metrics of a whole experiment: their intervals, verdicts, rules, plans and pages, and what keeps them undecided."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from catalog_rows import one, rows
from page_client import page_client

from evalflows import run
from evalflows.analysis.diff import figures_between
from evalflows.analysis.plan import plan_experiment
from evalflows.api.evidence import evidence_of
from evalflows.reports.experiment_page import ItemFilter, items_of
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.results import results_of
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.reference import refer
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

LABELS = ("billing", "refund", "other")


def example(place: int, **fields: Any) -> dict[str, Any]:
    wanted = LABELS[place % 4 % 3]
    good = "REFUND " if place % 9 == 0 else wanted
    return {
        "inputs": {"place": place, "poor": LABELS[place % 3] if place % 5 < 2 else wanted, "good": good},
        "reference_outputs": {"intent": wanted, "grade": place % 7},
        **fields,
    }


def poor(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"intent": inputs["poor"], "grade": inputs["place"] % 5}


def good(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"intent": inputs["good"], "grade": str(inputs["place"] % 7 + inputs["place"] % 2)}


def fails_once(inputs: dict[str, Any]) -> dict[str, Any]:
    if inputs["place"] == 3:
        raise RuntimeError("down")
    return good(inputs)


def errors(
    outputs: Sequence[dict[str, Any] | None], reference_outputs: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    wrong = [
        (got or {}).get("intent", "").strip().lower() != wanted["intent"]
        for got, wanted in zip(outputs, reference_outputs, strict=True)
    ]
    return {"name": "errors", "value": sum(wrong) / len(wrong)}  # type: ignore[dict-item]


def spec(*functions: Any, n: int = 120, **fields: Any) -> dict[str, Any]:
    of_labels = {"expected": "reference_outputs.intent", "got": "outputs.intent"}
    of_grades = {"expected": "reference_outputs.grade", "got": "outputs.grade", "measures": ["mae", "spearman"]}
    given: dict[str, Any] = {
        "name": "intents",
        "dataset": {"rows": [example(place) for place in range(n)]},
        "targets": [{"name": each.__name__, "kind": "python", "function": refer(each)} for each in functions],
        "summary_evaluators": [
            {"use": "classification", "args": {**of_labels, "measures": ["f1_macro", "recall:refund"]}},
            {"use": "regression", "args": of_grades},
            {"use": refer(errors), "name": "errors", "resample": True},
        ],
        "metrics": {"errors": {"higher_is_better": False, "range": [0, 1]}},
    }
    return {**given, **fields}


def test_metrics_of_all_answers_have_intervals_verdicts_rules_and_plans_and_labels_a_matrix() -> None:
    gate = {
        "name": "release",
        "superiority": {"f1_macro": 0, "mae": 0},
        "non_inferiority": {"errors": 0.05, "spearman": 2.5},
        "confident_thresholds": {"recall:refund": 0.99},
    }
    given = ExperimentSpec.model_validate(spec(poor, good, gates=[gate]))
    _, of_good = run(given)
    query = "select metric, n_examples, ci_low < mean and mean < ci_high from estimates where experiment_id = ?"
    found = {metric: others for metric, *others in rows(query, of_good)}
    assert all(found[name] == [120, True] for name in ("f1_macro", "mae", "spearman", "errors"))
    verdicts = dict(rows("select metric, conclusion from verdicts where decision_id is null"))
    assert verdicts["f1_macro"] == verdicts["mae"] == verdicts["errors"] == "better"
    rules = {metric: others for metric, *others in rows("select metric, outcome, reason_code from gate_rules")}
    assert rules == {
        "f1_macro": ["met", None],
        "mae": ["met", None],
        "errors": ["met", None],
        "spearman": ["open", "margin_too_wide"],
        "recall:refund": ["open", "no_spread"],
    }
    of_gate = dict(rows("select metric, margin from verdicts where decision_id is not null"))
    assert of_gate["errors"] == 0.05

    (decision,) = evidence_of(Store(), [one("select decision_id from decisions")[0]])["decisions"]
    assert not decision["is_recomputed"] and decision["conclusion"] == "NOT ENOUGH EVIDENCE"

    plan = {metric.metric: metric for metric in plan_experiment(given, None, [], 0.8).metrics}
    assert 0.01 < (plan["f1_macro"].minimum_detectable or 0) < 0.2
    assert plan["errors"].sample_sizes

    store = Store()
    report = experiments_report(store, [of_good], results_of(store, [of_good]))
    (matrix,) = report.confusions
    assert matrix.labels == ["billing", "other", "refund"] and matrix.columns == matrix.labels
    assert matrix.errors == [("billing", "refund", 7), ("other", "refund", 3)]
    snapshot = report.experiments[0].snapshot_id
    cell = ItemFilter(classified=("classification", "other", "refund"))
    items = items_of(store, of_good, snapshot, cell, limit=10)
    assert items.count == 3 and all('"good":"REFUND "' in item.inputs for item in items.items)
    page = page_client().get(f"/experiments/{of_good}?judge=classification&expected=other&got=refund").text
    assert "Confusion" in page and "expected as other and got as refund" in page
    assert ("poor", "billing", "none of these") not in rows("select target, expected, got from confusion")


def test_missing_answers_count_at_both_extremes_or_keep_a_metric_from_deciding() -> None:
    gate = {
        "name": "release",
        "non_inferiority": {"f1_macro": 0.01, "errors": 0.1},
        "confident_thresholds": {"mae": 9.0, "f1_macro": 0.5},
        "thresholds": {"errors": 0.9},
    }
    _, of_one = run(ExperimentSpec.model_validate(spec(poor, fails_once, gates=[gate])))
    rules = rows("select metric, rule, outcome, reason_code from gate_rules order by all")
    assert rules == [
        ("errors", "non_inferiority", "open", "incomplete"),
        ("errors", "threshold", "open", "incomplete"),
        ("f1_macro", "confident_threshold", "met", None),
        ("f1_macro", "non_inferiority", "met", None),
        ("mae", "confident_threshold", "open", "incomplete"),
    ]
    worst = (
        "select worst_case_low < difference and difference < worst_case_high from verdicts where metric = 'f1_macro'"
    )
    assert {*rows(worst)} == {(True,)}
    assert one("select reason_code from verdicts where metric = 'errors' and decision_id is null") == ("incomplete",)
    assert one("select count(*) from classified where experiment_id = ?", of_one) == (119,)
    cases = rows("select distinct missing_as from resamples where experiment_id = ? and metric = 'f1_macro'", of_one)
    assert {case for (case,) in cases} == {"known", "lowest", "highest"}
    n_pairs, warning = one("select n_pairs, warning from verdicts where metric = 'f1_macro' and decision_id is null")
    assert (n_pairs, warning.partition(":")[0]) == (119, "119 answers are compared with 120 of the baseline")


def test_experiments_on_other_examples_are_not_compared_and_clusters_are_drawn_together() -> None:
    of_all, _ = run(ExperimentSpec.model_validate(spec(good, poor)))
    (of_some,) = run(ExperimentSpec.model_validate(spec(good, n=100, name="other")))
    verdicts = {row.metric: row.reason_code for row in figures_between(Store(), of_all, [of_some]).verdicts}
    assert verdicts["f1_macro"] == "not_comparable"

    clustered = [example(place, cluster=f"c{place // 4}") for place in range(120)]
    (of_clusters,) = run(ExperimentSpec.model_validate(spec(good, name="clusters", dataset={"rows": clustered})))
    found = one(
        "select n_clusters, method like 'cluster%' from estimates where experiment_id = ? and metric = 'mae'",
        of_clusters,
    )
    assert found == (30, True)


async def asks(outputs: list[Any]) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"summary_evaluators": [{"use": refer(asks), "name": "asks", "resample": True}]}, "got an async function"),
        ({"evaluators": [{"use": "exact_match", "resample": True}]}, "only for summary_evaluators"),
        ({"evaluators": ["label_f1"]}, "judges all answers, wanted it under summary_evaluators"),
        (
            {"summary_evaluators": [{"use": "classification", "args": {"expected": "reference_outputs.kind"}}]},
            "no example has a label at reference_outputs.kind",
        ),
        (
            {
                "summary_evaluators": [
                    {
                        "use": "classification",
                        "args": {"expected": "reference_outputs.intent", "measures": ["f1:spam"]},
                    }
                ]
            },
            "got 'spam', which no reference has",
        ),
        (
            {"summary_evaluators": [{"use": "regression", "args": {"expected": "reference_outputs.intent"}}]},
            "wanted a number",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(changed: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        run(ExperimentSpec.model_validate(spec(good, **changed)))
    assert not rows("select 1 from outputs")
