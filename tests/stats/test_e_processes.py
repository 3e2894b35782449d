"""E-processes of changes: what they are worth by hand, and how often quiet and changed streams raise an alarm."""

from itertools import permutations

import numpy as np
import pytest

from evalflows.stats.e_processes import STAKES, Bets, moved_p_value, since_last, stream_evidence


def test_evidence_is_the_mean_of_what_the_bets_pay() -> None:
    values = np.array([0.0, 0.0, 1.0])
    found = stream_evidence(3, [Bets([values], np.arange(3))], 0.05, begins=[1], at_once=True)
    expected = []
    for stake in [*STAKES, *(-stake for stake in STAKES)]:
        weights = np.exp(stake * values)
        expected.append(weights[1] / weights[:2].mean() * weights[2] / weights.mean())
    assert found.evidence == pytest.approx([1, 1, np.mean(expected)])
    assert (found.alarm, found.change) == (None, None)


def test_quiet_streams_are_quiet_and_changed_ones_are_found_where_they_change() -> None:
    random = np.random.default_rng(1)
    places = np.arange(2_000)
    quiet = [random.random(2_000) < 0.3 for _ in range(100)]
    alarms = [stream_evidence(2_000, [Bets([stream * 1.0], places)], 0.05).alarm for stream in quiet]
    assert sum(alarm is not None for alarm in alarms) <= 8
    changed = [np.concatenate([random.random(1_000) < 0.1, random.random(1_000) < 0.3]) * 1.0 for _ in range(20)]
    found = [stream_evidence(2_000, [Bets([stream], places)], 0.05) for stream in changed]
    assert sum(one.alarm is not None and one.alarm >= 1_000 for one in found) >= 19
    assert np.median([abs((one.change or 0) - 1_000) for one in found]) < 40


def test_no_order_of_the_same_values_is_worth_more_than_one_on_average() -> None:
    orders = permutations([0.0, 0.0, 0.5, 1.0, 1.0, 0.7])
    ends = [
        stream_evidence(6, [Bets([np.array(o)], np.arange(6))], 0.05, begins=[2], at_once=True).evidence[-1]
        for o in orders
    ]
    assert np.mean(ends) == pytest.approx(1)


def test_a_value_is_compared_with_the_last_one_of_its_subject() -> None:
    changes, places = since_last(np.array([1.0, 5.0, 2.0, 5.0, 4.0]), np.array([7, 3, 7, 9, 7]))
    assert (changes.tolist(), places.tolist()) == ([1.0, 2.0], [2, 4])


def test_the_permutation_test_is_that_of_all_permutations() -> None:
    before, after = np.array([0.0, 0, 0, 0]), np.array([1.0, 1, 1, 1])
    assert moved_p_value([before], [after], 1) == pytest.approx(2 / 70, abs=0.01)  # of the 70, both extreme ones
    assert moved_p_value([before], [before], 1) == 1
