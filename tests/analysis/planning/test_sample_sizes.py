"""Sample sizes and minimum detectable effects, planned from a store with known variances."""

import json
import math
import re

import numpy as np
import pytest
from past import Past
from planned import (
    chat_spec,
    dataset_rows,
    metric_of,
    normal_values,
    recorded_spec,
    sample_sizes,
    store_experiments,
    yes_no_values,
)

from evalflows import decide_on
from evalflows.analysis.plan import sentences_of
from evalflows.api.planning import plan
from evalflows.reports.decisions import decisions_named, with_limits
from evalflows.specs.gate import GateSpec
from evalflows.stats.paired import paired_differences
from evalflows.stats.power import needed_examples, needed_for_margin, needed_in_range

WITHOUT_RANGE = {"quality": {"rare_losses": False}}
"""The values leave the range of the function, which says yes or no."""


def test_sample_sizes_by_repetitions_match_the_true_variances() -> None:
    """omega^2 + 2 sigma^2 / K, within 10 %: from 1,500 examples, the standard error of a variance is 4 % of it."""
    between, within, effect = 1.0, 1.0, 0.15
    spec = recorded_spec(1500, repetitions=2)
    store_experiments(normal_values(1500, 4, between=between, within=within, seed=1), spec)
    sizes = sample_sizes(plan(spec, effect))
    assert [design.repetitions for design in sizes.designs] == [1, 2, 3, 5]
    for design in sizes.designs:
        true = math.sqrt(between**2 + 2 * within**2 / design.repetitions)
        assert design.examples == pytest.approx(needed_examples(effect, sd=true), rel=0.1)
    once, *_, five_times = sizes.designs
    assert once.examples / five_times.examples == pytest.approx((1 + 2) / (1 + 0.4), rel=0.1)


def test_minimum_detectable_effect_follows_dataset_size_and_repetitions() -> None:
    """(1.96 + 0.84) sqrt((omega^2 + 2 sigma^2 / K) / n) with 300 examples, not the 600 in the store."""
    store_experiments(normal_values(600, 4, between=0.5, within=1.0), recorded_spec(600))
    for repetitions in (1, 3):
        metric = metric_of(plan(recorded_spec(300, repetitions=repetitions)))
        true = (1.960 + 0.842) * math.sqrt((0.25 + 2 / repetitions) / 300)
        assert metric.minimum_detectable == pytest.approx(true, rel=0.1)
        assert metric.sample_sizes == ()


def test_clusters_are_the_sampling_unit_and_the_design_effect_is_shown() -> None:
    """Ten examples per cluster share a true difference: a mean has the variance omega^2 / G + 2 sigma^2 / (K n)."""
    spec = recorded_spec(3000, cluster=10)
    store_experiments(normal_values(3000, 2, between=0.5, within=0.5, cluster=10), spec)
    made = plan(spec, 0.05)
    spread = metric_of(made).variance
    assert spread is not None and (spread.unit, spread.n_clusters) == ("cluster", 300)
    for design in sample_sizes(made).designs:
        clusters = needed_examples(0.05, sd=math.sqrt(0.25 + 2 * 0.25 / design.repetitions / 10))
        assert design.clusters == pytest.approx(clusters, rel=0.2)  # from 300 clusters, its standard error is 8 %
        assert design.examples == 10 * (design.clusters or 0)
    assert spread.design_effect == pytest.approx(10 * (0.25 + 0.025) / (0.25 + 0.25), rel=0.15)
    assert any("design effect of clusters" in sentence for sentence in sentences_of(made))


def test_non_inferiority_is_planned_for_an_equally_good_candidate() -> None:
    spec = recorded_spec(1500, gates=[{"name": "ship", "non_inferiority": {"quality": 0.1}}], metrics=WITHOUT_RANGE)
    store_experiments(normal_values(1500, 1, between=0.5, within=0.5), spec)
    made = plan(spec)
    (design,) = sample_sizes(made).designs
    sd = math.sqrt(0.25 + 0.5)
    assert design.examples == pytest.approx(needed_examples(0.1, sd=sd), rel=0.1)
    assert any(
        "for an equally good candidate to pass the non-inferiority margin of 0.100" in sentence
        for sentence in sentences_of(made)
    )


def test_in_a_range_a_margin_needs_what_the_interval_that_decides_needs() -> None:
    gates = [{"name": "ship", "non_inferiority": {"quality": 0.05}}]
    spec = recorded_spec(300, gates=gates, metrics={"quality": {"range": [0, 1]}})
    rng = np.random.default_rng(3)
    old, new = rng.normal(0.6, 0.1, (2, 300, 1)).clip(0, 1)
    store_experiments({"old": old, "new": new}, spec)
    (design,) = sample_sizes(plan(spec)).designs
    n = design.examples
    assert n > 1.5 * needed_examples(0.05, sd=float(np.std(new - old))), "more than by t"
    candidate, baseline = rng.normal(0.6, 0.1, (2, 1000, n)).clip(0, 1)
    low = paired_differences(candidate, baseline, bounds=(0.0, 1.0)).interval_at(0.95)[0]
    assert 0.8 <= np.mean(low > -0.05) <= 0.95, "the baselines are below 1, so that less is lost"
    for margin in (0.1, 0.2):  # the cautious guess: each answer is the best or the worst possible
        n = needed_in_range(margin, math.sqrt(0.5), 1.0)
        assert needed_for_margin(margin, 0.5) <= n <= 1.1 * needed_examples(margin, sd=math.sqrt(0.5))
        candidate, baseline = rng.integers(0, 2, (2, 800, n)).astype(float)
        low = paired_differences(candidate, baseline, bounds=(0.0, 1.0)).interval_at(0.95)[0]
        assert np.mean(low > -margin) == pytest.approx(0.8, abs=0.05)


def test_superiority_needs_more_examples_as_the_effect_nears_the_margin() -> None:
    spec = recorded_spec(500, gates=[{"superiority": {"quality": 0.1}}], metrics=WITHOUT_RANGE)
    store_experiments(normal_values(500, 1, between=0.5, within=0.5), spec)
    kinds = {sizes.effect.purpose: sizes.designs[0].examples for sizes in metric_of(plan(spec, 0.15)).sample_sizes}
    assert kinds["superiority"] == pytest.approx(9 * kinds["difference"], rel=0.05), "0.15 - 0.10 is a third of 0.15"
    below = plan(spec, 0.05)
    assert [sizes.effect.purpose for sizes in metric_of(below).sample_sizes] == ["difference"]
    assert any(
        "an improvement of 0.050 does not meet the superiority margin of 0.1" in sentence
        for sentence in sentences_of(below)
    )
    alone = metric_of(plan(spec)).sample_sizes
    assert [(sizes.effect.purpose, sizes.effect.declared) for sizes in alone] == [("difference", 0.1)]
    any_rise = plan(recorded_spec(500, gates=[{"superiority": ["quality"]}]))
    assert any("for superiority (release); use --effect" in sentence for sentence in sentences_of(any_rise))
    (sizes,) = metric_of(any_rise).sample_sizes
    assert (sizes.effect.purpose, sizes.designs[0].examples) == ("superiority", 500), "what the dataset detects"


def test_yes_no_differences_have_a_least_variance() -> None:
    """One pair in a hundred differed; a difference of 0.2 means that at least one in five differs."""
    spec = recorded_spec(1000, evaluators=["contains"])
    store_experiments(yes_no_values(1000, gained=0.005, n_missing=0.005), spec, metric="contains", is_yes_no=True)
    made = plan(recorded_spec(40, evaluators=["contains"]), 0.2)
    assert sample_sizes(made).designs[0].examples == needed_examples(0.2, sd=math.sqrt(0.2 * 0.8))
    seen = metric_of(made).minimum_detectable or 0.0
    assert seen > 0.1 and needed_examples(seen, sd=math.sqrt(seen - seen**2)) == pytest.approx(40, abs=2)


def test_the_cheapest_design_has_the_lowest_cost_in_usd() -> None:
    """Repetitions of a noisy target save examples, but not calls."""
    spec = chat_spec(300, second="mine", evaluators=[{"use": "judges:longer_than", "name": "quality"}])
    store_experiments(normal_values(300, 3, between=0.5, within=1.0), spec)
    sizes = sample_sizes(plan(spec, 0.1))
    costs = [design.usd for design in sizes.designs]
    assert None not in costs and sizes.cheapest is not None
    assert sizes.cheapest.usd == min(cost for cost in costs if cost is not None)
    assert [design.calls for design in sizes.designs] == [
        2 * design.examples * design.repetitions for design in sizes.designs
    ]
    assert sizes.cheapest.repetitions == 1, "a repetition saves less than it costs"


def test_an_effect_too_small_for_any_dataset_has_a_reason() -> None:
    store_experiments(normal_values(100, 1, between=1.0, within=1.0), recorded_spec(100))
    made = plan(recorded_spec(100), 1e-12)
    assert sample_sizes(made).designs == () and "wanted one detectable with" in (sample_sizes(made).reason or "")
    assert json.dumps(sentences_of(made))


def test_a_plan_and_a_gate_say_the_same_of_a_slice() -> None:
    fields = [{"split": "easy" if place % 3 else "hard"} for place in range(120)]
    past, places = Past(fields=fields), np.arange(120)
    past.experiment({"quality": places % 2 > 0})
    past.experiment({"quality": np.where(places % 9 == 0, places % 2 == 0, places % 2 > 0)})  # only hard ones change
    gate = GateSpec(name="release", non_inferiority={"quality": 0.01, "quality@split=hard": 0.01})
    decision = decide_on("exp-001", "exp-000", gate)
    (shown,) = with_limits(past.store, decisions_named(past.store, [decision.decision_id]))
    rows = [row | of for row, of in zip(dataset_rows(120), fields, strict=True)]
    spec = recorded_spec(0, dataset={"rows": rows}, gates=[gate.model_dump(exclude_defaults=True)])
    sizes = [f"{one.minimum_detectable:.3f}" for one in plan(spec).metrics]
    assert re.findall(r"detect a difference of (\S+)", "; ".join(shown.what_limits)) == sizes
    assert sizes[0] < sizes[1]
