"""Numbers of only two values: which stand for no and yes, and that their results are those of yes/no, rescaled."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evalflows.analysis.evaluate_rules import evaluate_rules
from evalflows.analysis.pairing import UNBOUNDED, PairedMetric, Scale, paired_metric
from evalflows.analysis.rule_estimates import DifferenceEstimate
from evalflows.analysis.rules import Rule
from evalflows.analysis.verdicts import classify
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.paired import paired_difference
from evalflows.store.queries.values import MEASURED, MetricValues, has_two_values

HUNDRED = (0.0, 100.0)


def values_of(numbers: Any, missing: Any = None, *, evaluator: str = "e") -> MetricValues:
    values = np.array(numbers, dtype=float)
    is_missing = np.zeros(values.size, dtype=bool) if missing is None else np.array(missing)
    values[is_missing] = np.nan
    return MetricValues(
        metric="m",
        evaluator=evaluator,
        evaluator_version="1",
        is_yes_no=False,
        is_binary=has_two_values(evaluator, values),
        values=values,
        missing=is_missing,
        scored=int((~is_missing).sum()),
        n_missing=int(is_missing.sum()),
        weights=np.ones(values.size),
    )


def paired(candidate: Any, baseline: Any, support: tuple[float, float], **changes: Any) -> PairedMetric:
    scale = Scale(declared=MetricSpec(higher_is_better=True), support=support, bounds=support)
    sides = {"candidate": values_of(candidate), "baseline": values_of(baseline), "clusters": None} | changes
    return PairedMetric(**sides, scale=scale, confidence_level=0.95)


def answers(n: int, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.random(n) < 0.5).astype(float), (rng.random(n) < 0.7).astype(float)


@pytest.mark.parametrize(
    ("values", "support", "ends"),
    [
        ([0, 1, 1], UNBOUNDED, (0, 1)),
        ([1, 1, 1], UNBOUNDED, (0, 1)),
        ([0, 100, np.nan], HUNDRED, HUNDRED),
        ([100, 100], HUNDRED, HUNDRED),
        ([0, 1, 1], HUNDRED, None),
        ([0, 50, 100], HUNDRED, None),
        ([0, 100] * 10, UNBOUNDED, HUNDRED),
        ([-1, 1] * 10, UNBOUNDED, (-1, 1)),
        ([0, 100] * 9, UNBOUNDED, None),
        ([100] * 20, UNBOUNDED, None),
        ([0, 0.0], (0.0, np.inf), None),
    ],
)
def test_which_two_numbers_stand_for_no_and_yes(values: Any, support: Any, ends: Any) -> None:
    scale = Scale(declared=MetricSpec(), support=support, bounds=support)
    assert scale.yes_no_ends(np.array(values, dtype=float)) == ends


def test_a_constant_on_each_side_is_no_yes_or_no() -> None:
    scale = Scale(declared=MetricSpec(higher_is_better=True), support=UNBOUNDED, bounds=UNBOUNDED)
    constant, varied = (np.array(values, dtype=float) for values in ([7] * 30, [7, 9] * 15))
    assert scale.yes_no_ends(constant, constant + 2) is None
    assert scale.yes_no_ends(constant, varied) == (7, 9)
    assert has_two_values("e", np.array([0.0, 3.0, np.nan, 3.0])) and not has_two_values("e", np.array([0.0, 1.0, 2.0]))
    assert not has_two_values(MEASURED, np.array([0.0, 0.0])), "a measure is never yes or no"


@pytest.mark.parametrize("clusters", [None, [str(place // 4) for place in range(60)]])
@pytest.mark.parametrize("support", [UNBOUNDED, HUNDRED])
def test_the_difference_is_that_of_yes_and_no_rescaled(support: Any, clusters: Any) -> None:
    candidate, baseline = answers(60)
    found = paired(100 * candidate, 100 * baseline, support, clusters=clusters).difference(0.95)
    expected = paired_difference(candidate, baseline, clusters, binary=True)
    assert (found.p_value, found.method, found.n_clusters) == (expected.p_value, expected.method, expected.n_clusters)
    for name in ("candidate_mean", "baseline_mean", "difference", "low", "high", "standard_error"):
        assert getattr(found, name) == pytest.approx(100 * getattr(expected, name), abs=1e-10)


def test_missing_values_are_counted_as_the_ends_of_the_range() -> None:
    candidate, baseline = answers(40)
    missing = np.arange(40) < 3
    pair = replace(paired(candidate, 100 * baseline, HUNDRED), candidate=values_of(100 * candidate, missing))
    expected = paired_difference(np.where(missing, 0.0, candidate), baseline, binary=True)
    lowest = pair.worst_case_difference("smallest", 0.95)
    assert lowest is not None and lowest.low is not None and expected.low is not None
    assert (lowest.p_value, lowest.low) == (expected.p_value, pytest.approx(100 * expected.low))


@pytest.mark.parametrize(("other", "decides"), [(1.0, True), (2.0, False)])
def test_a_missing_value_counts_as_0_or_1_if_all_values_of_both_sides_do(other: float, decides: bool) -> None:
    rng, n = np.random.default_rng(5), 120
    baseline = (rng.random(n) < 0.65).astype(float)
    candidate = np.maximum(baseline, rng.random(n) < 0.6)
    baseline[7] = other
    spec = ExperimentSpec.model_validate(
        {
            "name": "n",
            "dataset": {"rows": [{"inputs": "q"}]},
            "targets": [{"kind": "python", "name": "bot", "function": "bot:answer"}],
        }
    )
    sides = [
        replace(values_of(side, np.arange(n) % 20 == first), are_0_or_1=bool((side <= 1).all()))
        for first, side in enumerate((candidate, baseline))
    ]
    pair = paired_metric(sides[0], sides[1], None, spec)
    (verdict,), estimate = classify([pair.difference_test()], "holm"), DifferenceEstimate(pair)
    (result,) = evaluate_rules(
        [(Rule(kind="superiority", metric="m", bound=0.0), estimate)],
        {"m": verdict},
        confidence_level=0.95,
        min_examples=20,
        adjustment="holm",
    )
    counted = "12 pairs with a missing value, counted as 0 or 1, could not change that"
    said = (pair.difference(0.95).warning or "").startswith("12 pairs have a missing value: it counts as 0 or 1")
    assert (verdict.conclusion == "better", result.outcome == "met", counted in result.text, said) == (decides,) * 4
    assert decides or verdict.reason_code == "missing_unbounded"
