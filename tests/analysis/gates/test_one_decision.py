"""The table of results, a gate and its backtest say the same of the same two experiments."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from past import ABSTAINED, FAILED, NOT_DRAWN, Past, guard

from evalflows.analysis.backtest import backtest
from evalflows.analysis.differences import ExperimentPair, MetricReader, verdicts_on
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.records import ExperimentRow, VerdictRow

NOT_INFERIOR = ("better", "no_worse", "equivalent")


def table(
    reader: MetricReader, spec: ExperimentSpec, candidate: ExperimentRow, baseline: ExperimentRow
) -> dict[str, VerdictRow]:
    """The verdicts of the table of results, by metric."""
    return {one.metric: one for one in verdicts_on(reader, [baseline, candidate], spec)}


def evaluated(
    reader: MetricReader, spec: ExperimentSpec, gate: GateSpec, candidate: ExperimentRow, baseline: ExperimentRow
) -> GateEvaluation:
    pair = ExperimentPair(reader=reader, spec=spec, candidate=candidate, baseline=baseline)
    return GateEvaluation(gate=gate, pair=pair)


@pytest.mark.parametrize("not_drawn", [0, 30])
def test_a_candidate_that_abstains_where_it_is_wrong_is_nowhere_better_for_it(not_drawn: int) -> None:
    """200 examples, of which the baseline has 40 wrong; the candidate has the others right, and abstains on the 40. The
    judge of a sample judges no other answers."""
    past, right = Past(), (np.arange(200) >= 40).astype(float)
    answers, rest = np.where(np.arange(200) < 160, 1.0, ABSTAINED), np.full(not_drawn, NOT_DRAWN)
    baseline = past.experiment({"right": np.append(right, rest)}, yes_no=["right"], target_version="old")
    candidate = past.experiment({"right": np.append(answers, rest)}, yes_no=["right"], target_version="new")
    reader, spec, gate = MetricReader(past.store), past.spec(), guard(0.05)
    verdict = table(reader, spec, candidate, baseline)["right"]
    one = evaluated(reader, spec, gate, candidate, baseline)
    (again,) = backtest(past.store, gate, spec, replicates=0).decisions
    assert (verdict.difference, verdict.candidate_missing) == (0.25, 40)
    assert verdict.conclusion == "not_enough_evidence" and "40 pairs with a missing value" in str(verdict.reason)
    assert one.conclusion == again.conclusion == "NOT ENOUGH EVIDENCE"
    assert "40 pairs with a missing value" in one.summary and again.because == one.summary


@pytest.mark.parametrize("lacking", [ABSTAINED, FAILED])
def test_runs_that_lack_a_value_count_at_their_worst_not_the_whole_example(lacking: float) -> None:
    """The candidate is right in fewer of 4 repetitions, and has no value in the others."""
    past, rng = Past(), np.random.default_rng(2)
    right, wrong = rng.random((100, 4)) < 0.75, rng.random((100, 4)) < 0.55
    baseline = past.experiment({"right": right}, yes_no=["right"], target_version="old")
    answers = np.where(wrong, lacking, 1.0)
    candidate = past.experiment({"right": answers}, yes_no=["right"], target_version="new")
    reader, spec, gate = MetricReader(past.store), past.spec(), GateSpec(superiority=["right"])
    verdict = table(reader, spec, candidate, baseline)["right"]
    assert (verdict.difference or 0.0) > 0.2
    assert verdict.worst_case_low == pytest.approx((answers == 1).mean() - right.mean())
    assert verdict.conclusion == "not_enough_evidence" and verdict.reason_code == "missing_could_flip"
    assert evaluated(reader, spec, gate, candidate, baseline).conclusion == "NOT ENOUGH EVIDENCE"


@pytest.mark.parametrize("aggregation", ["weighted_mean", "minimum"])
def test_a_part_of_a_composite_that_applies_to_one_answer_alone_counts_as_missing(aggregation: str) -> None:
    past, rng = Past(), np.random.default_rng(3)
    right, polite = rng.random((2, 100)) < 0.75
    abstains = rng.random(100) < 0.55

    def quality(right: Any, polite: Any) -> Any:
        return 0.75 * right + 0.25 * polite if aggregation == "weighted_mean" else np.minimum(right, polite)

    both = {"right": right, "polite": polite, "quality": quality(right, polite)}
    baseline = past.experiment({name: side.astype(float) for name, side in both.items()}, target_version="old")
    answered = {
        "right": np.where(abstains, ABSTAINED, 1.0),
        "polite": polite.astype(float),
        "quality": np.where(abstains, polite, quality(1.0, polite)),
    }
    candidate = past.experiment(answered, target_version="new")
    composite = {"name": "quality", "weights": {"right": 3, "polite": 1}, "aggregation": aggregation}
    reader, spec = MetricReader(past.store), past.spec(composites=[composite])
    verdict = table(reader, spec, candidate, baseline)["quality"]
    assert verdict.candidate_missing == abstains.sum()
    worst = quality(~abstains, polite) if aggregation == "weighted_mean" else np.where(abstains, 0.0, polite)
    assert verdict.worst_case_low == pytest.approx(worst.mean() - both["quality"].mean())


def test_missing_values_that_could_flip_a_rule_are_why_its_metric_is_undecided() -> None:
    """The candidate gives the same answers, except that 60 of 200 failed."""
    past, right = Past(), np.arange(200.0) % 4 > 0
    baseline = past.experiment({"right": right}, yes_no=["right"], target_version="old")
    failed = np.where(np.arange(200) < 60, FAILED, right)
    candidate = past.experiment({"right": failed}, yes_no=["right"], target_version="new")
    reader, spec = MetricReader(past.store), past.spec()
    alone = table(reader, spec, candidate, baseline)["right"]
    one = evaluated(reader, spec, GateSpec(non_inferiority={"right": 0.05}), candidate, baseline)
    (rule,), (verdict,) = one.rule_results, one.verdict_rows("dec")
    assert rule.reason_code == verdict.reason_code == alone.reason_code == "missing_could_flip"
    assert alone.minimum_detectable_effect is verdict.minimum_detectable_effect is None


@pytest.mark.parametrize(("change", "why"), [(0.0, "no_significant_difference"), (-0.5, "no_spread")])
def test_no_variation_without_a_range_leaves_everything_open(change: float, why: str) -> None:
    past, points = Past(), np.random.default_rng(0).integers(0, 9, 30).astype(float)
    baseline = past.experiment({"points": points}, target_version="old")
    candidate = past.experiment({"points": points + change}, target_version="new")
    reader, spec = MetricReader(past.store), past.spec(metrics={"points": {"margin": 0.3}})
    gate = GateSpec(non_inferiority={"points": 0.3}, superiority=["points"])
    verdict = table(reader, spec, candidate, baseline)["points"]
    assert (verdict.conclusion, verdict.reason_code) == ("not_enough_evidence", why)
    assert evaluated(reader, spec, gate, candidate, baseline).conclusion == "NOT ENOUGH EVIDENCE"
    assert [past.conclusion for past in backtest(past.store, gate, spec, replicates=0).decisions] == [
        "NOT ENOUGH EVIDENCE"
    ]


@pytest.mark.parametrize(("n", "is_same"), [(20, True), (100, False)])
def test_numbers_that_are_all_0_or_1_are_decided_like_yes_and_no(n: int, is_same: bool) -> None:
    rng = np.random.default_rng(1)
    old, new = rng.random(n) < 0.7, rng.random(n) < 0.7
    new = old if is_same else new
    by_kind = []
    for kind in (bool, float):
        past = Past()
        baseline = past.experiment({"right": old.astype(kind)}, target_version="old")
        candidate = past.experiment({"right": new.astype(kind)}, target_version="new")
        reader, spec = MetricReader(past.store), past.spec(metrics={"right": {"margin": 0.1}})
        gate = GateSpec(non_inferiority={"right": 0.1}, thresholds={"right": 0.5})
        verdict = table(reader, spec, candidate, baseline)["right"]
        decision = evaluated(reader, spec, gate, candidate, baseline)
        (again,) = backtest(past.store, gate, spec, replicates=0).decisions
        by_kind.append((verdict.conclusion, verdict.ci_low, verdict.ci_high, verdict.p_value, verdict.method))
        by_kind.append((decision.conclusion, decision.summary, again.conclusion, again.because))
    assert by_kind[:2] == by_kind[2:]
    if is_same and n == 20:
        assert by_kind[1][0] == "NOT ENOUGH EVIDENCE"


@pytest.mark.parametrize("margin", [0.05, 0.1])
def test_a_rule_is_called_significantly_worse_where_the_table_has_the_metric_so(margin: float) -> None:
    """Of three metrics one differs by chance, one with p = 0.027 before the adjustment, and one surely."""
    noise = np.random.default_rng(0).normal(size=100)
    noise = 0.2 * (noise - noise.mean()) / noise.std()
    past, differences = Past(), {"none": 0.0, "barely": -0.045, "surely": -0.08}
    baseline = past.experiment({metric: np.zeros(100) for metric in differences}, target_version="old")
    shifted = {metric: noise + difference for metric, difference in differences.items()}
    candidate = past.experiment(shifted, target_version="new")

    def called(*metrics: str) -> tuple[list[str], list[str]]:
        gate = GateSpec(non_inferiority=dict.fromkeys(metrics, margin))
        one = evaluated(MetricReader(past.store), past.spec(), gate, candidate, baseline)
        said = [rule.metric for rule in one.rule_results if "significantly worse" in rule.text]
        rows = one.verdict_rows("dec")
        return said, [r.metric for r in rows if r.conclusion == "worse" or r.reason_code == "worse_within_margin"]

    assert called(*differences) == (["surely"], ["surely"])
    assert called("barely") == (["barely"], ["barely"])


class World(NamedTuple):
    """Experiments on the same questions, which differ in how good they are and in what they leave out."""

    metric: str
    margin: float
    n: int
    repetitions: int = 1
    clusters: int | None = None  # how large they are
    bounds: tuple[float, float] | None = None


WORLDS = (
    World("right", 0.15, 90, clusters=3),
    World("right", 0.1, 40, repetitions=3),
    World("tone", 0.3, 60, bounds=(-5, 10)),
    World("tone", 20, 30, bounds=(-5, 10)),  # as wide as the metric, and wider
    World("points", 0.3, 50),
)
EACH = 5
"""Experiments of a world: 10 pairs."""


def history(world: World, seed: int) -> Past:
    rng = np.random.default_rng(seed)
    clusters = [f"c{place // world.clusters}" for place in range(world.n)] if world.clusters else None
    past = Past(clusters=clusters, repetitions=world.repetitions)
    for place in range(EACH):
        past.experiment(
            {world.metric: _scores(world, rng, worse=rng.choice([0, 0.05, 0.3]))},
            yes_no=["right"],
            target_version=f"v{place}",
        )
    return past


def _scores(world: World, rng: np.random.Generator, worse: float) -> Any:
    fewer = 0 if world.clusters else rng.choice([0, 0, 7])  # only the examples that both have are compared
    shape = (world.n - fewer, world.repetitions)
    given = rng.random(shape) < 0.85 - worse if world.metric == "right" else rng.normal(3 - worse, 0.5, shape)
    drawn, failed, abstains = rng.random(shape), rng.choice([0, 0, 0.04]), rng.choice([0, 0, 0.06])
    return np.where(drawn < failed, FAILED, np.where(drawn > 1 - abstains, ABSTAINED, given.astype(float)))


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: "-".join(str(part) for part in world[:5]))
def test_table_gate_and_backtest_say_the_same_of_every_drawn_pair(world: World) -> None:
    past, gate = history(world, seed=WORLDS.index(world)), guard(min_examples=20)
    declared = {"margin": world.margin} | ({"range": world.bounds} if world.bounds else {})
    spec = past.spec(metrics={world.metric: declared})
    gate = gate.model_copy(update={"non_inferiority": {world.metric: world.margin}, "only_shared": True})
    rows, reader = {row.name: row for row in past.rows}, MetricReader(past.store)
    found = [one for one in backtest(past.store, gate, spec, replicates=0).decisions if one.relation != "halves"]
    assert len(found) == EACH * (EACH - 1) / 2
    for past_decision in found:
        pair = rows[past_decision.candidate], rows[past_decision.baseline]
        one, verdict = evaluated(reader, spec, gate, *pair), table(reader, spec, *pair)[world.metric]
        assert (past_decision.conclusion, past_decision.because) == (one.conclusion, one.summary)
        assert (one.conclusion == "PASS") == (verdict.conclusion in NOT_INFERIOR and verdict.margin is not None)
        assert not (one.conclusion == "FAIL" and verdict.conclusion in NOT_INFERIOR)
        assert figures(verdict) == figures(next(one.verdict_rows("dec")))
        (result,) = one.rule_results
        if result.n is not None:
            assert (result.value, result.low, result.high) == (verdict.difference, verdict.ci_low, verdict.ci_high)


def figures(verdict: VerdictRow) -> tuple[Any, ...]:
    """What a verdict rests on, and what it says."""
    ends = verdict.ci_low, verdict.ci_high, verdict.worst_case_ci_low, verdict.worst_case_ci_high
    counts = verdict.n_pairs, verdict.candidate_missing, verdict.baseline_missing
    return (verdict.difference, verdict.p_value, verdict.margin, verdict.conclusion, *ends, *counts)
