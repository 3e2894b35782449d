"""Judges whose scores decide nothing, by controls, people's labels, or their fallback, at every door."""

from dataclasses import replace
from typing import Any

import pytest
from past import Past, passes
from pydantic import ValidationError
from store_rows import make_row

from evalflows.analysis.backtest import backtest
from evalflows.analysis.diff import figures_between
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.reports.decisions import find_decision, with_limits
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.results import results_of
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.evidence import verify_decision
from evalflows.store.records import ExperimentRow, controls_batch, to_json
from evalflows.store.store import Store


def experiment(past: Past, metrics: dict[str, str], **fields: Any) -> ExperimentRow:
    """Keep one with a mean for each metric; evaluators' versions are their names with a v."""
    described = to_json([{"name": name, "version": f"v {name}"} for name in {*metrics.values()}])
    row = past.experiment({metric: [True, False] for metric in metrics}, evaluators=described, **fields)
    of = {"experiment_id": row.experiment_id, "mean": 0.5}
    estimates = [
        make_row("estimates", estimate_id=metric, metric=metric, evaluator_version=f"v {name}", **of)
        for metric, name in metrics.items()
    ]
    past.store.publish("estimates", row.experiment_id, estimates)
    return row


def check(row: ExperimentRow, judge: str, passed: bool | None) -> None:
    batch = controls_batch(row.run_group)
    of = {"subject_kind": "judge", "subject_id": judge, "name": "controls", "message": "accepted everything"}
    Store().publish("checks", batch, [make_row("checks", check_id=judge, batch_id=batch, passed=passed, **of)])


def found(*rows: ExperimentRow) -> dict[tuple[str, str], str]:
    excluded = excluded_metrics(Store(), {row.experiment_id: row.run_group for row in rows})
    return {key: one.text for key, one in excluded.items()}


def test_all_metrics_of_a_failed_judge_count_in_its_own_experiment_only() -> None:
    past = Past()
    first, second = (experiment(past, {"tone": "judge", "tone pass@2": "judge", "right": "exact"}) for _ in range(2))
    check(first, "judge", False)
    assert found(first, second) == {
        (first.experiment_id, "tone"): "judge failed validation",
        (first.experiment_id, "tone pass@2"): "judge failed validation",
    }


def test_a_judge_that_passed_counts_not_and_one_that_could_not_be_checked_does() -> None:
    past = Past()
    passed, unknown = (experiment(past, {"tone": "judge"}) for _ in range(2))
    check(passed, "judge", True)
    check(unknown, "judge", None)
    assert found(passed, unknown) == {(unknown.experiment_id, "tone"): "judge not validated"}


def test_composites_of_a_failed_judge_count() -> None:
    past = Past()
    spec = past.spec(composites=[{"name": "both", "weights": {"tone": 1, "right": 1}}])
    row = experiment(past, {"tone": "tone", "right": "right", "both": "both"}, spec=spec)
    check(row, "tone", False)
    assert {metric for _, metric in found(row)} == {"tone", "both"}


RULES = GateSpec.model_validate({"thresholds": {"right": 0.3, "both": 0.3}, "non_inferiority": {"right": 0.3}})


def two(spec: ExperimentSpec) -> tuple[Past, ExperimentRow, ExperimentRow]:
    """Two experiments with means and a verdict, of which the second is the candidate."""
    past, right = Past(), passes(0.7, 100, 0)
    rows = [past.experiment({"right": right, "both": right}, yes_no=["right"], spec=spec) for _ in range(2)]
    for row in rows:
        of = {"experiment_id": row.experiment_id, "mean": 0.7, "evaluator_version": "e1"}
        means = [make_row("estimates", estimate_id=metric, metric=metric, **of) for metric in ("right", "both")]
        past.store.publish("estimates", row.experiment_id, means)
    return past, *rows


def evaluated(past: Past, spec: ExperimentSpec, candidate: ExperimentRow, baseline: ExperimentRow) -> GateEvaluation:
    pair = ExperimentPair(reader=MetricReader(past.store), spec=spec, candidate=candidate, baseline=baseline)
    return GateEvaluation(gate=RULES, pair=pair)


def codes(evaluation: GateEvaluation) -> list[str | None]:
    return [one.reason_code for one in evaluation.rule_results]


def people_said(batch: str, passed: bool | None, version: str = "e1") -> None:
    observed = to_json({"evaluator_version": version, "evaluator": "right"})
    of = {"subject_kind": "judge", "subject_id": "right", "name": "people", "message": "alpha 0.1 [-0.2, 0.4]"}
    row = make_row("checks", check_id=batch, batch_id=batch, passed=passed, observed=observed, **of)
    Store().publish("checks", batch, [row])


def test_a_judge_that_labels_reject_decides_nothing_at_any_door() -> None:
    spec = Past().spec(composites=[{"name": "both", "weights": {"right": 1}}])
    past, old, new = two(spec)
    before = keep_decision(past.store, evaluated(past, spec, new, old))
    assert before.conclusion == "PASS"
    verdict = make_row("verdicts", verdict_id="v", run_group=new.run_group, metric="right", conclusion="better")
    of = {"candidate_experiment_id": new.experiment_id, "baseline_experiment_id": old.experiment_id}
    past.store.publish("verdicts", new.run_group, [replace(verdict, **of, decision_id=None, slice=None)])

    people_said("people-of-another", False, version="e2")
    people_said("people-few", None)
    assert evaluated(past, spec, new, old).conclusion == "PASS"
    people_said("people-1", False)
    rejected = evaluated(past, spec, new, old)
    assert codes(rejected) == ["judge_rejected_by_people"] * 3
    assert "excluded: its judge agrees with people not significantly better" in rejected.summary
    decision = keep_decision(past.store, rejected)
    assert "people-1" in rejected.evidence and verify_decision(past.store, decision.decision_id).manifest
    (limits,) = (one.limits for one in with_limits(Store(), [find_decision(Store(), before.decision_id)]))
    assert limits == ["right, both: the judge right does not agree with people's labels better than chance"]
    compared = figures_between(past.store, old.experiment_id, [new.experiment_id]).verdicts
    assert {one.reason_code for one in compared if one.metric in ("right", "both")} == {"judge_rejected_by_people"}
    assert [one.conclusion for one in backtest(past.store, RULES, spec, replicates=0).decisions] == [
        "NOT ENOUGH EVIDENCE"
    ]
    assert {key[1] for key in found(old, new)} == {"right", "both"}
    results = results_of(Store(), [old.experiment_id, new.experiment_id])
    taken_back = {(one.conclusion, one.reason_code) for one in results if one.metric == "right" and one.conclusion}
    assert taken_back == {("not_enough_evidence", "judge_rejected_by_people")}
    alone = experiments_report(Store(), [old.experiment_id], results_of(Store(), [old.experiment_id]))
    (said,) = (one.text for one in alone.remarks if one.kind == "people" and one.text.startswith("right: "))
    assert said.startswith("right: its judge agrees with people not significantly better")

    people_said("people-2", True)
    assert evaluated(past, spec, new, old).conclusion == "PASS", "the newest labels count"


def judged_by(past: Past, row: ExperimentRow, decided_by: str, count: int) -> None:
    """Let the first scores of the metric `right` be another's."""
    judgements = past.store.read("judgements", row.experiment_id)
    changed = {one.judgement_id for one in [one for one in judgements if one.metric == "right"][:count]}
    rows = [replace(one, decided_by=decided_by if one.judgement_id in changed else None) for one in judgements]
    past.store.publish("judgements", row.experiment_id, rows)


def test_a_fallback_or_an_earlier_tier_is_said_and_a_fallback_that_judged_most_decides_nothing() -> None:
    judge = {"use": "app:right", "fallback": "contains"}
    spec = Past().spec(evaluators=[judge], composites=[{"name": "both", "weights": {"right": 1}}])
    past, old, new = two(spec)

    def said() -> tuple[list[str], list[str], list[str | None]]:
        evaluation = evaluated(past, spec, new, old)
        decision = keep_decision(past.store, evaluation)
        (one,) = with_limits(Store(), [find_decision(Store(), decision.decision_id)])
        report = experiments_report(Store(), [new.experiment_id], [])
        return [one.text for one in report.remarks if one.kind == "stepped"], list(one.limits), codes(evaluation)

    judged_by(past, new, "fallback contains", 5)
    assert said() == ([], [], [None] * 3)
    judged_by(past, new, "fallback contains", 50)
    text = "right: the fallback contains judged 50 of 100 answers of "
    assert said() == ([f"{text}bot"], [f"{text}the candidate"], [None] * 3)
    judged_by(past, new, "fallback contains", 51)
    assert said()[2] == ["judged_by_fallback"] * 3
    assert set(found(new).values()) == {"judged by the fallback"}
    judged_by(past, new, "", 0)
    judged_by(past, old, "fallback contains", 51)
    assert said()[2] == ["judged_by_fallback", None, None], "thresholds are about the candidate alone"
    judged_by(past, old, "", 0)

    for evaluator, decided_by in (
        ({**judge, "fallback_counts": True}, "fallback contains"),
        ({"use": "cascade", "name": "right", "tiers": ["contains", "app:right"]}, "contains"),
    ):
        spec = Past().spec(evaluators=[evaluator])
        past.store.publish("experiments", new.experiment_id, [replace(new, spec=spec.model_dump_json())])
        past.store.publish("experiments", old.experiment_id, [replace(old, spec=spec.model_dump_json())])
        judged_by(past, new, decided_by, 90)
        new, old = (past.store.read("experiments", one.experiment_id)[0] for one in (new, old))
        warnings, _, found_codes = said()
        assert found_codes[0] is None and "contains judged 90 of 100" in warnings[0]
    judged_by(past, new, "right", 90)
    assert said()[0] == [], "the last tier is the judge"
    with pytest.raises(ValidationError, match="fallback_counts: got true without a fallback"):
        EvaluatorSpec(use="contains", fallback_counts=True)
