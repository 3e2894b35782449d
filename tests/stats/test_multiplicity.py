"""adjusted: against statsmodels, the definitions, and simulated error rates."""

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from evalflows.stats.multiple_tests import adjusted

P_VALUES = st.lists(st.floats(0, 1), max_size=12)
WAYS = st.sampled_from(["holm", "benjamini_hochberg", "none"])


@pytest.mark.parametrize(("method", "theirs"), [("holm", "holm"), ("benjamini_hochberg", "fdr_bh")])
def test_adjusted_p_values_match_statsmodels_with_ties(
    method: Any, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # statsmodels collects garbage in each call, a third of a second
    rng = np.random.default_rng(31)
    for m in rng.integers(1, 40, 50):
        p_values = np.round(rng.random(m) ** 3, 2)  # two digits: ties, zeros and ones
        assert adjusted(p_values, method) == pytest.approx(multipletests(p_values, method=theirs)[1], abs=1e-12)


def test_four_p_values_by_hand() -> None:
    p_values = [0.03, 0.01, 0.04, 0.02]
    assert adjusted(p_values).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])  # 4 x 0.01, then 3 x 0.02
    assert adjusted(p_values, "benjamini_hochberg").tolist() == pytest.approx([0.04] * 4)
    assert adjusted(p_values, "none").tolist() == p_values


@given(P_VALUES, WAYS, st.randoms(use_true_random=False))
def test_adjusted_p_values_are_at_most_1_never_smaller_and_order_independent(
    p_values: Any, method: Any, random: Any
) -> None:
    result = adjusted(p_values, method)
    assert np.all((result >= np.array(p_values) * (1 - 1e-12)) & (result <= 1))
    assert np.all(np.diff(result[np.argsort(p_values)]) >= 0)
    places = random.sample(range(len(p_values)), len(p_values))
    assert adjusted([p_values[place] for place in places], method).tolist() == result[places].tolist()
