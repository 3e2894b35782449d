"""Replicates of a pair: whole clusters are swapped, planted falls are as large as they are called."""

from typing import Any

import numpy as np
import pytest
from in_memory import in_memory, spec_of, values_of

from evalflows.analysis.backtest import Replicates, swap_sides, with_regression
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.analysis.rules import ReplicatedRule, outcomes, rules_of
from evalflows.specs.gate import GateSpec
from evalflows.stats.paired import paired_differences

N, COUNT = 60, 25
CLUSTERS = [f"c{place % 17}" for place in range(N)]
SPEC = spec_of(0.9, metrics={"tone": {"range": [0, 1]}})


def evaluation(gate: GateSpec, clusters: Any) -> GateEvaluation:
    """`right` yes or no, `tone` 0 to 1, `latency` in seconds; the candidate a little worse."""
    rng = np.random.default_rng(7)
    made: dict[str, list[Any]] = {
        "right": [rng.random(N) < rate for rate in (0.75, 0.8)],
        "tone": [rng.beta(8, 2, N) - shift for shift in (0.02, 0.0)],
        "latency": [rng.gamma(4, 0.25, N) + shift for shift in (0.05, 0.0)],
    }
    by_side = [{metric: values_of(metric, both[place]) for metric, both in made.items()} for place in (0, 1)]
    return GateEvaluation(gate=gate, pair=in_memory(*by_side, SPEC, clusters))


def test_replicates_err_as_often_as_new_pairs_without_a_difference_do() -> None:
    """Forty pairs, each of it many times over, and 4,000 new pairs of yes and no that are as often yes."""
    rng, gate = np.random.default_rng(0), GateSpec(non_inferiority={"right": 0.1}, min_examples=10)
    (rule,) = rules_of(gate)
    ours, theirs = (rng.random((2, 4000, N)) < 0.8).astype(float)
    found = paired_differences(ours, theirs, binary=True)
    tested = ReplicatedRule(
        rule=rule, worst_case_interval_at=found.interval_at, p_value=found.p_value, n=N, higher_is_better=True
    )
    (anew,) = outcomes([tested], confidence_level=0.9, min_examples=10, adjustment="holm")
    decisions = []
    for place in range(40):
        one, other = ({"right": values_of("right", side[place] == 1)} for side in (ours, theirs))
        held = GateEvaluation(gate=gate, pair=in_memory(one, other, SPEC))
        decisions.append(Replicates(evaluation=held, count=100, seed=place).decisions())
    # Three standard errors of 4,000 are 2 % at most; those of forty pairs, by their noise, some more.
    assert np.mean([one.passed for one in decisions]) == pytest.approx((anew == "met").mean(), abs=0.05)
    assert np.mean([one.failed for one in decisions]) == pytest.approx((anew == "broken").mean(), abs=0.01)


@pytest.mark.parametrize("metric", ["right", "tone", "latency"])
def test_a_planted_fall_is_as_large_as_it_is_called(metric: str) -> None:
    gate = GateSpec.model_validate({"non_inferiority": {metric: 0.1}})
    drawn = Replicates(evaluation=evaluation(gate, None), count=400, seed=0)
    paired = drawn.evaluation.compared[metric]
    before = swap_sides(paired, drawn.swaps)
    after = with_regression(paired, before, 0.2, 0)
    change = float((after.candidate - before.candidate).mean())
    # Of yes and no by chance: a standard error of 0.4 / sqrt(400 x 60).
    assert change == pytest.approx(0.2 if metric == "latency" else -0.2, abs=0.01)
    assert np.array_equal(after.baseline, before.baseline)
    if metric != "latency":
        assert after.candidate.min() >= 0


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
    assert 0.1 < (decisions[0] == "broken").mean() < 0.9
    assert np.array_equal(*decisions)
