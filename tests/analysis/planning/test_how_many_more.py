"""How many pairs are enough: one number in a gate, a plan and the documents, by the interval that decides."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import values_of

from evalflows.analysis.evaluate_rules import evaluate_rules
from evalflows.analysis.pairing import MetricSample, PairedMetric, Scale
from evalflows.analysis.rule_estimates import DifferenceEstimate, MeanOfSample
from evalflows.analysis.rules import Rule
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.paired import paired_difference, paired_differences
from evalflows.stats.power import least_n, needed_for_margin
from evalflows.stats.proportions import clopper_pearson_interval

DOCS = Path(__file__).parents[3] / "docs"
NEEDED = {0.02: 189, 0.05: 73, 0.1: 35}
"""Pairs of yes/no of which none differs, by margin."""


def said(candidate: Any, baseline: Any, margin: float, *, is_binary: bool) -> tuple[str, str]:
    sides = [values_of("m", np.array(side, dtype=float), is_yes_no=is_binary) for side in (candidate, baseline)]
    scale = Scale(declared=MetricSpec(higher_is_better=True), support=(0.0, 1.0), bounds=(0.0, 1.0))
    paired = PairedMetric(candidate=sides[0], baseline=sides[1], clusters=None, scale=scale, confidence_level=0.95)
    rules = [(Rule(kind="non_inferiority", metric="m", bound=margin), DifferenceEstimate(paired))]
    (result,) = evaluate_rules(rules, {}, confidence_level=0.95, min_examples=10, adjustment="holm")
    return result.outcome, result.text


@pytest.mark.parametrize("n", [40, 54, 60, 72, 73, 120])
@pytest.mark.parametrize("margin", [0.02, 0.05, 0.1])
def test_identical_answers_need_as_many_as_the_gate_says(n: int, margin: float) -> None:
    outcome, text = said(np.arange(n) % 2, np.arange(n) % 2, margin, is_binary=True)
    assert outcome == ("met" if n >= NEEDED[margin] else "open")
    about = math.ceil(NEEDED[margin] / 10) * 10 if NEEDED[margin] >= 100 else NEEDED[margin]
    assert (f"about {about} pairs would decide" in text) == (n < NEEDED[margin])
    assert needed_for_margin(margin, 0.0) == NEEDED[margin]


@pytest.mark.parametrize(("sd", "times"), [(0.01, 2), (0.2, 3)])
def test_numbers_of_the_needed_size_decide_and_fewer_do_not(sd: float, times: int) -> None:
    """Whether what was not drawn decides, or the spread."""
    noise = np.linspace(-1.7, 1.7, 30) * sd
    candidate, baseline = 0.5 + noise, np.full(30, 0.51)
    outcome, text = said(candidate, baseline, 0.06, is_binary=False)
    found = re.search(r"about ([0-9]+) pairs", text)
    assert outcome == "open" and found is not None
    few = paired_differences(candidate[None], baseline[None], bounds=(0.0, 1.0))
    n = least_n(lambda n: bool(few.of_size(n).interval_at(0.95)[0][0] > -0.06), 31)
    assert n == int(found[1])
    low = [
        paired_difference(np.tile(candidate, k), np.tile(baseline, k), bounds=(0.0, 1.0)).low
        for k in (times - 1, times)
    ]
    assert low[0] is not None and low[1] is not None and low[0] <= -0.06 < low[1]


def test_a_floor_says_how_many_examples_without_a_fault_would_decide() -> None:
    rule = Rule(kind="confident_threshold", metric="mode", bound=0.01)
    scale = Scale(declared=MetricSpec(higher_is_better=False), support=(0.0, 1.0), bounds=(0.0, 1.0))
    for n in (100, 367, 368):
        sample = MetricSample(values=values_of("mode", np.zeros(n), is_yes_no=True), clusters=None, scale=scale)
        tested = [(rule, MeanOfSample(sample, 0.95))]
        (result,) = evaluate_rules(tested, {}, confidence_level=0.95, min_examples=10, adjustment="holm")
        assert (result.outcome == "met") == (n == 368)
        assert ("about 370 examples would decide" in result.text) == (n < 368)
    guide = " ".join((DOCS / "guides" / "failure_modes.md").read_text().split())
    ends = [(0.01, 368), (0.02, 183), (0.05, 72)]
    assert all(clopper_pearson_interval(0, n, confidence_level=0.95)[1] <= bound for bound, n in ends)
    assert all(clopper_pearson_interval(0, n - 1, confidence_level=0.95)[1] > bound for bound, n in ends)
    assert "368 answers without the mode (183 at 2 %, 72 at 5 %" in guide


def test_the_documents_have_these_numbers() -> None:
    page, gates = (" ".join((DOCS / "guides" / name).read_text().split()) for name in ("pytest.md", "gates.md"))
    half = paired_difference(np.ones(40), np.ones(40), binary=True).high
    assert f"±{half:.3f} with 40 examples" in page
    assert "a margin of 0.1 needs at least 35 examples, 0.05 needs 73, and 0.02 needs 189" in page
    assert "a margin of 0.05 needs 73 pairs, and a margin of 0.02 needs 189" in gates
