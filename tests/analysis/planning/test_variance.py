"""Variance estimates from past experiments, and guesses without them."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned import START, dataset_rows, metric_of, normal_values, recorded_spec, sample_sizes, store_experiments

from evalflows.analysis.plan import about, sentences_of
from evalflows.api.planning import plan
from evalflows.stats.power import needed_examples, needed_for_margin
from evalflows.stats.proportions import paired_share_interval
from evalflows.store.records import controls_batch, to_json
from evalflows.store.store import Store


def test_the_newest_run_group_with_enough_pairs_is_used() -> None:
    store_experiments(normal_values(300, 1, between=2.0, within=0.1), recorded_spec(300), age=9)
    store_experiments(normal_values(300, 1, between=1.0, within=0.1), recorded_spec(300), age=5)
    store_experiments(normal_values(5, 1, between=9.0, within=0.1), recorded_spec(5), age=1)
    made = metric_of(plan(recorded_spec(300), 0.1)).variance
    assert made is not None and made.variance == pytest.approx(1.0, rel=0.2)
    assert made.basis == "new against old of 2025-12-27, 300 examples"


def rename(dataset: str, age: int) -> None:
    """Give the stored experiments of an age another dataset."""
    store = Store()
    for owner in (f"exp-{age}-old", f"exp-{age}-new"):
        (row,) = store.read("experiments", owner)
        store.publish("experiments", owner, [replace(row, dataset_name=dataset)])


def test_experiments_on_another_dataset_are_the_last_resort() -> None:
    other = recorded_spec(300, dataset={"rows": dataset_rows(300), "name": "others"})
    store_experiments(normal_values(300, 1, between=1.0, within=0.1), other)
    rename("others", 0)
    here = recorded_spec(100)
    made = metric_of(plan(here, 0.1)).variance
    assert made is not None and made.basis.endswith("of another dataset (others)")
    store_experiments(normal_values(100, 1, between=3.0, within=0.1), here, age=30)
    made = metric_of(plan(here, 0.1)).variance
    assert made is not None and made.basis == "new against old of 2025-12-02, 100 examples"
    never = recorded_spec(50, dataset={"rows": dataset_rows(50), "name": "never"})
    store_experiments({"old": np.ones((50, 1)), "new": np.ones((50, 1))}, never, is_yes_no=True, age=40)
    rename("never", 40)
    made = metric_of(plan(never, 0.1)).variance
    assert made is not None and (made.source, made.n_pairs) == ("guess", 50), "no difference here, not those elsewhere"


def test_with_one_experiment_the_other_side_is_assumed_independent() -> None:
    spec = recorded_spec(1000)
    store_experiments({"old": np.random.default_rng(0).normal(0, 1, (1000, 1))}, spec)
    made = metric_of(plan(spec, 0.2))
    assert made.variance is not None and made.variance.source == "one_side"
    assert made.variance.variance == pytest.approx(2.0, rel=0.1)
    assert made.sample_sizes[0].designs[0].examples == pytest.approx(needed_examples(0.2, sd=math.sqrt(2)), rel=0.1)


def test_two_run_groups_on_the_same_examples_are_paired() -> None:
    spec, sides = recorded_spec(400), normal_values(400, 1, between=1.0, within=0.1)
    store_experiments({"old": sides["old"]}, spec, age=3)
    store_experiments({"new": sides["new"]}, spec, age=2)
    made = metric_of(plan(spec, 0.2)).variance
    assert made is not None and made.source == "two_sides"
    assert made.variance == pytest.approx(1.02, rel=0.15)
    other = recorded_spec(0, dataset={"rows": dataset_rows(30), "name": "other"})
    elsewhere = metric_of(plan(other, 0.2)).variance
    assert elsewhere is not None and elsewhere.source == "one_side", "of another dataset, and never compared"


def test_without_history_the_variance_of_a_bounded_metric_is_guessed() -> None:
    """The sd is sqrt(0.5 * 0.5 + 0.5 * 0.5); a function annotated to return a bool is a yes/no metric."""
    made = plan(recorded_spec(50, evaluators=["contains"]), 0.1)
    assert sample_sizes(made).designs[0].examples == needed_examples(0.1, sd=math.sqrt(0.5))
    assert any(sentence.startswith("contains: estimated from a cautious guess") for sentence in sentences_of(made))
    scale = {"use": "rubric", "args": {"rubric": "good"}, "connection": "local"}  # from 1 to 5
    assert (
        sample_sizes(plan(recorded_spec(50, evaluators=[scale]), 0.4)).designs[0].examples
        == sample_sizes(made).designs[0].examples
    )


def test_without_history_the_variance_of_an_unbounded_metric_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "free_scores.py").write_text("def free(outputs):\n    return 3.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = plan(recorded_spec(50, evaluators=["free_scores:free"]), 0.1)
    assert metric_of(made).variance is None and metric_of(made).sample_sizes == ()
    assert "free: unknown, since no experiment in the store has it; run it on 50 examples first" in sentences_of(made)


def test_a_version_that_a_gate_rejected_does_not_count(make: Callable[..., Any]) -> None:
    store_experiments(normal_values(300, 1, between=1.0, within=0.1), recorded_spec(300), age=9)
    store_experiments(normal_values(300, 1, between=4.0, within=0.1), recorded_spec(300), age=1)
    rejected = make("decisions", decision_id="d", candidate_experiment_id="exp-1-new", conclusion="FAIL")
    Store().publish("decisions", "d", [rejected])
    made = metric_of(plan(recorded_spec(300), 0.1)).variance
    of_accepted = "new against old of 2025-12-23, 300 examples"
    assert made is not None and made.basis == f"{of_accepted}; left out: 1 experiment that a gate rejected"


def give_estimates(make: Callable[..., Any], age: int) -> None:
    """Give the stored experiments of an age a described evaluator and its mean, as a run does."""
    estimate = {"metric": "quality", "evaluator_version": "v1", "slice": None, "mean": 1.0, "n_examples": 60}
    for owner in (f"exp-{age}-old", f"exp-{age}-new"):
        (row,) = Store().read("experiments", owner)
        described = to_json([{"name": "quality", "version": "v1"}])
        Store().publish("experiments", owner, [replace(row, evaluators=described)])
        Store().publish("estimates", owner, [make("estimates", experiment_id=owner, **estimate)])


def test_a_judge_that_decides_nothing_or_is_another_version_is_no_basis(make: Callable[..., Any]) -> None:
    """A judge that says yes to everything fails its controls: that no pair differed says nothing."""
    judge = {"use": "rubric", "name": "quality", "args": {"rubric": "good"}, "connection": "local"}
    spec = recorded_spec(60, metrics={"quality": {"range": [0, 1]}})
    values = np.random.default_rng(2).random((60, 1))
    for age, group in ((9, "group of 2025-12-23"), (1, "group of 2025-12-31")):
        store_experiments({"old": np.ones((60, 1)), "new": np.ones((60, 1)) if age == 1 else values}, spec, age=age)
        give_estimates(make, age)
        if age == 1:
            batch = controls_batch(group)
            failed = {"subject_kind": "judge", "subject_id": "quality", "name": "controls", "passed": False}
            Store().publish("checks", batch, [make("checks", check_id="c", batch_id=batch, message="m", **failed)])
    made = metric_of(plan(spec, 0.1)).variance
    assert made is not None and made.source == "two_sides" and made.variance > 0.05
    assert made.basis.endswith("; left out: 2 experiments whose judge decides nothing")
    by_model = metric_of(plan(recorded_spec(60, evaluators=[judge])))
    assert by_model.variance is not None and by_model.variance.source == "guess"
    assert by_model.variance.basis.endswith("nothing, 2 experiments by another version of the judge")


def test_scores_before_a_drift_of_the_judge_are_no_basis_nor_those_of_a_judge_that_is_blind_now(
    make: Callable[..., Any],
) -> None:
    spec = recorded_spec(60)
    for age, between in ((9, 1.0), (5, 1.0), (1, 3.0)):
        store_experiments(normal_values(60, 1, between=between, within=0.1), spec, age=age)
        give_estimates(make, age)
    since = START - timedelta(days=2)
    drift = {"subject_kind": "judge", "subject_id": "quality", "name": "drift", "column_name": "quality"}
    observed = to_json({"version": "v1", "since": since.isoformat()})
    check = make("checks", check_id="d", batch_id="drift-b", passed=False, observed=observed, **drift)
    Store().publish("checks", "drift-b", [check])
    made = metric_of(plan(spec, 0.1)).variance
    assert made is not None and made.variance == pytest.approx(9.0, rel=0.5)
    assert made.basis.endswith("; left out: 4 experiments whose judge has drifted since")

    of = {"metric": "quality", "evaluator": "quality", "evaluator_version": "v1"}
    anchor = {"experiment_id": "exp-1-new", "run_id": "group of 2025-12-31", **of}
    anchors = [
        make("sentinels", sentinel_id=f"{n}", status="scored", known=n % 2, value=1.0, judged_at=at, **anchor)
        for n, at in enumerate([since - timedelta(days=1)] * 20 + [since + timedelta(days=1)] * 20)
    ]
    Store().publish("sentinels", "exp-1-new", anchors)
    blind = metric_of(plan(spec, 0.1)).variance
    assert blind is not None and blind.source == "guess"
    assert blind.basis.endswith("; left out: 6 experiments whose judge decides nothing")


def test_pairs_that_never_differed_are_assumed_to_differ_rarely() -> None:
    """After 60 equal pairs, at most 3 in 60 differ; but a difference of 0.1 means that one pair in ten differs."""
    spec = recorded_spec(60, evaluators=["contains"])
    same = np.ones((60, 1))
    store_experiments({"old": same, "new": same}, spec, metric="contains", is_yes_no=True)
    made = metric_of(plan(spec, 0.1)).variance
    assert made is not None and (made.source, made.variance) == ("guess", 0.05)
    assert "all differences were the same in new against old" in made.basis
    assert sample_sizes(plan(spec, 0.1)).designs[0].examples == needed_examples(0.1, sd=math.sqrt(0.09))
    gated = recorded_spec(60, evaluators=["contains"], gates=[{"name": "g", "non_inferiority": {"contains": 0.05}}])
    assert sample_sizes(plan(gated, None)).if_none_differs == 73, "as many as the gate says"
    needed = needed_for_margin(0.05, 3 / 60)
    assert sample_sizes(plan(gated, None)).designs[0].examples == needed
    said = f"about {about(needed)} examples are needed if 3 in 60 differ, and about 73 if, as so far, no pair differs"
    assert any(said in sentence for sentence in sentences_of(plan(gated, None)))
    draws = np.random.default_rng(5).multinomial(needed, [1.5 / 60, 1.5 / 60, 57 / 60], 2000)
    passed = [paired_share_interval(*draw[:2], needed, confidence_level=0.95)[0] > -0.05 for draw in draws.tolist()]
    assert 0.75 <= np.mean(passed) <= 0.9 and needed < 300
    assert sample_sizes(plan(spec, 0.01)).designs[0].examples == needed_examples(0.01, sd=math.sqrt(0.05))


def test_measures_and_pass_at_k_metrics_can_be_planned() -> None:
    spec = recorded_spec(300, repetitions=2, metrics={"quality": {"pass_k": [2], "pass_threshold": 0.0}})
    store_experiments(normal_values(300, 2, between=0.5, within=1.0), spec)
    made = plan(spec, 0.1, metrics=["quality pass^2", "latency"])
    first, second = made.metrics
    assert first.variance is not None and first.variance.source == "two_sides" and not first.variance.is_split
    assert (
        second.variance is None and second.reason is not None and "no experiment in the store has it" in second.reason
    )
