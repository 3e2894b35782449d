"""Values with a long tail: a non-inferiority rule that is met says so if the sample is small."""

from typing import Any

import numpy as np
import pytest
from in_memory import values_of
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from evalflows.analysis.evaluate_rules import evaluate_rules
from evalflows.analysis.pairing import UNBOUNDED, PairedMetric, Scale
from evalflows.analysis.rule_estimates import DifferenceEstimate
from evalflows.analysis.rule_texts import ENOUGH_FOR_TAILS
from evalflows.analysis.rules import Rule
from evalflows.specs.metrics import MetricSpec
from evalflows.store.described import Kind


def text(candidate: Any, baseline: Any, kind: Kind = "non_inferiority", bound: float = 5.0, **settings: Any) -> str:
    scale = Scale(declared=MetricSpec(higher_is_better=True), support=UNBOUNDED, bounds=UNBOUNDED)
    sides = [
        values_of("m", np.asarray(side, dtype=float), is_yes_no=False, **settings) for side in (candidate, baseline)
    ]
    paired = PairedMetric(candidate=sides[0], baseline=sides[1], clusters=None, scale=scale, confidence_level=0.95)
    rules = [(Rule(kind=kind, metric="m", bound=bound), DifferenceEstimate(paired))]
    (result,) = evaluate_rules(rules, {}, confidence_level=0.95, min_examples=10, adjustment="holm")
    return f"{result.outcome}: {result.text}"


def tailed(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return np.exp(rng.normal(size=n)), np.exp(rng.normal(size=n))


def test_a_rule_that_is_met_warns_of_a_long_tail() -> None:

    candidate, baseline = tailed(40)
    skewness = stats.skew(np.concatenate([candidate, baseline]), bias=False)
    warned = text(candidate, baseline)
    assert warned.startswith("met: ") and f"(skewness {skewness:.1f}), and 40 pairs" in warned
    assert "(skewness -" in text(-candidate, -baseline), "on either side"


@pytest.mark.parametrize(
    ("changes", "n"), [({"bound": 0.1}, 40), ({}, ENOUGH_FOR_TAILS)], ids=["a rule that is open", "many pairs"]
)
def test_others_do_not_warn(changes: dict[str, Any], n: int) -> None:
    assert "long tail" not in text(*tailed(n), **changes)


def test_without_a_range_a_small_sample_warns_always() -> None:
    rng = np.random.default_rng(4)
    few, many = (rng.normal(size=(2, n)) for n in (40, ENOUGH_FOR_TAILS))
    said = "no range is declared: 40 pairs may miss rare values that would be a loss"
    for kind in ("non_inferiority", "superiority"):
        assert text(*few, kind=kind, bound=5.0 if kind == "non_inferiority" else -5.0).endswith(said)
    assert "no range" not in text(*many)
    near = np.full((2, ENOUGH_FOR_TAILS), 50.0) + rng.normal(size=(2, ENOUGH_FOR_TAILS)) / 100
    assert "no range" in text(*near, bound=0.4), "one of 120 that is 0"
    assert "no range" not in text(*near, bound=0.6)


def test_symmetric_and_yes_no_values_have_no_long_tail() -> None:
    rng = np.random.default_rng(4)
    assert "long tail" not in text(rng.normal(size=40), rng.normal(size=40))
    rare = (rng.random((2, 200)) < 0.03).astype(float)
    assert "long tail" in text(*rare) and "long tail" not in text(*rare, is_binary=True)
    assert "long tail" not in text(np.ones(40), np.ones(40))
