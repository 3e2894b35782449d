"""How much is unseen, against planted frequencies and a direct extrapolation."""

import numpy as np
import pytest

from evalflows.stats.groups import MAX_LINKED, groups
from evalflows.stats.unseen import unseen


@pytest.mark.parametrize("ratio", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("n", [20, 100, 600])
def test_the_interval_covers_the_chance_of_a_new_kind(ratio: float, n: int) -> None:
    """12 kinds of geometric frequency, 200 draws."""
    rng, shares = np.random.default_rng(7), ratio ** np.arange(12)
    shares /= shares.sum()
    covered, holds, new = 0, 0, []
    for _ in range(200):
        drawn = rng.multinomial(n, shares)
        found = unseen([int(count) for count in drawn if count])
        assert found.low is not None and found.high is not None
        covered += found.low <= shares[drawn == 0].sum() <= found.high
        if n < 34:
            assert (found.new_kinds, found.new_low, found.new_high) == (None, None, None), "too far to extrapolate"
            continue
        assert found.new_kinds is not None and found.new_low is not None and found.new_high is not None
        more = rng.multinomial(100, shares)
        new.append(found.new_kinds - ((more > 0) & (drawn == 0)).sum())
        expected = (1 - (1 - shares[drawn == 0]) ** 100).sum()
        holds += found.new_low <= expected <= found.new_high
    assert covered >= 0.93 * 200
    assert not new or (holds >= 0.93 * 200 and abs(np.mean(new)) < 1.5)


def test_nothing_seen_has_no_chance_and_a_count_of_0_is_refused() -> None:
    assert unseen([]).chance is None and unseen([]).new_kinds is None
    assert unseen([5, 1, 2, 1]).chance == 2 / 9
    with pytest.raises(ValueError, match="got 0"):
        unseen([1, 0])


def test_groups_are_by_direction_and_what_is_like_no_other_is_in_none() -> None:
    """Also of more vectors than are linked; 1 % are in a rare group."""
    rng, n = np.random.default_rng(3), MAX_LINKED + 1000
    centres = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    truth = rng.choice(4, n, p=[0.69, 0.2, 0.1, 0.01])
    vectors = centres[truth] + rng.normal(scale=0.06, size=(n, 30))
    vectors[0], truth[0] = centres[20], -1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = groups(vectors, 0.5)
    assert (found == groups(vectors, 0.5)).all()
    assert (found == truth).mean() > 0.94 and found[0] == -1 and (found[found >= 0] == truth[found >= 0]).all()
    assert groups(vectors[[5, 5, 5]], 0.5).tolist() == [0, 0, 0]
    assert groups(vectors[:1], 0.5).tolist() == [-1] and groups(vectors[:0], 0.5).tolist() == []
