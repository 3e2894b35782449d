"""A rule on a slice says what the same rule says of experiments that have only the examples of the slice."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from past import ABSTAINED, FAILED, Past, passes

from evalflows import decide_on
from evalflows.analysis.backtest import backtest
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.analysis.interim import InterimAnalyses, interim_difference, interim_mean
from evalflows.analysis.pairing import MetricSample
from evalflows.analysis.rules import Estimate
from evalflows.specs.errors import InputError
from evalflows.specs.gate import GateSpec
from evalflows.store.records import Reason
from evalflows.store.sql import connect

N = 120
LEVELS = {"right": 0.9, "points": 0.4, "answer_length": 1.9}


def fields_of(place: int) -> dict[str, Any]:
    return {
        "split": "hard" if place % 3 else "easy",
        "metadata": {"topic": {"law": bool(place % 2 == 0)}, "n": int(place % 4)},
    }


SLICES = {
    "split=hard": lambda place: place % 3 != 0,
    "metadata.topic.law=true": lambda place: place % 2 == 0,
    "metadata.n=3": lambda place: place % 4 == 3,
}


def scores(seed: int, rate: float, repetitions: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    right = passes(rate, N, seed, repetitions).astype(float)
    right[rng.random(right.shape) < 0.03] = FAILED
    right[5] = ABSTAINED
    return {"right": right, "points": rng.random((N, repetitions)) * rate}


def evaluated(past: Past, gate: GateSpec) -> GateEvaluation:
    spec = past.spec(metrics={"points": {"range": [0, 1]}})
    baseline, candidate = past.rows
    pair = ExperimentPair(reader=MetricReader(past.store), spec=spec, candidate=candidate, baseline=baseline)
    return GateEvaluation(gate=gate, pair=pair)


def kept(places: np.ndarray[Any, Any], clustered: bool, repetitions: int) -> Past:
    """A baseline and a candidate with these examples alone."""
    clusters = [f"c{place // 3}" for place in places] if clustered else None
    past = Past(clusters=clusters, repetitions=repetitions, fields=[fields_of(place) for place in places])
    for seed, rate in ((1, 0.8), (2, 0.7)):
        given = {metric: values[places] for metric, values in scores(seed, rate, repetitions).items()}
        past.experiment(given, yes_no=["right"], examples=[f"e{place}" for place in places])
    return past


@pytest.mark.parametrize(
    ("of_slice", "clustered", "repetitions"),
    [("split=hard", True, 2), ("metadata.topic.law=true", False, 1), ("metadata.n=3", True, 1)],
)
def test_a_slice_is_an_experiment_of_its_examples(
    of_slice: str, clustered: bool, repetitions: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    everything = np.arange(N)
    places = everything[[SLICES[of_slice](place) for place in everything]]
    gate = {
        kind: {f"{metric}@{of_slice}": bound for metric, bound in LEVELS.items()}
        for kind, bound in (("non_inferiority", 0.2), ("thresholds", 0.6), ("confident_thresholds", 0.4))
    } | {"superiority": [f"{metric}@{of_slice}" for metric in LEVELS], "min_examples": 5}
    whole = evaluated(kept(everything, clustered, repetitions), GateSpec.model_validate(gate)).rule_results
    monkeypatch.setenv("EVALFLOWS_STORE", str(tmp_path / "slice"))
    alone_gate = {
        kind: [name.partition("@")[0] for name in rules]
        if isinstance(rules, list)
        else {name.partition("@")[0]: bound for name, bound in rules.items()}
        if isinstance(rules, dict)
        else rules
        for kind, rules in gate.items()
    }
    alone = evaluated(kept(places, clustered, repetitions), GateSpec.model_validate(alone_gate)).rule_results
    assert [asdict(replace(one, metric=one.metric.partition("@")[0], text="")) for one in whole] == [
        asdict(replace(one, text="")) for one in alone
    ]
    assert [one.text.replace(f"@{of_slice}", "") for one in whole] == [one.text for one in alone]
    assert {one.outcome for one in whole} >= {"met", "open"}


def test_a_slice_has_a_verdict_and_a_row_of_its_own_beside_the_metric() -> None:
    past = kept(np.arange(N), False, 1)
    gate = GateSpec(non_inferiority={"right": 0.3, "right@split=hard": 0.3}, thresholds={"right@split=easy": 0.1})
    row = decide_on("exp-001", "exp-000", gate)
    assert row.conclusion == "PASS", row.summary
    with connect() as catalog:
        verdicts = catalog.execute("select metric, slice, n_pairs from verdicts order by slice nulls first").fetchall()
        rules = catalog.execute("select metric, outcome, n_pairs from gate_rules order by metric").fetchall()
    pairs = {slice_of: n for _, slice_of, n in verdicts}
    assert [verdict[:2] for verdict in verdicts] == [("right", None), ("right", "split=easy"), ("right", "split=hard")]
    assert pairs[None] == pairs["split=easy"] + pairs["split=hard"]
    assert rules == [
        ("right", "met", pairs[None]),
        ("right@split=easy", "met", pairs["split=easy"]),
        ("right@split=hard", "met", pairs["split=hard"]),
    ]
    assert past.store.read("verdicts", row.decision_id)


def test_each_slice_is_adjusted_for_as_a_rule_of_its_own() -> None:
    past = kept(np.arange(N), False, 1)
    one = evaluated(past, GateSpec(confident_thresholds={"right@split=hard": 0.85}))
    three = evaluated(past, GateSpec(confident_thresholds={"right@split=hard": 0.85, "right": 0.1, "points": 0.1}))
    (alone,), (first, *_) = one.rule_results, three.rule_results
    assert alone.p_below is not None and first.p_below == alone.p_below
    assert (alone.p_adjusted, first.p_adjusted) == (alone.p_below, pytest.approx(3 * alone.p_below))


def test_too_few_examples_leave_the_rule_open_and_a_slice_without_any_is_refused() -> None:
    kept(np.arange(N), False, 1)
    row = decide_on("exp-001", "exp-000", GateSpec(thresholds={"right@metadata.n=1": 0.1}, min_examples=40))
    assert row.conclusion == "NOT ENOUGH EVIDENCE"
    assert "28 examples; wanted at least 40 to decide" in row.summary
    for name, known in (("right@split=hrad", "wanted one of: easy, hard"), ("right@metadata.n=x", "0, 1, 2, 3")):
        with pytest.raises(InputError, match=f"gate 'release': {name}: no example has .*{known}"):
            decide_on("exp-001", "exp-000", GateSpec(thresholds={name: 0.1}))


def test_a_slice_that_examples_have_left_since_the_baseline_is_not_compared() -> None:
    """The candidate fails in law, and its failed examples are called another topic."""
    fails = np.arange(N) < 20
    past = Past(fields=[{"metadata": {"topic": "law"}} for _ in range(N)])
    past.experiment({"right": np.ones(N)}, yes_no=["right"])
    past.fields = [{"metadata": {"topic": "billing" if fail else "law"}} for fail in fails]
    past.experiment({"right": np.where(fails, 0.0, 1.0)}, yes_no=["right"])
    sliced, whole = (
        evaluated(past, GateSpec(non_inferiority={name: 0.2})) for name in ("right@metadata.topic=law", "right")
    )
    assert sliced.conclusion == "NOT ENOUGH EVIDENCE"
    assert "20 shared examples are in metadata.topic=law on one side only" in sliced.summary
    assert "refused" not in whole.summary


@pytest.mark.slow
def test_a_backtest_simulates_slices_beside_whole_metrics() -> None:
    past = kept(np.arange(N), True, 1)
    without = backtest(past.store, GateSpec(non_inferiority={"right@split=none": 0.1}), replicates=10)
    assert [decision.conclusion for decision in without.decisions] == ["NOT ENOUGH EVIDENCE"]
    assert without.decisions[0].because == "right@split=none: no example has split=none" and without.simulated is None
    rules = {"right@split=hard": 0.4, "right": 0.4, "points@metadata.n=3": 0.5}
    gate = GateSpec(non_inferiority=rules, min_examples=5)
    simulated = backtest(past.store, gate, past.spec(metrics={"points": {"range": [0, 1]}}), replicates=100).simulated
    assert simulated is not None
    assert (simulated.failed.share or 0) <= 0.05
    assert {fall.metric for fall in simulated.falls} == {*rules}
    assert all((fall.caught.share or 0) > 0.8 for fall in simulated.falls if fall.times == 3 and fall.metric == "right")


# Interim analyses


def analyses(order: np.ndarray[Any, Any], after: list[int]) -> InterimAnalyses:
    ranks = np.empty(order.size, dtype=np.intp)
    ranks[order] = np.arange(order.size)
    return InterimAnalyses(ranks=ranks, after=after, n_done=after[-1], n_examples=order.size)


def figures(estimate: Estimate | Reason) -> Any:
    assert not isinstance(estimate, Reason)
    facts = estimate.facts
    return facts.value, facts.n, facts.n_missing, estimate.worst_case_interval_at(0.95), facts.worst_case_values


def test_interim_analyses_of_a_slice_are_those_of_its_examples_in_the_running_order() -> None:
    name, places = "points@split=hard", np.array([place for place in range(N) if place % 3])
    pair = evaluated(kept(np.arange(N), True, 1), GateSpec(thresholds={"points": 0.5})).pair
    order = np.random.default_rng(0).permutation(N // 3)
    order = np.concatenate([np.arange(3 * block, 3 * block + 3) for block in order])  # clusters stay together
    after = [30, 60, 90]
    of_slice = [place for place in order if place % 3]
    seen = [sum(1 for place in order[:end] if place % 3) for end in after]
    renumbered = np.searchsorted(places, of_slice)
    whole, alone = analyses(order, after), analyses(renumbered, seen)
    sample, paired = pair.sample(name), pair.paired(name)
    assert isinstance(sample, MetricSample) and paired is not None and pair.matched_in(name) is not None
    own = np.arange(places.size)
    assert figures(interim_mean(sample, whole, pair.sample_places(name))) == figures(interim_mean(sample, alone, own))
    shared = pair.matched_in(name).candidate  # type: ignore[union-attr]
    assert figures(interim_difference(paired, whole, shared)) == figures(interim_difference(paired, alone, own))
    first_without = np.array(sorted(range(N), key=lambda place: (place % 3 != 0, place)))
    found = interim_mean(sample, analyses(first_without, [30]), pair.sample_places(name))
    assert found == Reason("no_finished_batch", "none of its examples has run yet")


def test_of_a_missing_repetition_interim_analyses_count_no_other_repetition_as_missing() -> None:
    answers = np.tile([1.0, 0.0], (40, 1))
    past = Past(repetitions=2)
    past.experiment({"m": answers}, yes_no=["m"])
    past.experiment({"m": np.r_[[[FAILED, 1.0]], answers[1:]]}, yes_no=["m"])
    pair = evaluated(past, GateSpec(non_inferiority={"m": 0.3})).pair
    sample, paired, everything = pair.sample("m"), pair.paired("m"), np.arange(40)
    assert isinstance(sample, MetricSample) and paired is not None
    at_once = analyses(everything, [40])
    for estimate in (interim_mean(sample, at_once, everything), interim_difference(paired, at_once, everything)):
        assert not isinstance(estimate, Reason)
        low, high = estimate.facts.worst_case_values or (np.nan, np.nan)
        assert (high - low, estimate.facts.n_missing) == (pytest.approx(0.5 / 40), 1)
