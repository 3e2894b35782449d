"""pass@k and pass^k of an experiment: against counting all subsets, and where there are too few repetitions."""

from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from evalflows.analysis.differences.pass_at_k import trial_values
from evalflows.specs.metric import MetricSpec
from evalflows.stats import mean_estimate
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import MetricValues, metric_values
from evalflows.store.records import ExampleRow, ExperimentRow, ScoreRow, derived_id

OWNER, SNAPSHOT = "exp-1", "snap-1"
NAN = float("nan")


def experiment(runs: list[list[float | None]]) -> tuple[Store, ExperimentRow]:
    """One example an element, with the values of its repetitions; None for one that failed."""
    store, examples = Store(), [f"e{i}" for i in range(len(runs))]
    rows = [
        ExampleRow(snapshot_id=SNAPSHOT, example_id=example, position=i, inputs="{}")
        for i, example in enumerate(examples)
    ]
    store.publish("examples", SNAPSHOT, rows)
    scores = [_score(e, r, value) for e, one in zip(examples, runs, strict=True) for r, value in enumerate(one)]
    store.publish("scores", OWNER, scores)
    return store, _row(len(runs), max(map(len, runs)))


def _score(example: str, repetition: int, value: float | None) -> ScoreRow:
    run = f"{example}-{repetition}"
    return ScoreRow(
        score_id=derived_id(run, None, "reward", "v1"),
        subject_kind="run",
        subject_id=run,
        experiment_id=OWNER,
        run_id=run,
        example_id=example,
        repetition=repetition,
        metric="reward",
        value=value,
        data_type="NUMERIC",
        status="scored" if value is not None else "failed",
        evaluator="reward",
        evaluator_version="v1",
        sampling_rate=0.5,
    )


def _row(examples: int, repetitions: int) -> ExperimentRow:
    texts = ("name", "run_group", "target", "target_kind", "target_version", "evalflows_version")
    return ExperimentRow(
        experiment_id=OWNER,
        snapshot_id=SNAPSHOT,
        n_examples=examples,
        repetitions=repetitions,
        chunk_size=1,
        evaluators="[]",
        spec="{}",
        state="running",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        **dict.fromkeys(texts, "x"),
    )


def found(runs: list[list[float | None]], **declared: Any) -> dict[str, MetricValues]:
    """The metrics that are made of the repetitions, by name."""
    store, row = experiment(runs)
    (metric,) = (one for one in metric_values(store, row) if one.metric == "reward")
    return {one.metric: one for one in trial_values(store, row, metric, MetricSpec.model_validate(declared))}


def share(runs: list[float | None], k: int, passes: Any) -> float:
    """Of all subsets of k of the scored runs, how many pass, counted one by one; nan where there are none."""
    subsets = list(combinations([run for run in runs if run is not None], k))
    return sum(passes(run >= 1.0 for run in subset) for subset in subsets) / len(subsets) if subsets else NAN


RUNS: list[list[float | None]] = [
    [0.0, 0.0, 0.0, 0.0],
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, 0.9, 1.0],
    [1.0, 1.0, 1.0, 1.0],
    [1.0, None, 0.0, 1.0],
    [None, None, None, 1.0],
    [None, None, None, None],
]


def test_without_a_k_there_is_nothing() -> None:
    assert found(RUNS) == {}


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_each_example_has_the_share_of_all_subsets_of_its_scored_runs(k: int) -> None:
    """With fewer scored runs than k there is no value: never 0."""
    made = found(RUNS, pass_k=[k])
    assert list(made) == [f"reward pass@{k}", f"reward pass^{k}"]
    one_passes, all_pass = made.values()
    np.testing.assert_allclose(one_passes.values, [share(runs, k, any) for runs in RUNS], atol=1e-12)
    np.testing.assert_allclose(all_pass.values, [share(runs, k, all) for runs in RUNS], atol=1e-12)
    assert one_passes.scored == all_pass.scored == [6, 5, 5, 4][k - 1], "examples of so many scored runs"


def test_by_hand() -> None:
    """3 of 4 pass: of the 6 pairs 3 pass whole, and each has one that passes."""
    made = found([[1.0, 1.0, 0.0, 1.0]], pass_k=[2])
    assert (made["reward pass@2"].values.tolist(), made["reward pass^2"].values.tolist()) == ([1.0], [0.5])


def test_what_failed_is_missing_here_as_it_is_there() -> None:
    one = found(RUNS, pass_k=[2])["reward pass^2"]
    assert one.missing.tolist() == [False] * 4 + [True] * 3
    assert one.n_missing == 3, "examples, as those that are scored are"


def test_several_k_each_once_and_in_order() -> None:
    made = found(RUNS, pass_k=[4, 1, 4])
    assert list(made) == ["reward pass@1", "reward pass^1", "reward pass@4", "reward pass^4"]


def test_a_try_passes_from_the_score_that_is_said() -> None:
    runs: list[list[float | None]] = [[0.2, 0.5], [0.7, 0.9]]
    assert found(runs, pass_k=[1], pass_threshold=0.5)["reward pass^1"].values.tolist() == [0.5, 1.0]
    assert found(runs, pass_k=[1])["reward pass^1"].values.tolist() == [0.0, 0.0]


def test_where_less_is_better_a_try_passes_up_to_it_and_to_pass_is_still_good() -> None:
    runs: list[list[float | None]] = [[0.2, 0.5], [0.7, 0.9]]
    made = found(runs, pass_k=[2], pass_threshold=0.5, higher_is_better=False)
    assert made["reward pass^2"].values.tolist() == [1.0, 0.0]
    assert MetricSpec().is_higher_better("reward pass^2")


def test_they_are_shares_and_keep_weights_evaluator_and_version() -> None:
    one = found(RUNS, pass_k=[2])["reward pass@2"]
    assert one.is_yes_no and not one.is_binary, "between 0 and 1, and not only 0 or 1"
    assert (one.evaluator, one.evaluator_version, set(one.weights)) == ("reward", "v1", {2.0})


def test_with_clusters_the_interval_is_that_of_clusters() -> None:
    """Eight tasks of four kinds, each kind alike: as sure as four tasks, not as eight."""
    chances = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    made = found([runs for runs in chances for _ in range(2)], pass_k=[1])["reward pass^1"]
    clusters = [str(i // 2) for i in range(8)]
    clustered, alone = mean_estimate(made.values, clusters), mean_estimate(made.values[::2])
    assert (clustered.mean, clustered.n_clusters) == (0.5, 4)
    assert (clustered.low, clustered.high) == pytest.approx((alone.low, alone.high))
