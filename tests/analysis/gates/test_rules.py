"""The rules of a gate: what surely holds, what surely does not, and what cannot be told."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from in_memory import values_of

from evalflows.analysis.evaluate_rules import conclusion_of, evaluate_rules
from evalflows.analysis.pairing import PairedMetric, Scale
from evalflows.analysis.recalibration import Recalibrated
from evalflows.analysis.rules import Estimate, Facts, Interval, Rule, rules_of
from evalflows.specs.gate import Adjustment, GateSpec
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.paired import paired_difference
from evalflows.store.records import Reason

RNG = np.random.default_rng(5)


IntervalAt = Callable[[float], Interval | None]


@dataclass(frozen=True)
class Stated:
    facts: Facts
    at: IntervalAt
    worst: IntervalAt

    def interval_at(self, confidence_level: float) -> Interval | None:
        return self.at(confidence_level)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        return self.worst(confidence_level)

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        return None


def difference(
    mean: float,
    n: int = 400,
    spread: float = 0.2,
    *,
    worst: IntervalAt | None = None,
    at: IntervalAt | None = None,
    **changes: Any,
) -> Stated:
    """A difference of exactly that mean, with nothing missing."""
    noise = RNG.normal(size=n)
    values = mean + spread * (noise - noise.mean()) / noise.std()
    found = paired_difference(values, np.zeros(n))

    def interval_at(confidence_level: float) -> Interval | None:
        one = paired_difference(values, np.zeros(n), confidence_level=confidence_level)
        return None if one.low is None or one.high is None else (one.low, one.high)

    facts: dict[str, Any] = {
        "value": mean,
        "worst_case_values": (mean, mean),
        "n": n,
        "noun": "pairs",
        "n_missing": 0,
        "higher_is_better": True,
        "p_value": found.p_value,
    }
    return Stated(Facts(**facts | changes), at or interval_at, worst or at or interval_at)


def ruled(gate: dict[str, Any], *estimates: Estimate | Reason) -> tuple[str, list[str]]:
    spec = GateSpec.model_validate(gate)
    found = evaluate_rules(
        list(zip(rules_of(spec), estimates, strict=True)),
        {},
        confidence_level=0.95,
        min_examples=spec.min_examples,
        adjustment=spec.adjustment,
    )
    return conclusion_of(found), [f"{one.outcome}: {one.text}" for one in found]


def test_a_guard_passes_what_is_surely_within_the_margin_and_fails_what_is_surely_beyond_it() -> None:
    said, texts = ruled({"non_inferiority": {"m": 0.05}}, difference(-0.025))
    met = "met: m is not worse by more than 0.05: -0.025 [-0.045, -0.005], 400 pairs"
    assert (said, texts) == ("PASS", [f"{met}; significantly worse, but not by more than the margin"])
    assert ruled({"non_inferiority": {"m": 0.05}}, difference(-0.015))[1][0].endswith("400 pairs")
    said, texts = ruled({"non_inferiority": {"m": 0.05}}, difference(-0.1))
    assert (said, texts) == ("FAIL", ["broken: m is worse by more than 0.05: -0.100 [-0.120, -0.080], 400 pairs"])


@pytest.mark.parametrize("mean", [-0.04, -0.05, -0.06])
def test_a_guard_is_open_where_the_interval_holds_the_margin(mean: float) -> None:
    """Also where it is sure that there is a fall: that it is more than the margin is not."""
    said, (text,) = ruled({"non_inferiority": {"m": 0.05}}, difference(mean))
    assert said == "NOT ENOUGH EVIDENCE"
    assert text.startswith("open: m may be worse by more than 0.05")
    assert "; significantly worse, and whether by more than the margin is open" in text
    assert text.endswith(
        "is open" if mean == -0.05 else "; about 1,600 pairs would decide if the estimate stays the same"
    )


def test_a_goal_asks_for_a_rise_that_is_sure() -> None:
    assert ruled({"superiority": ["m"]}, difference(0.03))[0] == "PASS"
    assert ruled({"superiority": ["m"]}, difference(0.01))[0] == "NOT ENOUGH EVIDENCE"
    assert ruled({"superiority": ["m"]}, difference(-0.03))[0] == "FAIL"
    assert ruled({"superiority": {"m": 0.02}}, difference(0.03))[0] == "NOT ENOUGH EVIDENCE"
    assert ruled({"superiority": {"m": 0.02}}, difference(0.05))[0] == "PASS"
    said, (text,) = ruled({"superiority": {"m": 0.06}}, difference(0.03))
    assert (said, text) == ("FAIL", "broken: m is not better by more than 0.06: +0.030 [+0.010, +0.050], 400 pairs")


def test_a_goal_of_any_rise_needs_the_test_to_agree() -> None:
    said, (text,) = ruled({"superiority": ["m"]}, difference(0.03, p_value=0.07))
    assert said == "NOT ENOUGH EVIDENCE"
    assert text.endswith("; the interval excludes zero, but the test is not significant at 0.05 (p = 0.070)")


def test_what_is_missing_must_not_be_able_to_turn_it() -> None:
    def wide(confidence_level: float) -> Interval:
        return -0.2, 0.25

    n_missing = difference(0.1, worst=wide, worst_case_values=(-0.15, 0.2), n_missing=30)
    said, (text,) = ruled({"non_inferiority": {"m": 0.05}}, n_missing)
    assert said == "NOT ENOUGH EVIDENCE"
    assert text.endswith("400 pairs; 30 pairs with a missing value could flip this")
    worse = difference(-0.2, worst=wide, worst_case_values=(-0.4, 0.1), n_missing=30)
    assert ruled({"non_inferiority": {"m": 0.05}}, worse)[0] == "NOT ENOUGH EVIDENCE"


def test_without_bounds_nothing_is_said_of_what_is_missing() -> None:
    n_missing = difference(0.1, worst=lambda confidence_level: None, worst_case_values=None, n_missing=3)
    said, (text,) = ruled({"non_inferiority": {"m": 0.05}}, n_missing)
    assert said == "NOT ENOUGH EVIDENCE"
    assert text.endswith("3 pairs with a missing value, and no declared range bounds the metric")


def test_of_few_pairs_nothing_is_decided_however_clear_they_are() -> None:
    for mean in (0.5, -0.5):
        said, (text,) = ruled({"non_inferiority": {"m": 0.05}}, difference(mean, n=8))
        assert said == "NOT ENOUGH EVIDENCE"
        assert "8 pairs; wanted at least 20 to decide" in text
    assert ruled({"non_inferiority": {"m": 0.05}, "min_examples": 8}, difference(0.5, n=8))[0] == "PASS"


def test_a_floor_is_held_against_the_mean_and_a_sure_one_against_its_lower_end() -> None:
    mean = difference(0.51, higher_is_better=True)
    assert ruled({"thresholds": {"m": 0.5}}, mean)[0] == "PASS"
    assert ruled({"thresholds": {"m": 0.52}}, mean)[0] == "FAIL"
    assert ruled({"confident_thresholds": {"m": 0.5}}, mean)[0] == "NOT ENOUGH EVIDENCE"
    assert ruled({"confident_thresholds": {"m": 0.48}}, mean)[0] == "PASS"
    assert ruled({"confident_thresholds": {"m": 0.55}}, mean)[0] == "FAIL"


def test_where_less_is_better_a_floor_is_a_ceiling_and_a_fall_is_a_gain() -> None:
    slow = difference(2.0, higher_is_better=False)
    said, (text,) = ruled({"thresholds": {"latency": 1.5}}, slow)
    assert (said, text) == ("FAIL", "broken: latency exceeds 1.5: 2.000 [1.980, 2.020], 400 pairs")
    assert ruled({"confident_thresholds": {"latency": 2.1}}, slow)[0] == "PASS"
    quicker = difference(-0.1, higher_is_better=False)
    said, (text,) = ruled({"non_inferiority": {"latency": 0.05}}, quicker)
    assert (said, text.split(": ")[-1]) == ("PASS", "-0.100 [-0.120, -0.080], 400 pairs")


def test_one_broken_rule_fails_all_and_one_open_rule_keeps_all_open() -> None:
    gate = {"non_inferiority": {"a": 0.05, "b": 0.05, "c": 0.05}}
    good, bad, open_ = difference(0.0), difference(-0.2), difference(-0.05)
    assert ruled(gate, good, good, good)[0] == "PASS"
    assert ruled(gate, good, open_, good)[0] == "NOT ENOUGH EVIDENCE"
    assert ruled(gate, good, open_, bad)[0] == "FAIL"
    assert ruled(gate, good, Reason("no_such_metric", "nothing gave it"), good)[0] == "NOT ENOUGH EVIDENCE"


def test_what_could_fail_is_adjusted_for_being_several_and_what_passes_is_not() -> None:
    """A fall beyond the margin with a one-sided p of about .01 fails a gate of one rule, and not one of four."""
    fall = difference(-0.0735)
    assert ruled({"non_inferiority": {"a": 0.05}}, fall)[0] == "FAIL"
    four = {"non_inferiority": dict.fromkeys("abcd", 0.05)}
    others = [difference(0.0) for _ in range(3)]
    assert ruled(four, fall, *others)[0] == "NOT ENOUGH EVIDENCE"
    assert ruled(four | {"adjustment": "none"}, fall, *others)[0] == "FAIL"
    close = difference(-0.028)  # its lower end is just within the margin
    assert ruled(four, close, *others)[0] == "PASS"


@pytest.mark.parametrize("adjustment", ["holm", "benjamini_hochberg", "none"])
def test_a_rule_is_broken_where_its_adjusted_p_is_at_most_alpha(adjustment: Adjustment) -> None:
    """Outcomes follow from intervals at the adjusted levels, p-values from intervals at all levels."""
    rng, outcomes = np.random.default_rng(0), []
    for _ in range(60):
        rules = [
            Rule(kind="non_inferiority", metric=f"m{place}", bound=0.0) for place in range(int(rng.integers(1, 6)))
        ]
        estimates = [
            _normal(float(mean), n=8 if rng.random() < 0.2 else 20) for mean in rng.normal(-2.2, 0.7, len(rules))
        ]
        found = evaluate_rules(
            list(zip(rules, estimates, strict=True)), {}, confidence_level=0.95, min_examples=10, adjustment=adjustment
        )
        for one in found:
            assert (one.outcome == "broken") == (one.p_adjusted is not None and one.p_adjusted <= 0.025)
        outcomes += [one.outcome for one in found]
    assert 0.2 < outcomes.count("broken") / len(outcomes) < 0.8


def _normal(mean: float, n: int) -> Stated:
    """An estimate with a standard error of 1."""

    def interval_at(confidence_level: float) -> Interval:
        half = NormalDist().inv_cdf((1 + confidence_level) / 2)
        return mean - half, mean + half

    return difference(mean, n, at=interval_at)


def test_scores_that_the_newer_judge_lacks_count_against_the_candidate_and_for_it() -> None:
    answers, older = np.arange(30) % 2 * 1.0, values_of("m", np.arange(30) % 3 == 0)
    scale = Scale(declared=MetricSpec(higher_is_better=True), support=(0.0, 1.0), bounds=(0.0, 1.0))

    def judged(candidate: float, rejudged: float, missing: float = 0.0) -> Recalibrated:
        """With the first value of the candidate and the last of the newer judge, of which a share is missing."""
        ours, newer = np.r_[candidate, answers[1:]], np.r_[answers[:-1], rejudged]
        first, last = missing * (np.arange(30) == 0), missing * (np.arange(30) == 29)
        side = replace(values_of("m", ours, missing=first > 0), missing_share=first)
        return Recalibrated(
            paired=PairedMetric(candidate=side, baseline=older, clusters=None, scale=scale, confidence_level=0.95),
            rejudged=newer,
            rejudged_missing=last,
            sampled=np.ones(30, dtype=bool),
        )

    for worst, least, most in [(judged(np.nan, np.nan, 1.0), 0.0, 1.0), (judged(1.0, 1.0, 0.25), 0.75, 1.0)]:
        against, in_favour = judged(least, most).interval_at(0.95), judged(most, least).interval_at(0.95)
        assert against is not None and in_favour is not None
        assert worst.facts.n_missing == 2
        assert worst.worst_case_interval_at(0.95) == pytest.approx((against[0], in_favour[1]))
