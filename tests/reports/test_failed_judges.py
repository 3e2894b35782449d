"""Metrics whose judge failed on known-answer controls, by experiment."""

from typing import Any

from past import Past
from store_rows import make_row

from evalflows.reports.failed_judges import failed_metrics
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
    failed = failed_metrics(Store(), {row.experiment_id: row.run_group for row in rows})
    return {key: one.text for key, one in failed.items()}


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
