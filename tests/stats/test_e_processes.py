"""E-processes of changes: what they are worth by hand, and how often quiet and changed streams raise an alarm."""

from itertools import permutations

import numpy as np
import pytest

from evalflows.stats.e_processes import STAKES, Bets, moved_p_value, stream_evidence


def test_evidence_is_the_mean_of_what_the_bets_pay() -> None:
    values = np.array([0.0, 0.0, 1.0])
    found = stream_evidence(3, [Bets([values])], 0.05, begins=[1], at_once=True)
    expected = []
    for stake in [*STAKES, *(-stake for stake in STAKES)]:
        weights = np.exp(stake * values)
        expected.append(weights[1] / weights[:2].mean() * weights[2] / weights.mean())
    assert found.evidence == pytest.approx([1, 1, np.mean(expected)])
    assert (found.alarm, found.change) == (None, None)


def test_quiet_streams_are_quiet_and_changed_ones_are_found_where_they_change() -> None:
    random = np.random.default_rng(1)
    quiet = [random.random(2_000) < 0.3 for _ in range(100)]
    alarms = [stream_evidence(2_000, [Bets([stream * 1.0])], 0.05).alarm for stream in quiet]
    assert sum(alarm is not None for alarm in alarms) <= 8
    changed = [np.concatenate([random.random(1_000) < 0.1, random.random(1_000) < 0.3]) * 1.0 for _ in range(20)]
    found = [stream_evidence(2_000, [Bets([stream])], 0.05) for stream in changed]
    assert sum(one.alarm is not None and one.alarm >= 1_000 for one in found) >= 19
    assert np.median([abs((one.change or 0) - 1_000) for one in found]) < 40


def test_no_order_of_the_same_values_is_worth_more_than_one_on_average() -> None:
    orders = permutations([0.0, 0.0, 0.5, 1.0, 1.0, 0.7])
    ends = [stream_evidence(6, [Bets([np.array(o)])], 0.05, begins=[2], at_once=True).evidence[-1] for o in orders]
    assert np.mean(ends) == pytest.approx(1)


def test_subjects_that_turn_either_way_are_seen_though_all_together_stay_as_they_are() -> None:
    random = np.random.default_rng(4)
    subjects = np.concatenate([random.permutation(60) for _ in range(8)])
    before = np.arange(60) % 2
    after = np.where(np.arange(60) < 20, 1 - before, before)
    values = np.where(np.arange(480) < 240, before[subjects], after[subjects]) * 1.0
    apart = Bets([values], subjects, apart=True)
    found = stream_evidence(480, [Bets([values]), apart], 0.05)
    assert found.alarm is not None and 240 <= found.alarm < 320
    assert (
        stream_evidence(240, [Bets([values[:240]]), Bets([values[:240]], subjects[:240], apart=True)], 0.05).alarm
        is None
    )
    quiet = [random.random(400) < 0.5 for _ in range(100)]
    of_each = np.tile(np.arange(20), 20)
    alarms = [stream_evidence(400, [Bets([one * 1.0], of_each, apart=True)], 0.05).alarm for one in quiet]
    assert sum(alarm is not None for alarm in alarms) <= 8
    orders = permutations([0.0, 0.0, 1.0, 1.0, 0.7])
    bets = [[Bets([np.array(order)], np.zeros(5, np.int64), apart=True)] for order in orders]
    assert np.mean(
        [stream_evidence(5, bet, 0.05, begins=[2], at_once=True).evidence[-1] for bet in bets]
    ) == pytest.approx(1)


def test_the_permutation_test_is_that_of_all_permutations() -> None:
    before, after = np.array([0.0, 0, 0, 0]), np.array([1.0, 1, 1, 1])
    assert moved_p_value([before], [after], 1) == pytest.approx(2 / 70, abs=0.01)  # of the 70, both extreme ones
    assert moved_p_value([before], [before], 1) == 1
