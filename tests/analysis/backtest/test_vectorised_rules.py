"""Rules on many replicates at once say of each what `evalflows.analysis.gates.rules` says of it alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from in_memory import in_memory, spec_of, values_of

from evalflows.analysis.backtest.null_replicates import Replicates, swap_sides
from evalflows.analysis.backtest.vectorised_rules import BROKEN, MET, outcomes, replicate_differences
from evalflows.analysis.gates.gate_evaluation import COMPARED, GateEvaluation
from evalflows.analysis.gates.rule_results import conclusion_of, evaluate_rules
from evalflows.analysis.gates.rules import rules_of
from evalflows.specs.gate import GateSpec
from evalflows.stats.differences.paired_many import paired_differences

N, COUNT = 60, 25
CLUSTERS = [f"c{place % 17}" for place in range(N)]
SPEC = spec_of(0.9, metrics={"tone": {"range": [0, 1]}})


def evaluation(gate: GateSpec, clusters: Any, *, n_missing: bool = False, weighted: bool = False) -> GateEvaluation:
    """`right` yes or no, `tone` 0 to 1, `latency` in seconds; the candidate a little worse."""
    rng = np.random.default_rng(7)
    missing: list[Any] = [rng.random(N) < 0.05 if n_missing else None for _ in range(2)]
    weights = np.where(np.arange(N) < 30, 1.0, 4.0) if weighted else None
    made: dict[str, list[Any]] = {
        "right": [rng.random(N) < rate for rate in (0.75, 0.8)],
        "tone": [rng.beta(8, 2, N) - shift for shift in (0.02, 0.0)],
        "latency": [rng.gamma(4, 0.25, N) + shift for shift in (0.05, 0.0)],
    }
    if n_missing:  # a value may be missing, and one may not apply
        made["tone"] = [np.where(gone, np.nan, one) for one, gone in zip(made["tone"], missing, strict=True)]
        made["tone"][0][3] = np.nan
    by_side = [
        {
            metric: values_of(metric, both[place], missing=missing[place], weights=weights)
            for metric, both in made.items()
        }
        for place in (0, 1)
    ]
    return GateEvaluation(gate=gate, pair=in_memory(*by_side, SPEC, clusters))


def decision_on_replicate(drawn: Replicates, number: int, planted: Mapping[str, float]) -> tuple[str, set[str]]:
    """The conclusion by guards and goals on one replicate, and which metrics they find broken."""
    gate, one = drawn.evaluation.gate, on_replicate(drawn, number, planted)
    held = [
        estimates if rule.kind in COMPARED else (rule, as_it_is)
        for (rule, as_it_is), estimates in zip(drawn.evaluation.estimates, one.estimates, strict=True)
    ]
    ruled = evaluate_rules(held, confidence_level=0.9, min_examples=gate.min_examples, adjustment=gate.adjustment)
    compared = [result for result in ruled if result.rule in COMPARED]
    return conclusion_of(compared), {result.metric for result in compared if result.outcome == "broken"}


def on_replicate(drawn: Replicates, number: int, planted: Mapping[str, float]) -> GateEvaluation:
    """The gate's own evaluation of one replicate."""
    pair, by_side = drawn.evaluation.pair, ({}, {})
    for metric, paired in drawn.evaluation.compared.items():
        made = swap_sides(paired, drawn.swaps)
        made = made.with_regression(planted[metric], drawn.seed) if metric in planted else made
        of_sides = (made.candidate, made.candidate_missing), (made.baseline, made.baseline_missing)
        for side, old, (values, missing) in zip(by_side, (paired.candidate, paired.baseline), of_sides, strict=True):
            side[metric] = replace(old, values=values[number], missing=missing[number])
    ours, theirs = ({**old, **side} for old, side in zip((pair.values, pair.baseline_values), by_side, strict=True))
    return GateEvaluation(gate=drawn.evaluation.gate, pair=in_memory(ours, theirs, pair.spec, pair.clusters))


GATES: dict[str, dict[str, Any]] = {
    "one guard": {"non_inferiority": {"right": 0.03}},
    "three guards": {"non_inferiority": {"right": 0.04, "tone": 0.01, "latency": 0.05}},
    "a goal": {"superiority": ["tone"], "non_inferiority": {"right": 0.1}},
    "a rise": {"superiority": {"tone": 0.02}},
    "sure floors": {
        "non_inferiority": {"tone": 0.01},
        "confident_thresholds": {"right": 0.9, "latency": 0.9},
        "thresholds": {"tone": 0.5},
    },
}
DATA: dict[str, dict[str, Any]] = {
    "plain": {"clusters": None},
    "clusters": {"clusters": CLUSTERS},
    "n_missing": {"clusters": None, "n_missing": True},
    "lost in clusters": {"clusters": CLUSTERS, "n_missing": True},
    "weighted": {"clusters": None, "weighted": True},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "data", "adjustment"),
    [
        *((rules, data, "holm") for rules in GATES for data in ("plain", "lost in clusters")),
        *(("three guards", data, "holm") for data in ("clusters", "n_missing", "weighted")),
        *(("three guards", "plain", adjustment) for adjustment in ("benjamini_hochberg", "none")),
    ],
)
def test_replicates_together_are_as_they_are_alone(rules: str, data: str, adjustment: str) -> None:
    gate = GateSpec.model_validate(GATES[rules] | {"adjustment": adjustment, "min_examples": 10})
    drawn = Replicates(evaluation=evaluation(gate, **DATA[data]), count=COUNT, seed=3)
    first = next(iter(gate.non_inferiority), None)
    for planted in ({}, {first: 0.12} if first else {}):
        decisions = drawn.decisions(planted)
        for number in range(0, COUNT, 6):
            conclusion, broken = decision_on_replicate(drawn, number, planted)
            assert (decisions.failed[number], decisions.passed[number]) == (conclusion == "FAIL", conclusion == "PASS")
            assert decisions.caught[number] == bool(broken & planted.keys())


@pytest.mark.parametrize("rules", GATES)
def test_what_is_compared_is_not_always_the_same(rules: str) -> None:
    gate = GateSpec.model_validate(GATES[rules] | {"min_examples": 10})
    decisions = Replicates(evaluation=evaluation(gate, None), count=200, seed=3).decisions()
    seen = {(bool(failed), bool(passed)) for failed, passed in zip(decisions.failed, decisions.passed, strict=True)}
    assert len(seen) > 1 and (True, True) not in seen


def test_replicates_err_as_often_as_new_pairs_without_a_difference_do() -> None:
    """Forty pairs, each of it many times over, and 4,000 new pairs of yes and no that are as often yes."""
    rng, gate = np.random.default_rng(0), GateSpec(non_inferiority={"right": 0.1}, min_examples=10)
    (rule,) = rules_of(gate)
    ours, theirs = (rng.random((2, 4000, N)) < 0.8).astype(float)
    found = paired_differences(ours, theirs, binary=True)
    estimates = replicate_differences(found, (found, found), higher_is_better=True)
    (anew,) = outcomes([(rule, estimates)], confidence_level=0.9, min_examples=10, adjustment="holm")
    decisions = []
    for place in range(40):
        one, other = ({"right": values_of("right", side[place] == 1)} for side in (ours, theirs))
        held = GateEvaluation(gate=gate, pair=in_memory(one, other, SPEC))
        decisions.append(Replicates(evaluation=held, count=100, seed=place).decisions())
    # Three standard errors of 4,000 are 2 % at most; those of forty pairs, by their noise, some more.
    assert np.mean([one.passed for one in decisions]) == pytest.approx((anew == MET).mean(), abs=0.05)
    assert np.mean([one.failed for one in decisions]) == pytest.approx((anew == BROKEN).mean(), abs=0.01)


def test_of_too_few_nothing_is_decided() -> None:
    gate = GateSpec.model_validate({"non_inferiority": {"tone": 0.01}, "min_examples": N + 1})
    decisions = Replicates(evaluation=evaluation(gate, None), count=COUNT, seed=0).decisions({"tone": 0.5})
    assert not decisions.failed.any() and not decisions.passed.any() and not decisions.caught.any()


@pytest.mark.parametrize("metric", ["right", "tone", "latency"])
def test_a_planted_fall_is_as_large_as_it_is_called(metric: str) -> None:
    gate = GateSpec.model_validate({"non_inferiority": {metric: 0.1}})
    drawn = Replicates(evaluation=evaluation(gate, None), count=400, seed=0)
    paired = drawn.evaluation.compared[metric]
    before = swap_sides(paired, drawn.swaps)
    after = before.with_regression(0.2, 0)
    change = float((after.candidate - before.candidate).mean())
    # Of yes and no by chance: a standard error of 0.4 / sqrt(400 x 60).
    assert change == pytest.approx(0.2 if metric == "latency" else -0.2, abs=0.01)
    assert np.array_equal(after.baseline, before.baseline)
    if metric != "latency":
        assert after.candidate.min() >= 0


def test_no_fall_is_larger_than_its_values_allow() -> None:
    gate = GateSpec.model_validate({"non_inferiority": {"tone": 0.5}})
    drawn = Replicates(evaluation=evaluation(gate, None), count=5, seed=0)
    assert drawn.feasible_regression("tone", 3.0) == pytest.approx(0.8, abs=0.05)
    assert drawn.feasible_regression("tone", 0.5) == 0.5
    assert swap_sides(drawn.evaluation.compared["tone"], drawn.swaps).with_regression(
        3.0, 0
    ).candidate.max() == pytest.approx(0.0)


def test_whole_clusters_are_swapped() -> None:
    swaps = Replicates(evaluation=evaluation(GateSpec(non_inferiority={"tone": 0.1}), CLUSTERS), count=50, seed=0).swaps
    for cluster in set(CLUSTERS):
        places = [place for place, one in enumerate(CLUSTERS) if one == cluster]
        assert (swaps[:, places] == swaps[:, places[:1]]).all()
    assert 0.4 < swaps.mean() < 0.6


def test_a_rule_on_too_few_examples_does_not_count_among_those_that_could_fail() -> None:
    rng = np.random.default_rng(0)
    few = np.where(np.arange(N) < 8, 0.5, np.nan)
    by_side = [
        {"right": values_of("right", rng.random(N) < rate), "tone": values_of("tone", few)} for rate in (0.7, 0.85)
    ]
    decisions = []
    for non_inferiority in ({"right": 0.05}, {"right": 0.05, "tone": 0.1}):
        gate = GateSpec.model_validate({"non_inferiority": non_inferiority, "min_examples": 10})
        held = GateEvaluation(gate=gate, pair=in_memory(*by_side, SPEC))
        ((_, codes), *_) = Replicates(evaluation=held, count=300, seed=0).outcomes({"right": 0.15})
        decisions.append(codes)
    assert 0.1 < (decisions[0] == BROKEN).mean() < 0.9
    assert np.array_equal(*decisions)
