"""Macro F1 of 10,000 answers with its interval, from 2,000 resamples, against a loop over scikit-learn's `f1_score`.

Run from the repository's root: `python -m benchmarks.resamples`. Ours draws the resamples, computes the figure on each
and without each of 200 groups of answers, and the interval. The loop draws a tenth of the resamples and computes the
figure of each; its time is multiplied by 10. They take turns, and times are processor time. Wanted: a ratio of at most
0.1, and 2 s of ours. Printed is the largest memory of ours, too.
"""

import time
import tracemalloc
from argparse import Namespace
from collections.abc import Callable
from statistics import median

import numpy as np
from sklearn.metrics import f1_score

from benchmarks.arguments import new_parser
from evalflows.stats.classification import Classification, ClassificationFigure
from evalflows.stats.resampling import figure_interval, resampled

ANSWERS, RESAMPLES, LABELS, PAIRS, TENTH = 10_000, 2000, 5, 5, 10
SMALLEST = 200, 50, 1
"""Answers, resamples and pairs."""


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(answers: int, resamples: int, pairs: int) -> None:
    rng = np.random.default_rng(0)
    expected, wrong = rng.integers(0, LABELS, (2, answers))
    got = np.where(rng.random(answers) < 0.8, expected, wrong)

    def ours() -> None:
        statistic = Classification(expected, got, LABELS, [ClassificationFigure("f1", "macro")])
        (figure,) = resampled(statistic, np.arange(answers), n_resamples=resamples)
        assert abs((figure.value or 0) - f1_score(expected, got, average="macro")) < 1e-9
        assert figure_interval(figure, bounds=(0.0, 1.0)).low is not None

    def loop() -> None:
        for _ in range(resamples // TENTH):
            drawn = rng.integers(0, answers, answers)
            f1_score(expected[drawn], got[drawn], average="macro")

    found = [(seconds(ours), TENTH * seconds(loop)) for _ in range(pairs)]
    for number, (mine, theirs) in enumerate(found, 1):
        print(f"pair {number}: ours {mine:.2f} s, the loop {theirs:.2f} s, ratio {mine / theirs:.3f}")
    print(f"median ratio {median(mine / theirs for mine, theirs in found):.3f}")
    tracemalloc.start()
    ours()
    print(f"largest memory of ours: {tracemalloc.get_traced_memory()[1] / 1e6:.0f} MB")
    tracemalloc.stop()


def parse_arguments() -> Namespace:
    return new_parser("resamples", __doc__).parse_args()


def main() -> None:
    measure(*(SMALLEST if parse_arguments().smallest else (ANSWERS, RESAMPLES, PAIRS)))


if __name__ == "__main__":
    main()
