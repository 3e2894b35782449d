"""label_next: the random part stays a random sample over rounds, the rest is where the judge is uncertain."""

import math
from typing import Any

import numpy as np
import pytest

from evalflows.stats.agreement import expected_error
from evalflows.stats.label_choice import label_next


def places(drawn: Any, *, fair: bool) -> list[int]:
    return [item.place for item in drawn if item.fair == fair]


def test_the_lowest_lots_come_first_then_the_least_certain_items() -> None:
    lots, errors = [0.9, 0.1, 0.5, 0.3, 0.7, 0.2], [0.9, 0.0, 0.1, 0.0, 0.5, 0.0]
    labelled = np.array([False, True, False, False, False, False])
    result = label_next(lots, labelled, errors, 4)
    assert places(result, fair=True) == [5, 3]
    assert places(result, fair=False) == [0, 4]


def test_the_random_part_is_rounded_up_and_n_is_limited_to_what_is_left() -> None:
    nobody = np.zeros(5, dtype=bool)
    assert len(places(label_next(range(5), nobody, [0] * 5, 3), fair=True)) == 2
    assert sorted(item.place for item in label_next(range(5), nobody, [0] * 5, 99)) == [*range(5)]
    assert label_next(range(5), ~nobody, [0] * 5, 3) == []
    assert places(label_next(range(5), nobody, [0] * 5, 3, fair_share=0), fair=True) == []


def test_expected_error_grows_at_mid_range_with_variance_and_with_disagreement() -> None:
    values = [0.0, 1.0, 0.5, 1.0, 1.0]
    result = expected_error(
        values, 0, 1, spreads=[math.nan, 0.0, 0.0, 0.3, 0.0], others=[[0.0, 1.0, 0.5, 1.0, 0.0], [math.nan] * 5]
    )
    assert result == pytest.approx([0.0, 0.0, 0.25, 0.09, 1.0])
