"""Rules on many replicates at once say of each what `tasks.rules` says of it alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specs.gate import GateSpec
from specs.metric import MetricSpec
from stats.paired_many import paired_differences
from store.values import MetricValues
from tasks.measured import measured_difference, measured_mean
from tasks.outcomes import BROKEN, MET, many_of_difference, outcomes
from tasks.replay import COMPARED, Replay
from tasks.replicates import Replicates, swapped
from tasks.rules import concluded, rules_of, rulings
from tasks.sides import Scale, Side, Sides

N, COUNT = 60, 25
UNIT = Scale(declared=MetricSpec(higher_is_better=True), reach=(0.0, 1.0), bounds=(0.0, 1.0))
SECONDS = Scale(declared=MetricSpec(higher_is_better=False), reach=(0.0, np.inf), bounds=(0.0, np.inf))
CLUSTERS = [f"c{place % 17}" for place in range(N)]


def values(given: Any, *, binary: bool = False, missing: Any = None, weights: Any = None) -> MetricValues:
    return MetricValues(
        metric="a metric",
        evaluator="a metric",
        evaluator_version="v1",
        is_yes_no=binary,
        is_binary=binary,
        values=np.asarray(given, dtype=float),
        missing=np.zeros(N, dtype=bool) if missing is None else missing,
        scored=N,
        lost=0,
        weights=np.ones(N) if weights is None else weights,
    )


def replay(gate: GateSpec, clusters: Any, *, lost: bool = False, weighted: bool = False) -> Replay:
    """`right` yes or no, `tone` 0 to 1, `latency` in seconds; the candidate a little worse."""
    rng = np.random.default_rng(7)
    missing: list[Any] = [rng.random(N) < 0.05 if lost else None for _ in range(2)]
    weights = np.where(np.arange(N) < 30, 1.0, 4.0) if weighted else None
    made: dict[str, list[Any]] = {
        "right": [rng.random(N) < rate for rate in (0.75, 0.8)],
        "tone": [rng.beta(8, 2, N) - shift for shift in (0.02, 0.0)],
        "latency": [rng.gamma(4, 0.25, N) + shift for shift in (0.05, 0.0)],
    }
    if lost:  # a value may be missing, and one may not apply
        made["tone"] = [np.where(gone, np.nan, one) for one, gone in zip(made["tone"], missing, strict=True)]
        made["tone"][0][3] = np.nan
    sides = {
        metric: Sides(
            candidate=values(ours, binary=metric == "right", missing=missing[0], weights=weights),
            baseline=values(theirs, binary=metric == "right", missing=missing[1], weights=weights),
            clusters=clusters,
            scale=SECONDS if metric == "latency" else UNIT,
            level=0.9,
        )
        for metric, (ours, theirs) in made.items()
    }
    measured = tuple((rule, _measured(rule.kind, sides[rule.metric])) for rule in rules_of(gate))
    return Replay(gate=gate, level=0.9, measured=measured, sides=sides, refused={})


def _measured(kind: str, sides: Sides) -> Any:
    if kind in COMPARED:
        return measured_difference(sides)
    return measured_mean(Side(values=sides.candidate, clusters=sides.clusters, scale=sides.scale), 0.9)


def said_alone(drawn: Replicates, number: int, planted: dict[str, float]) -> tuple[str, set[str]]:
    """The conclusion by guards and goals on one replicate, and which metrics they find broken."""
    held = []
    for rule, one in drawn.replay.measured:
        if rule.kind in COMPARED:
            sides = drawn.replay.sides[rule.metric]
            made = swapped(sides, drawn.swaps)
            if rule.metric in planted:
                made = made.fallen(planted[rule.metric], drawn.seed)
            ours = replace(sides.candidate, values=made.candidate[number], missing=made.candidate_missing[number])
            theirs = replace(sides.baseline, values=made.baseline[number], missing=made.baseline_missing[number])
            one = measured_difference(replace(sides, candidate=ours, baseline=theirs))
        held.append((rule, one))
    gate = drawn.replay.gate
    ruled = rulings(held, level=0.9, fewest=gate.fewest, adjustment=gate.adjustment)
    compared = [one for one in ruled if one.rule in COMPARED]
    return concluded(compared), {one.metric for one in compared if one.outcome == "broken"}


GATES: dict[str, dict[str, Any]] = {
    "one guard": {"guards": {"right": 0.03}},
    "three guards": {"guards": {"right": 0.04, "tone": 0.01, "latency": 0.05}},
    "a goal": {"goals": ["tone"], "guards": {"right": 0.1}},
    "a rise": {"goals": {"tone": 0.02}},
    "sure floors": {"guards": {"tone": 0.01}, "sure_floors": {"right": 0.9, "latency": 0.9}, "floors": {"tone": 0.5}},
}
DATA: dict[str, dict[str, Any]] = {
    "plain": {"clusters": None},
    "clusters": {"clusters": CLUSTERS},
    "lost": {"clusters": None, "lost": True},
    "lost in clusters": {"clusters": CLUSTERS, "lost": True},
    "weighted": {"clusters": None, "weighted": True},
}


@pytest.mark.parametrize(
    ("rules", "data", "adjustment"),
    [
        *((rules, data, "holm") for rules in GATES for data in ("plain", "lost in clusters")),
        *(("three guards", data, "holm") for data in ("clusters", "lost", "weighted")),
        *(("three guards", "plain", adjustment) for adjustment in ("benjamini_hochberg", "none")),
    ],
)
def test_replicates_together_are_as_they_are_alone(rules: str, data: str, adjustment: str) -> None:
    gate = GateSpec.model_validate(GATES[rules] | {"adjustment": adjustment, "fewest": 10})
    drawn = Replicates(replay=replay(gate, **DATA[data]), count=COUNT, seed=3)
    first = next(iter(gate.guards), None)
    for planted in ({}, {first: 0.12} if first else {}):
        said = drawn.said(planted)
        for number in range(0, COUNT, 6):
            conclusion, broken = said_alone(drawn, number, planted)
            assert (said.failed[number], said.passed[number]) == (conclusion == "FAIL", conclusion == "PASS")
            assert said.caught[number] == bool(broken & planted.keys())


@pytest.mark.parametrize("rules", GATES)
def test_what_is_compared_is_not_always_the_same(rules: str) -> None:
    gate = GateSpec.model_validate(GATES[rules] | {"fewest": 10})
    said = Replicates(replay=replay(gate, None), count=200, seed=3).said()
    seen = {(bool(failed), bool(passed)) for failed, passed in zip(said.failed, said.passed, strict=True)}
    assert len(seen) > 1 and (True, True) not in seen


def test_replicates_err_as_often_as_new_pairs_without_a_difference_do() -> None:
    """Forty pairs, each of it many times over, and 4,000 new pairs of yes and no that are as often yes."""
    rng, gate = np.random.default_rng(0), GateSpec(guards={"right": 0.1}, fewest=10)
    (rule,) = rules_of(gate)
    ours, theirs = (rng.random((2, 4000, N)) < 0.8).astype(float)
    found = paired_differences(ours, theirs, binary=True)
    measured = many_of_difference(found, (found, found), higher_is_better=True)
    (anew,) = outcomes([(rule, measured)], level=0.9, fewest=10, adjustment="holm")
    said = []
    for place in range(40):
        one, other = (values(side[place], binary=True) for side in (ours, theirs))
        sides = Sides(candidate=one, baseline=other, clusters=None, scale=UNIT, level=0.9)
        held = Replay(
            gate=gate, level=0.9, measured=((rule, measured_difference(sides)),), sides={"right": sides}, refused={}
        )
        said.append(Replicates(replay=held, count=100, seed=place).said())
    # Three standard errors of 4,000 are 2 % at most; those of forty pairs, by their noise, some more.
    assert np.mean([one.passed for one in said]) == pytest.approx((anew == MET).mean(), abs=0.05)
    assert np.mean([one.failed for one in said]) == pytest.approx((anew == BROKEN).mean(), abs=0.01)


def test_of_too_few_nothing_is_decided() -> None:
    gate = GateSpec.model_validate({"guards": {"tone": 0.01}, "fewest": N + 1})
    said = Replicates(replay=replay(gate, None), count=COUNT, seed=0).said({"tone": 0.5})
    assert not said.failed.any() and not said.passed.any() and not said.caught.any()


@pytest.mark.parametrize("metric", ["right", "tone", "latency"])
def test_a_planted_fall_is_as_large_as_it_is_called(metric: str) -> None:
    gate = GateSpec.model_validate({"guards": {metric: 0.1}})
    drawn = Replicates(replay=replay(gate, None), count=400, seed=0)
    sides = drawn.replay.sides[metric]
    before = swapped(sides, drawn.swaps)
    after = before.fallen(0.2, 0)
    change = float((after.candidate - before.candidate).mean())
    # Of yes and no by chance: a standard error of 0.4 / sqrt(400 x 60).
    assert change == pytest.approx(0.2 if metric == "latency" else -0.2, abs=0.01)
    assert np.array_equal(after.baseline, before.baseline)
    if metric != "latency":
        assert after.candidate.min() >= 0


def test_no_fall_is_larger_than_its_values_allow() -> None:
    gate = GateSpec.model_validate({"guards": {"tone": 0.5}})
    drawn = Replicates(replay=replay(gate, None), count=5, seed=0)
    assert drawn.reachable("tone", 3.0) == pytest.approx(0.8, abs=0.05)
    assert drawn.reachable("tone", 0.5) == 0.5
    assert swapped(drawn.replay.sides["tone"], drawn.swaps).fallen(3.0, 0).candidate.max() == pytest.approx(0.0)


def test_whole_clusters_are_swapped() -> None:
    swaps = Replicates(replay=replay(GateSpec(guards={"tone": 0.1}), CLUSTERS), count=50, seed=0).swaps
    for cluster in set(CLUSTERS):
        places = [place for place, one in enumerate(CLUSTERS) if one == cluster]
        assert (swaps[:, places] == swaps[:, places[:1]]).all()
    assert 0.4 < swaps.mean() < 0.6
