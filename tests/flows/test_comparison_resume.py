"""Comparisons that reuse judgements, stop, resume or are killed."""

import pytest
from endpoint import Endpoint, serving
from matched import asked
from pairwise_runs import N, answered, by_length, judged_by

from evalflows import compare
from evalflows.specs import InputError

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


@pytest.mark.slow
def test_adding_an_experiment_pays_only_for_its_new_pairs() -> None:
    a, b, c = answered("a", "b", "c")
    with serving(Endpoint(answer=by_length)) as endpoint:
        compare(judged_by(endpoint, [a, b], name="two"))
        assert endpoint.calls == N
        compare(judged_by(endpoint, [c, b, a], name="three"))
        assert endpoint.calls == 3 * N and endpoint.repeated() == 0
        compare(judged_by(endpoint, [a, b, c], name="again"))
        assert endpoint.calls == 3 * N
        compare(judged_by(endpoint, [a, b], name="fresh", use_cache=False))
        assert endpoint.calls == 4 * N
    paid = dict(asked("select name, [calls, calls_cached] from comparison_sets"))
    assert paid == {"two": [N, 0], "three": [2 * N, N], "again": [0, 3 * N], "fresh": [N, 0]}
    board = asked("select experiment, rank from leaderboard where comparison = 'three' and slice = 'all' order by rank")
    assert board == [("c", 1), ("b", 2), ("a", 3)]


def test_budget_usd_without_prices_is_refused_before_anything_is_paid() -> None:
    with serving(Endpoint(answer=by_length)) as endpoint:
        with pytest.raises(InputError, match="evaluator 'judge': budget_usd cannot be enforced without the price of"):
            compare(judged_by(endpoint, answered("old", "new"), budget_usd=1.0))
        assert endpoint.calls == 0
    assert asked("select count(*) from comparison_sets") == [(0,)]
