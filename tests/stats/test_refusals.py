"""What a statistic cannot be computed of is refused: what was got, where, and what was wanted."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from evalflows.stats import pass_at_k, pass_hat_k
from evalflows.stats.agreement import agreement, discrimination, expected_error, krippendorff_alpha
from evalflows.stats.arrays import checked_confidence_level, finite_vector, same_length
from evalflows.stats.clusters import clustering_of
from evalflows.stats.judge_error import confusion, judge_error, prediction_powered_mean
from evalflows.stats.label_choice import label_next
from evalflows.stats.length_control import length_controlled_rates
from evalflows.stats.means import combined_share, linearised, mean_estimate, share_estimate
from evalflows.stats.multiple_tests import adjusted
from evalflows.stats.paired import paired_difference
from evalflows.stats.power import cautious_sd, detectable_effect, difference_components, needed_examples, plan_sizes
from evalflows.stats.proportions import one_sided_p, pair_share
from evalflows.stats.ratings import bradley_terry, cycles, rank_ranges
from evalflows.stats.sequential import cluster_values, confidence_sequence
from evalflows.stats.weights import means_of_examples, one_at_a_time, pareto_front, run_parts

NUMBERS: dict[str, Any] = {"differences": [-0.5, 0.2, 0.9], "bounds": None}
CLUSTERED: dict[str, Any] = {"differences": [1.0, 0.0], "clusters": "aa"}
POWERED: dict[str, Any] = {"labels": [1.0, 0.0], "judged_labelled": [1.0, 1.0], "judged_rest": [1.0]}
NEXT: dict[str, Any] = {"lots": [0.1, 0.2], "labelled": np.zeros(2, dtype=bool), "errors": [0.0, 0.0], "n": 1}
ERROR: dict[str, Any] = {"values": [0.5], "low": 0, "high": 1}
TWO = [share_estimate([1.0]), share_estimate([0.0])]


def rated(*judged: Any, **settings: Any) -> Callable[[], object]:
    return lambda: bradley_terry(*judged, **{"entries": 2, **settings})


def controlled(
    points: Any, longer_by: Any, left: Any = None, right: Any = None, **settings: Any
) -> Callable[[], object]:
    sides = left or np.ones(len(points)), right or np.zeros(len(points))
    return lambda: length_controlled_rates(*sides, points, longer_by, pairs=[(1, 0)], **settings)


REFUSED: list[tuple[Callable[[], object], str]] = [
    *((lambda bad=bad: finite_vector("v", [0.5, bad]), "v[1]: got ") for bad in (nan, inf, -inf, 1e300)),
    *((lambda bad=bad: finite_vector("v", [0, bad], binary=True), "v[1]: got ") for bad in (0.5, 2.0, -1.0)),
    (lambda: same_length(np.zeros(3), np.zeros(2)), "got 3 values, wanted as many as the baseline's 2"),
    *((lambda bad=bad: checked_confidence_level(bad), "confidence_level: got") for bad in (0, 1, -0.5, 95, nan)),
    (lambda: clustering_of(["a", nan, "a"], 3), "clusters[1]: got nan, wanted None"),
    (lambda: mean_estimate([0.1, nan]), "values[1]: got nan"),
    (lambda: mean_estimate([[0.1, 0.5]]), "shape"),
    (lambda: mean_estimate([0.1, 0.5], confidence_level=95), "confidence_level"),
    (lambda: share_estimate([0, 0.5]), "yes[1]: got 0.5, wanted 0 or 1"),
    (lambda: share_estimate([[0, 1]]), "shape"),
    (lambda: share_estimate([0, 1], confidence_level=95), "confidence_level"),
    (lambda: combined_share(TWO, [1]), "weights: got 1 for 2 parts"),
    (lambda: combined_share(TWO, [1, -1]), "weights[1]: got -1.0, wanted at least 0"),
    (lambda: combined_share(TWO, [0, 0]), "weights: got only 0"),
    (lambda: one_sided_p(lambda _: (0.0, 1.0), nan), "threshold: got nan"),
    (lambda: one_sided_p(lambda _: (nan, 1.0), 0.5), "interval_at: got nan to 1.0"),
    (lambda: one_sided_p(lambda _: (1.0, 0.0), 0.5), "interval_at: got 1.0 to 0.0"),
    *((lambda share=share, given=given: share(*given), said) for share in (pass_at_k, pass_hat_k) for given, said in (
        (([1], 4, 5), "trials[0]: got 4.0, wanted at least k = 5"),
        (([1], 4, 0), "k: got 0, wanted a whole number of at least 1"),
        (([1], 4, 1.5), "k: got 1.5, wanted a whole number"),
        (([5], 4, 1), "successes[0]: got 5.0, wanted at most the number of trials"),
        (([-1], 4, 1), "successes[0]: got -1.0, wanted a whole number of at least 0"),
        (([nan], 4, 1), "successes[0]: got nan, wanted a finite number"),
        (([[1, 2]], 4, 1), "successes: got shape (1, 2)"),
    )),
    (lambda: adjusted([0.5, 1.01]), "p_values[1]: got 1.01, wanted 0 to 1"),
    (lambda: adjusted([-0.1], "none"), "p_values[0]"),
    (lambda: adjusted([nan]), "p_values[0]"),
    (lambda: adjusted([[0.5]]), "p_values: got shape"),
    (lambda: adjusted([0.5], "bonferroni"), "method: got 'bonferroni', wanted one of holm, benjamini_hochberg, none"),
    (lambda: paired_difference([0.1, inf], [0.1, 0.2]), "candidate[1]"),
    (lambda: paired_difference([0.1, 0.2], [0.1]), "candidate: got 2 values, wanted as many as the baseline's 1"),
    (lambda: paired_difference([0, 1], [0.5, 1], binary=True), "baseline[0]: got 0.5, wanted 0 or 1"),
    (lambda: paired_difference([0, 1], [0, 1], confidence_level=0), "confidence_level"),
    (lambda: detectable_effect(-0.1), "standard_error: got -0.1"),
    (lambda: detectable_effect(0.1, df=0), "df: got 0, wanted at least 1"),
    (lambda: detectable_effect(0.1, power=0.025), "power: got 0.025, wanted a number between 0.025 and 1"),
    (lambda: needed_examples(0.0, sd=1.0), "effect: got 0.0"),
    (lambda: needed_examples(0.1, sd=-1.0), "sd: got -1.0"),
    (lambda: plan_sizes(0.1, 0.5, repetitions=[2, 0]), "repetitions: got 0"),
    (lambda: difference_components([1.0], [1.0]), "candidate: got shape"),
    (lambda: difference_components([[inf]], [[1.0]]), "candidate: got a number that is not finite"),
    (lambda: difference_components([[1.0]], [[1.0], [2.0]]), "candidate: got 1 examples"),
    (lambda: cautious_sd(0.5, 1.5), "baseline_mean: got 1.5"),
    (lambda: confidence_sequence(**NUMBERS | {"bounds": (0, 0.5)}), "differences[0]: got -0.5, wanted 0 to 0.5"),
    (lambda: confidence_sequence(**NUMBERS | {"bounds": (1, -1)}), "bounds: got 1 to -1"),
    (lambda: confidence_sequence(**NUMBERS, confidence_level=1.0), "confidence_level"),
    (lambda: confidence_sequence(**NUMBERS, interim_analyses=[0]), "got [0], wanted increasing counts from 1 to 3"),
    (lambda: confidence_sequence(**NUMBERS, interim_analyses=[2, 2]), "interim_analyses"),
    (lambda: confidence_sequence(**NUMBERS | {"differences": [nan]}), "differences[0]"),
    (lambda: cluster_values(**CLUSTERED, average_size=0.5), "average_size: got 0.5"),
    (lambda: cluster_values(**CLUSTERED, average_size=2, largest_size=1), "largest_size: got 1, wanted at least 2"),
    (lambda: cluster_values(**CLUSTERED | {"clusters": "abc"}, average_size=2), "clusters: got 3"),
    (rated([0], [1], [1], entries=1), "entries: got 1, wanted a whole number of at least 2"),
    (rated([0, 2], [1, 0], [1, 1]), "first[1]: got 2.0, wanted a whole number from 0 to 1"),
    (rated([0, 1], [1, 1], [1, 1]), "second[1]: got 1.0, wanted another entry than the first"),
    (rated([0], [1], [1.5]), "points[0]: got 1.5, wanted 0 to 1"),
    (rated([0], [1], [nan]), "points"),
    (rated([0, 1], [1], [1]), "first: got 2 values, wanted 1, as many as points"),
    (rated([0], [1], [1], weights=[0]), "weights[0]: got 0.0, wanted more than 0"),
    (rated([0], [1], [1], clusters="ab"), "clusters: got 2"),
    (rated([0], [1], [1], guard="sometimes"), "guard: got 'sometimes'"),
    (rated([0], [1], [1], order_term="yes"), "order_term: got 'yes', wanted true, false or nothing"),
    (rated([0], [1], [1], order_known=[2]), "order_known[0]: got 2.0, wanted true or false"),
    (controlled([1.5], [0]), "points[0]: got 1.5, wanted 0 to 1"),
    (controlled([1], [inf]), "longer_by"),
    (controlled([1], [0, 1]), "longer_by: got 2 values, wanted 1, as many as points"),
    (controlled([1, 0], [0, 1], order=[1, 2]), "order[1]: got 2.0, wanted 1, -1 or 0"),
    (controlled([1], [0], confidence_level=95), "confidence_level"),
    (controlled([1], [0], [1.5], [0]), "left[0]: got 1.5, wanted a whole"),
    (controlled([1], [0], [1], [-1]), "right[0]"),
    (controlled([1], [0], [1], [1]), "another entry"),
    (lambda: rank_ranges([1.0, 2.0], np.eye(3), df=5), "covariance: got shape (3, 3), wanted (2, 2)"),
    (lambda: cycles([[0, 1]]), "net: got shape (1, 2)"),
    (lambda: cycles([[0, 1], [1, 0]]), "net[0, 1]: got 1.0 against 1.0, wanted a finite number and its opposite"),
    (lambda: cycles([[1, 0], [0, 0]]), "net[0, 0]: got 1.0"),
    (lambda: cycles([[0, inf], [-inf, 0]]), "net[0, 1]: got inf"),
    (lambda: pair_share([1], []), "pairs: got 0"),
    (lambda: pair_share([1], [("a", "a")]), "with itself"),
    (lambda: pair_share([0.5], [("a", "b")]), "0 or 1"),
    (lambda: agreement("ab", "a"), "first: got 2 labels, wanted as many as second, 1"),
    (lambda: agreement(["a", None], "ab"), "first[1]: got None, wanted a label"),
    (lambda: agreement("ab", [nan, "b"]), "second[0]: got nan, wanted a label"),
    *((lambda bad=bad: discrimination([0.5, 0.5], [0.5, bad]), "wrong[1]: got") for bad in (1.5, -0.1, nan, inf)),
    (lambda: confusion(["a"], []), "judge: got 1 labels, wanted as many as people's 0"),
    (lambda: confusion([None], ["a"]), "judge[0]: got None"),
    (lambda: confusion(["a"], [nan]), "people[0]: got nan"),
    (lambda: judge_error([1.0], [1.0, 1.0]), "judge: got 1 values, wanted as many as people's 2"),
    (lambda: judge_error([0.5, 1.0], [1.0, 1.0], binary=True), "judge[0]: got 0.5, wanted 0 or 1"),
    (lambda: judge_error([0.0, 1.0], [1.0, 1.0], confidence_level=2), "confidence_level"),
    (lambda: krippendorff_alpha([[1, 2], [1]]), "ratings[1]: got 1 ratings, wanted 2"),
    (lambda: krippendorff_alpha([[1, "b"]], metric="interval"), "ratings[0]: got 'b', wanted a finite number"),
    (lambda: krippendorff_alpha([[1, 2]], metric="ratio"), "metric: got 'ratio'"),
    (lambda: krippendorff_alpha([[1, 2]], resamples=0), "resamples: got 0"),
    *((lambda change=change: prediction_powered_mean(**(POWERED | change)), said) for change, said in (
        ({"judged_labelled": [1.0]}, "judged_labelled: got 1, wanted as many as the 2 labels"),
        ({"labels": [1.0, nan]}, "labels[1]: got nan"),
        ({"weights": [1.0, 0.0]}, "weights[1]: got 0.0, wanted more than 0"),
        ({"weights": [1.0]}, "weights: got 1"),
        ({"bounds": (1.0, 0.0)}, "bounds: got 1.0 to 0.0"),
        ({"bounds": (0.0, 0.5)}, "labels[0]: got 1.0, wanted 0.0 to 0.5"),
        ({"confidence_level": 0.0}, "confidence_level"),
    )),
    *((lambda change=change: label_next(**(NEXT | change)), said) for change, said in (
        ({"errors": [0.0]}, "labelled: got 2 for 2 lots and 1 errors"),
        ({"n": 0}, "n, fair_share: got 0"),
        ({"fair_share": 1.5}, "n, fair_share: got 1, 1.5"),
        ({"lots": [nan, 0.0]}, "lots[0]: got nan"),
    )),
    *((lambda change=change: expected_error(**(ERROR | change)), said) for change, said in (
        ({"values": [2.0]}, "values[0]: got 2.0, wanted 0 to 1"),
        ({"low": 1}, "range: got 1 to 1"),
        ({"spreads": [0.1, 0.2]}, "spreads: got shape (2,)"),
        ({"others": [0.1]}, "others: got shape (1,)"),
    )),
    (lambda: linearised([1.0, 2.0], [1.0]), "weights: got 1, wanted one for each of 2 values"),
    (lambda: linearised([1.0], [0.0]), "weights[0]: got 0.0, wanted more than 0"),
    (lambda: linearised([1.0], [nan]), "weights"),
    (lambda: linearised([[1.0]], [[1.0]]), "shape"),
    (lambda: pareto_front([[nan, 1.0]], [True, True]), "values[0, 0]: got nan, wanted a finite number"),
    (lambda: pareto_front([[1.0]], [True, True]), "values: got shape (1, 1) and 2 directions"),
    (lambda: pareto_front([[1.0]], [True], resamples=np.ones((3, 2, 1))), "resamples: got shape (3, 2, 1)"),
    (lambda: means_of_examples([[[nan, 1.0]], [[1.0, nan]]]), "values[0]: got 0.0, wanted an example"),
    (lambda: means_of_examples([[[1.0]], [[1.0]]], weights=[[0.0]]), "weights[0]: got 0.0"),
    (lambda: run_parts([[1.5], [0]], [0, 1]), "parts[0]: got [1.5], wanted 0 to 1"),
    (lambda: run_parts([[1], [0]], [0, 0]), "systems: got [0], wanted runs of systems 0, 1"),
    (lambda: run_parts([[1], [0]], [0, 1], counts=[1, 0]), "counts[1]: got 0.0, wanted more than 0"),
    (lambda: run_parts([[1], [0]], [0, 1], aggregation="median"), "aggregation: got 'median'"),  # type: ignore[arg-type]
    (lambda: one_at_a_time([[0.7, 0.2], [0.6, 0.9]], [1, 0]), "weights[1]: got 0.0, wanted more than 0"),
    (lambda: one_at_a_time([[0.7, 0.2], [0.6, 0.9]], [1]), "weights: got 1, wanted one for each of 2 parts"),
    (lambda: one_at_a_time([[0.7, 0.2], [0.6, 0.9]], [1, 1], 1.0), "change: got 1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), REFUSED, ids=[f"{place}: {said}" for place, (_, said) in enumerate(REFUSED)])
def test_bad_input_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value)
