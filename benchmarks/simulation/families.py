"""Many metrics at once: how often anything is called found among them that is not there."""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from benchmarks.simulation.cells import Cell, Figure
from evalflows.analysis.differences.verdicts import DifferenceTest, classify
from evalflows.stats import paired_difference
from evalflows.stats.arrays import FloatArray

N = 100
SOME = 0.3
"""A true difference in standard deviations, of those metrics that have one."""
DIFFER = 0.3
"""How many of the pairs of yes and no differ."""
FALSE = Figure(name="any false finding", at_most=0.055)
UNADJUSTED = Figure(name="the same without adjustment")
FOUND = Figure(name="true differences found")


def holm_cells() -> Iterator[Cell]:
    for metrics in (5, 10, 20):
        for correlation in (0.0, 0.5):
            for share in (0.0, 0.5):
                yield _family(metrics, correlation, int(metrics * share), yes_no=False)
    for share in (0.0, 0.5):
        yield _family(10, 0.5, int(10 * share), yes_no=True)


def _family(metrics: int, correlation: float, differing: int, *, yes_no: bool) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            found = [
                paired_difference(*paired, binary=yes_no)
                for paired in _metrics(rng, metrics, correlation, differing, yes_no)
            ]
            said = classify([DifferenceTest(estimate=one) for one in found], "holm")
            is_found = np.array([one.conclusion in ("better", "worse") for one in said])
            alone = [one.p_value is not None and one.p_value <= 0.05 for one in found[differing:]]
            row = [float(is_found[differing:].any()), float(any(alone))]
            yield [*row, float(is_found[:differing].mean())] if differing else row

    return Cell(
        kind="holm",
        method=f"{metrics} metrics by Holm",
        world=("yes/no" if yes_no else "normal") + (", correlated" if correlation else ", independent"),
        n=str(N),
        difference=f"{differing} of {metrics}" if differing else "none",
        figures=(FALSE, UNADJUSTED, FOUND) if differing else (FALSE, UNADJUSTED),
        rows=rows,
    )


def _metrics(
    rng: np.random.Generator, metrics: int, correlation: float, differing: int, yes_no: bool
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Both sides of each metric. The first `differing` have a true difference."""
    shared = rng.standard_normal(N) * math.sqrt(correlation)
    z = shared + rng.standard_normal((metrics, N)) * math.sqrt(1 - correlation)
    z[:differing] += SOME
    if yes_no:
        cut = NormalDist().inv_cdf(1 - DIFFER / 2)
        return ((1.0 - (one < -cut), 1.0 - (one > cut)) for one in z)
    baseline = rng.standard_normal((metrics, N))
    return zip(baseline + z, baseline, strict=True)
