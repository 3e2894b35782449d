"""Validation of vectors, lengths and confidence levels."""

import numpy as np
import pytest

from evalflows.stats.clusters import checked_confidence_level, finite_vector, mean_of, same_length


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_number_that_is_not_finite_is_refused_with_its_index(bad: float) -> None:
    with pytest.raises(ValueError, match=r"values\[1\]: got .*, wanted a finite number"):
        finite_vector("values", [0.5, bad, 0.5])


@pytest.mark.parametrize("bad", [0.5, 2.0, -1.0])
def test_binary_is_0_and_1_only(bad: float) -> None:
    with pytest.raises(ValueError, match=r"candidate\[2\]: got .*, wanted 0 or 1"):
        finite_vector("candidate", [0, 1, bad], binary=True)


def test_sides_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 values, wanted as many as the baseline's 2"):
        same_length(np.zeros(3), np.zeros(2))


@pytest.mark.parametrize("bad", [0, 1, -0.5, 95, float("nan")])
def test_a_confidence_level_is_between_0_and_1(bad: float) -> None:
    with pytest.raises(ValueError, match="confidence_level: got"):
        checked_confidence_level(bad)


def test_the_mean_of_equal_numbers_is_exact() -> None:
    assert np.full(3, 0.1).mean() != 0.1  # because of rounding
    assert mean_of(np.full(3, 0.1)) == 0.1
