"""pass@k and pass^k of an experiment: against counting all subsets, and where there are too few repetitions."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from past import FAILED, Past

from evalflows.analysis.differences import MetricReader, trial_values
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.means import mean_estimate
from evalflows.store.queries.values import MetricValues, metric_values

NAN = float("nan")
RUNS = [
    [0.0, 0.0, 0.0, 0.0],
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, 0.9, 1.0],
    [1.0, 1.0, 1.0, 1.0],
    [1.0, FAILED, 0.0, 1.0],
    [FAILED, FAILED, FAILED, 1.0],
    [FAILED, FAILED, FAILED, FAILED],
]


def found(runs: list[list[float]], **declared: Any) -> dict[str, MetricValues]:
    """The metrics that are made of the repetitions, by name; of the examples, one in two was drawn."""
    past = Past(repetitions=len(runs[0]))
    row = past.experiment({"reward": np.array(runs)})
    scores = past.store.read("judgements", row.experiment_id)
    past.store.publish("judgements", row.experiment_id, [replace(score, sampling_rate=0.5) for score in scores])
    (metric,) = (one for one in metric_values(past.store, row) if one.metric == "reward")
    trials = MetricReader(past.store).trials
    return {one.metric: one for one in trial_values(trials, row, metric, MetricSpec.model_validate(declared))}


def share(runs: list[float], k: int, passes: Any) -> float:
    """Of all subsets of k of the scored runs, how many pass, counted one by one; nan where there are none."""
    subsets = list(combinations([run for run in runs if run != FAILED], k))
    return sum(passes(run >= 1.0 for run in subset) for subset in subsets) / len(subsets) if subsets else NAN


def test_each_example_has_the_share_of_all_subsets_of_its_scored_runs() -> None:
    """Each k once and in order; with fewer scored runs than k there is no value: never 0."""
    assert found(RUNS) == {}
    made = found(RUNS, pass_k=[4, 1, 2, 3, 4])
    assert list(made) == [f"reward pass{sign}{k}" for k in (1, 2, 3, 4) for sign in "@^"]
    for k, scored in ((1, 6), (2, 5), (3, 5), (4, 4)):
        one_passes, all_pass = made[f"reward pass@{k}"], made[f"reward pass^{k}"]
        np.testing.assert_allclose(one_passes.values, [share(runs, k, any) for runs in RUNS], atol=1e-12)
        np.testing.assert_allclose(all_pass.values, [share(runs, k, all) for runs in RUNS], atol=1e-12)
        assert one_passes.scored == all_pass.scored == scored, "examples of so many scored runs"
    one = made["reward pass^2"]
    assert (one.missing.tolist(), one.n_missing) == ([False] * 4 + [True] * 3, 3)
    assert one.is_yes_no and not one.is_binary, "between 0 and 1, and not only 0 or 1"
    assert (one.evaluator, one.evaluator_version, set(one.weights)) == ("reward", "e1", {2.0})


def test_a_try_passes_from_its_threshold_in_the_metrics_direction() -> None:
    runs = [[0.2, 0.5], [0.7, 0.9]]
    assert found(runs, pass_k=[1], pass_threshold=0.5)["reward pass^1"].values.tolist() == [0.5, 1.0]
    assert found(runs, pass_k=[1])["reward pass^1"].values.tolist() == [0.0, 0.0]
    lower = found(runs, pass_k=[2], pass_threshold=0.5, higher_is_better=False)
    assert lower["reward pass^2"].values.tolist() == [1.0, 0.0]
    assert MetricSpec().is_higher_better("reward pass^2"), "to pass is good"


def test_with_clusters_the_interval_is_that_of_clusters() -> None:
    """Eight tasks of four kinds, each kind alike: as sure as four tasks, not as eight."""
    chances = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    made = found([runs for runs in chances for _ in range(2)], pass_k=[1])["reward pass^1"]
    clusters = [str(i // 2) for i in range(8)]
    clustered, alone = mean_estimate(made.values, clusters), mean_estimate(made.values[::2])
    assert (clustered.mean, clustered.n_clusters) == (0.5, 4)
    assert (clustered.low, clustered.high) == pytest.approx((alone.low, alone.high))
