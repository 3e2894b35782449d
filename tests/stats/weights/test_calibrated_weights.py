"""The weights that order ranked cases: found where they are, with intervals that hold them, and refused for noise."""

import numpy as np
import pytest

from evalflows.stats.weights import CASES_NEEDED, calibrated_weights, run_parts, weight_disagreements

TRUE = (0.6, 0.3, 0.1)


def cases(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(n, len(TRUE)))


def test_the_intervals_hold_the_weights_that_people_ranked_by() -> None:
    held, apart = [], []
    for seed in range(20):
        parts = cases(15, seed)
        noise = np.random.default_rng(100 + seed).normal(scale=0.05, size=15)
        ranks = (-(parts @ TRUE + noise)).argsort().argsort() + 1
        found = calibrated_weights(run_parts(parts, range(15)), ranks, resamples=200, draws=500)
        if found.weights is None:
            continue
        assert found.low is not None and found.high is not None and sum(found.weights) == pytest.approx(1)
        # by hand: no weights agree more often than these
        scores = parts @ found.weights
        pairs = [(i, j) for i in range(15) for j in range(i)]
        agreement = np.mean([(scores[i] > scores[j]) == (ranks[i] < ranks[j]) for i, j in pairs])
        assert found.agreement is not None and agreement <= found.agreement + 1e-9
        assert found.out_of_sample is not None
        apart.append(found.agreement - found.out_of_sample)
        held += [low <= true <= high for low, true, high in zip(found.low, TRUE, found.high, strict=True)]
    assert len(held) >= 15 * 3 and np.mean(held) > 0.9
    assert 0 < np.mean(apart) < 0.1, "cases that weights were not fitted to are in order less often, though not by much"


def test_ranks_that_have_nothing_to_do_with_the_parts_are_mostly_refused() -> None:
    given = 0
    for seed in range(30):
        ranks = np.random.default_rng(1000 + seed).permutation(12)
        found = calibrated_weights(run_parts(cases(12, seed), range(12)), ranks, resamples=200, draws=300)
        given += found.weights is not None
        assert (found.weights is None) == (found.reason is not None)
    assert given <= 5, "about one in twenty"
    few = CASES_NEEDED - 1
    assert calibrated_weights(run_parts(cases(few, 0), range(few)), range(few)).weights is None
    same = calibrated_weights(run_parts(cases(12, 0), range(12)), [1] * 12)
    assert same.reason == "all ranks are equal"
    with pytest.raises(ValueError, match="ranks: got 2, wanted one for each of 12 cases"):
        calibrated_weights(run_parts(cases(12, 0), range(12)), [1, 2])


def test_weights_disagree_on_runs_that_are_good_in_one_part_and_bad_in_another() -> None:
    parts = np.array([[1, 0], [0, 1], [0.9, 0.9], [0.1, 0.1], [0.5, 0.5], [0.5, np.nan]])
    found = weight_disagreements(parts)
    assert found[2] == found[3] == 0 and found[:2].min() > 0.95
    # by hand: w * 0.8 + (1 - w) * 0.1 is above one half for w > 4 / 7
    one = weight_disagreements(np.vstack([parts, [[0.8, 0.1]]]), draws=20_000)[-1]
    assert one == pytest.approx(4 * (3 / 7) * (4 / 7), abs=0.02)
    with pytest.raises(ValueError, match="parts"):
        weight_disagreements([[2.0, 0.0]])
