"""The vectorised rules of the null replicates say of each replicate what the gate's own evaluation says of it."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import in_memory, spec_of, values_of

from evalflows.analysis.backtest import BROKEN, MET, Replicates, swap_sides
from evalflows.analysis.gate_evaluation import COMPARED, GateEvaluation
from evalflows.analysis.gates import RuleResult, conclusion_of, evaluate_rules
from evalflows.specs.gate import GateSpec
from evalflows.store.queries.values import MetricValues
from evalflows.store.records import Reason

CODES = {MET: "met", BROKEN: "broken"}
METRICS = ("right", "tone", "points", "latency")
COUNT = 6


@st.composite
def evaluations(draw: st.DrawFn) -> GateEvaluation:
    """A gate, and a pair: `right` is yes or no, `tone` has a range, `points` has none, `latency` is measured."""
    n = draw(st.sampled_from([12, 24, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    clusters = draw(st.sampled_from([None, [f"c{place % 9}" for place in range(n)], _uneven_clusters(n)]))
    weights = draw(st.sampled_from([None, None, np.where(np.arange(n) < n // 3, 1.0, 4.0)]))
    repetitions, apart = draw(st.sampled_from([1, 1, 3])), draw(st.sampled_from([0.0, 0.05, 0.3]))
    paired = []
    for shift in (apart, 0.0):
        failed, abstains = draw(st.sampled_from([0.0, 0.0, 0.1])), draw(st.sampled_from([0.0, 0.0, 0.2]))
        values = {metric: _drawn(metric, rng, n, repetitions, shift) for metric in METRICS}
        paired.append({one: _partly(values[one], rng, failed, abstains, weights, repetitions, one) for one in METRICS})
    if draw(st.booleans()):  # both sides the same: an unbounded metric has no spread then
        paired[1]["points"] = paired[0]["points"]
    ranges = {"tone": {"range": [0, 1]}}
    if draw(st.booleans()):
        ranges["latency"] = {"range": [0, 3]}
    pair = in_memory(*paired, spec_of(draw(st.sampled_from([0.8, 0.95])), metrics=ranges), clusters)
    return GateEvaluation(gate=draw(gates()), pair=pair)


@st.composite
def gates(draw: st.DrawFn) -> GateSpec:
    """Rules of any kind, with margins up to the metric's width and beyond it."""
    margins, rises = st.sampled_from([0.02, 0.1, 0.4, 1.0, 1.5]), st.sampled_from([0.0, 0.03, 0.2])
    return GateSpec.model_validate(
        {
            "non_inferiority": draw(st.dictionaries(st.sampled_from(METRICS), margins, min_size=1)),
            "superiority": draw(st.dictionaries(st.sampled_from(METRICS), rises, max_size=2)),
            "thresholds": draw(st.dictionaries(st.sampled_from(METRICS), st.just(0.5), max_size=1)),
            "confident_thresholds": draw(
                st.dictionaries(st.sampled_from(METRICS), st.sampled_from([0.3, 0.9]), max_size=2)
            ),
            "adjustment": draw(st.sampled_from(["holm", "benjamini_hochberg", "none"])),
            "min_examples": draw(st.sampled_from([2, 10, 25])),
        }
    )


def _uneven_clusters(n: int) -> list[str | None]:
    return [None if place % 5 == 0 else f"c{int(place**0.7)}" for place in range(n)]


def _drawn(metric: str, rng: np.random.Generator, n: int, repetitions: int, worse: float) -> Any:
    """One value an example: of yes and no a share, where it has several repetitions."""
    if metric == "right":
        return (rng.random((n, repetitions)) < 0.8 - worse).mean(axis=1)
    if metric == "tone":
        return np.clip(rng.beta(8, 2, n) - worse, 0, 1)
    return rng.gamma(4, 0.25, n) + (worse if metric == "latency" else -worse)


def _partly(
    values: Any, rng: np.random.Generator, failed: float, abstains: float, weights: Any, repetitions: int, metric: str
) -> MetricValues:
    """The same with some that failed, of which nothing or a part is known, and some to which it does not apply."""
    drawn = rng.random(len(values))
    n_missing, silent = drawn < failed, drawn > 1 - abstains
    is_yes_no, gone = metric == "right", silent | (n_missing & (rng.random(len(values)) < 0.7))
    binary = is_yes_no and repetitions == 1
    values = np.where(gone, np.nan, values)
    return values_of(metric, values, missing=n_missing, weights=weights, is_yes_no=is_yes_no, is_binary=binary)


def _evaluated_replicate(drawn: Replicates, number: int, planted: dict[str, float]) -> list[RuleResult]:
    """What becomes of each rule on one replicate, by the gate's own evaluation of it."""
    whole = drawn.evaluation
    pair = whole.pair
    ours, theirs = dict(pair.values), dict(pair.baseline_values)
    for metric, paired in whole.compared.items():
        made = swap_sides(paired, drawn.swaps)
        made = made.with_regression(planted[metric], drawn.seed) if metric in planted else made
        of_ours, of_theirs = made.candidate_missing[number], made.baseline_missing[number]
        ours[metric] = replace(paired.candidate, values=made.candidate[number], missing=of_ours)
        theirs[metric] = replace(paired.baseline, values=made.baseline[number], missing=of_theirs)
    one = GateEvaluation(gate=whole.gate, pair=in_memory(ours, theirs, pair.spec, pair.clusters))
    held = [
        compared if compared[0].kind in COMPARED else as_it_is  # floors speak of one side, which is not swapped
        for as_it_is, compared in zip(whole.estimates, one.estimates, strict=True)
    ]
    gate = whole.gate
    found = evaluate_rules(
        held, confidence_level=pair.spec.confidence_level, min_examples=gate.min_examples, adjustment=gate.adjustment
    )
    return [
        result
        for (rule, estimates), result in zip(held, found, strict=True)
        if rule.kind != "threshold" and not isinstance(estimates, Reason)
    ]


@settings(max_examples=12, deadline=None)
@given(evaluations(), st.booleans())
def test_vectorised_rules_are_as_the_evaluation_of_each_replicate(evaluation: GateEvaluation, plants: bool) -> None:
    if not evaluation.compared:
        assert evaluation.conclusion != "PASS"  # its margins are as wide as their metrics
        return
    drawn = Replicates(evaluation=evaluation, count=COUNT, seed=1)
    planted = {next(iter(evaluation.compared)): 0.15} if plants else {}
    together, decisions = drawn.outcomes(planted), drawn.decisions(planted)
    for number in range(0, COUNT, 2):
        outcomes = [CODES.get(int(codes[number]), "open") for _, codes in together]
        found = _evaluated_replicate(drawn, number, planted)
        assert outcomes == [result.outcome for result in found]
        compared = [result for result in found if result.rule in COMPARED]
        conclusion, broken = conclusion_of(compared), {one.metric for one in compared if one.outcome == "broken"}
        assert (decisions.failed[number], decisions.passed[number]) == (conclusion == "FAIL", conclusion == "PASS")
        assert decisions.caught[number] == bool(broken & planted.keys())
