"""A gate held against a past whose truth is known: who would have been blocked, how often it errs, what it catches."""

from typing import Any

import numpy as np
import pytest
from past import FAILED, START, Past, guard, passes

from evalflows.analysis.backtest import Backtest, backtest
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.specs.gate import GateSpec

N = 200


def history(rates: dict[str, list[float]], **fields: Any) -> Past:
    """Experiments of some targets, each with the rate at which it is right, in the order given."""
    past = Past()
    for target, each in rates.items():
        for rate in each:
            past.experiment({"right": passes(rate, N, seed=len(past.rows))}, target_version=target, **fields)
    return past


def held(past: Past, gate: GateSpec | None = None, **how: Any) -> Backtest:
    return backtest(past.store, gate or guard(), **({"replicates": 0} | how))


def by_pair(found: Backtest) -> dict[tuple[str, str], str]:
    return {(one.candidate, one.baseline): one.conclusion for one in found.decisions}


# Past pairs


def test_a_planted_regression_would_have_been_blocked_and_what_is_as_good_would_not() -> None:
    past = history({"good": [0.9], "as good": [0.9], "bad": [0.6]})
    found = held(past, guard(0.1))
    said = by_pair(found)
    assert said["exp-002", "exp-000"] == said["exp-002", "exp-001"] == "FAIL"
    assert said["exp-001", "exp-000"] == "PASS"
    assert (found.past.n, found.past.failed, found.past.passed, found.past.open) == (3, 2, 1, 0)
    (worst,) = [one for one in found.decisions if (one.candidate, one.baseline) == ("exp-002", "exp-000")]
    assert worst.broken == ["non_inferiority right"] and "worse by more than 0.1" in worst.because


def test_the_newest_come_first_and_what_is_left_out_is_counted() -> None:
    past = history({"a": [0.9], "b": [0.9], "c": [0.9], "d": [0.9]})
    found = held(past, limit=4)
    assert [(one.candidate, one.baseline) for one in found.decisions] == [
        ("exp-003", "exp-002"),
        ("exp-003", "exp-001"),
        ("exp-003", "exp-000"),
        ("exp-002", "exp-001"),
    ]
    assert found.left_out == 2 and "2 older pairs were left out" in found.sentences[0]


def test_other_versions_of_an_evaluator_are_refused_and_not_blocked() -> None:
    past = Past()
    for rate, version in ((0.9, "e1"), (0.3, "e2")):
        past.experiment({"right": passes(rate, N, seed=1)}, target_version=version, judged_by=version)
    found = held(past, replicates=50)
    assert (found.past.n, found.past.failed, found.past.open, found.past.refused) == (1, 0, 0, 1)
    assert found.decisions[0].n_shared == N
    assert found.decisions[0].is_refused and "a different version" in found.decisions[0].because
    assert found.simulated is None
    assert "1 could not be compared (not counted as blocked)" in found.sentences[0]


def test_what_is_of_other_examples_or_lacks_a_metric_or_is_not_complete_makes_no_pair() -> None:
    past = Past()
    right = {"right": passes(0.9, 30, seed=0)}
    past.experiment(right, target_version="a")
    past.experiment(right, target_version="b", dataset_name="other", examples=[f"x{i}" for i in range(30)])
    past.experiment({"tone": passes(0.9, 30, seed=0)}, target_version="c")
    past.experiment(right, target_version="d", state="incomplete")
    assert held(past).decisions == []
    past.experiment(
        right, target_version="e", dataset_name="another", examples=[*(f"e{i}" for i in range(25)), *"uvwxy"]
    )
    (decision,) = held(past).decisions
    assert (decision.candidate, decision.baseline, decision.n_shared) == ("exp-004", "exp-000", 25)
    assert held(past, guard(min_examples=26)).decisions == []
    anew = [f"y{i}" for i in range(30)]
    past.experiment(right, target_version="f", dataset_name=past.rows[0].dataset_name, examples=anew)
    found = held(past, replicates=5)
    assert len(found.decisions) == 1 and found.simulated and found.simulated.pairs == 1
    assert "1 pair with fewer than 20 shared examples (min_examples) was left out" in found.sentences


def test_the_baseline_of_that_time_comes_first_and_is_called_so() -> None:
    past = history({"a": [0.9], "b": [0.9]})
    past.approve(past.rows[0])
    past.experiment({"right": passes(0.9, N, seed=5)}, target_version="c")
    past.approve(past.rows[2])
    past.experiment({"right": passes(0.9, N, seed=6)}, target_version="d")
    said = [(one.candidate, one.baseline, one.relation) for one in held(past).decisions]
    assert said == [
        ("exp-003", "exp-002", "baseline"),
        ("exp-003", "exp-001", "earlier"),
        ("exp-003", "exp-000", "earlier"),
        ("exp-002", "exp-000", "baseline"),
        ("exp-002", "exp-001", "earlier"),
        ("exp-001", "exp-000", "baseline"),
    ]


def test_of_one_start_the_baseline_target_is_the_baseline() -> None:
    past = Past()
    targets = [{"kind": "python", "name": name, "function": "bot:answer"} for name in ("old", "new", "newer")]
    for seed, name in enumerate(("old", "new", "newer")):
        of: dict[str, Any] = {"run_group": "one", "started_at": START, "target_version": name, "target": name}
        past.experiment({"right": passes(0.9, N, seed=seed)}, spec=past.spec(targets=targets), **of)
    said = {(one.candidate, one.baseline, one.relation) for one in held(past).decisions}
    assert said == {("exp-001", "exp-000", "baseline"), ("exp-002", "exp-000", "baseline")}


def test_what_a_backtest_does_not_do_is_noted() -> None:
    past = history({"a": [0.9], "b": [0.6]})
    thresholds_alone = held(past, GateSpec(thresholds={"right": 0.5}), replicates=10)
    assert thresholds_alone.decisions == [] and thresholds_alone.simulated is None
    assert "only thresholds" in thresholds_alone.notes[0]
    (one,) = held(past).decisions
    for gate, noted in ((guard(batch=20), "interim analyses"), (guard(baseline="production:watch@24h"), "production")):
        found = held(past, gate)
        assert found.decisions == [one] and (one.conclusion, one.relation) == ("FAIL", "earlier")
        assert noted in found.notes[0]


def test_it_says_what_the_gate_itself_says() -> None:
    """As `evalflows gate` would, with all of a gate's rules, with clusters, and with what is missing."""
    past, rng = Past(clusters=[f"c{place // 3}" for place in range(60)]), np.random.default_rng(3)
    spec = past.spec(metrics={"tone": {"range": [-5, 10]}})
    for place in range(3):
        tone = rng.normal(3 - 0.2 * (place == 2), 0.4, 60)
        tone[place] = FAILED
        right = rng.random(60) < (0.85 if place < 2 else 0.6)
        past.experiment({"right": right, "tone": tone}, target_version=f"v{place}", spec=spec)
    gate = GateSpec(
        non_inferiority={"right": 0.1, "tone": 0.3},
        superiority=["tone"],
        thresholds={"right": 0.7},
        confident_thresholds={"tone": 2},
    )
    rows = {row.name: row for row in past.rows}
    found = held(past, gate)
    assert len(found.decisions) == 3 and {one.conclusion for one in found.decisions} >= {"FAIL", "NOT ENOUGH EVIDENCE"}
    for one in found.decisions:
        candidate, baseline = rows[one.candidate], rows[one.baseline]
        pair = ExperimentPair(reader=MetricReader(past.store), spec=spec, candidate=candidate, baseline=baseline)
        evaluation = GateEvaluation(gate=gate, pair=pair)
        assert (one.conclusion, one.because) == (evaluation.conclusion, evaluation.summary)


# The same target twice


def test_the_very_same_values_twice_show_nothing_of_chance() -> None:
    past = Past()
    for _ in range(3):
        past.experiment({"right": passes(0.8, N, seed=1)})
    found = held(past)
    assert (found.same_target.n, found.same_target.identical, found.same_target.fail.n) == (3, 3, 0)
    assert "3 more pairs of the same target had identical values" in " ".join(found.sentences)


def test_repetitions_are_split_into_halves() -> None:
    past = Past(repetitions=4)
    for seed in range(2):
        past.experiment({"right": passes(0.8, N, seed=seed, repetitions=4)}, target_version=f"v{seed}")
    found = held(past, guard(0.03))
    halves = [one for one in found.decisions if one.relation == "halves"]
    assert (len(halves), found.halves.n, found.halves.failed, found.halves.experiments) == (2, 2, 0, 2)
    assert found.halves.fail.n == 2
    assert held(past, guard(0.03), seed=1).decisions != found.decisions


def test_a_half_is_a_yes_or_no_where_it_is_one_run_and_what_failed_is_missing() -> None:
    past = Past(repetitions=2)
    tone = np.random.default_rng(0).normal(size=(40, 2))
    tone[:3, 0] = FAILED
    past.experiment({"right": passes(0.8, 40, seed=0, repetitions=2), "tone": tone})
    gate = GateSpec(non_inferiority={"right": 0.1, "tone": 0.1})
    (one,) = held(past, gate).decisions
    assert one.conclusion == "NOT ENOUGH EVIDENCE"
    assert "3 pairs with a missing value" in one.because and "no declared range" in one.because


# Replicates


def simulated(rate: float, margin: float, replicates: int = 1000, **how: Any) -> Any:
    past = Past()
    for seed in range(2):
        past.experiment({"right": passes(rate, N, seed=seed)}, target_version=f"v{seed}")
    found = held(past, guard(margin), replicates=replicates, **how).simulated
    assert found is not None
    return found


def test_without_a_difference_it_is_blocked_as_seldom_as_allowed_and_a_seed_repeats_it() -> None:
    found = simulated(0.8, 0.01)
    # One-sided at 2.5 %, and the truth is better than the margin; three standard errors of 1,000 are 1.5 %.
    assert found.failed.share < 0.04 and found.failed.n == 1000
    once, again, *others = (simulated(0.8, 0.01, 50, seed=seed) for seed in (4, 4, 5, 6))
    assert once == again
    shares = {(found.failed.share, found.passed.share) for found in (once, *others)}  # without planted falls
    assert len(shares) > 1


def test_a_fall_that_values_do_not_allow_is_said() -> None:
    past = history({"a": [0.9], "b": [0.9]})
    found = held(past, guard(0.4), replicates=20)
    assert found.simulated is not None
    assert found.simulated.falls[2].reached == pytest.approx(0.9, abs=0.05)
    assert "; its values allow 0." in found.sentences[-1]
