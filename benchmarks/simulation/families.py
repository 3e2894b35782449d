"""Cells for several metrics in one comparison: family-wise error rate and power with Holm's adjustment."""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from benchmarks.simulation.cells import Cell, Figure
from evalflows.analysis.verdicts import DifferenceTest, classify
from evalflows.stats.arrays import FloatArray
from evalflows.stats.paired import paired_difference

N = 100
EFFECT = 0.3
"""The true difference, in standard deviations, of the metrics that have one."""
DIFFER = 0.3
"""The share of yes/no pairs that differ."""
FALSE = Figure(name="family-wise error rate", at_most=0.055)
UNADJUSTED = Figure(name="family-wise error rate, unadjusted")
AVERAGE_POWER = Figure(name="average power")


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
            estimates = [
                paired_difference(*paired, binary=yes_no)
                for paired in _metrics(rng, metrics, correlation, differing, yes_no)
            ]
            verdicts = classify([DifferenceTest(estimate=estimate) for estimate in estimates], "holm")
            rejected = np.array([verdict.conclusion in ("better", "worse") for verdict in verdicts])
            unadjusted = [
                estimate.p_value is not None and estimate.p_value <= 0.05 for estimate in estimates[differing:]
            ]
            row = [float(rejected[differing:].any()), float(any(unadjusted))]
            yield [*row, float(rejected[:differing].mean())] if differing else row

    return Cell(
        kind="holm",
        method=f"{metrics} metrics by Holm",
        world=("yes/no" if yes_no else "normal") + (", correlated" if correlation else ", independent"),
        n=str(N),
        difference=f"{differing} of {metrics}" if differing else "none",
        figures=(FALSE, UNADJUSTED, AVERAGE_POWER) if differing else (FALSE, UNADJUSTED),
        rows=rows,
    )


def _metrics(
    rng: np.random.Generator, metrics: int, correlation: float, differing: int, yes_no: bool
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Return both sides of each metric. The first `differing` have a true difference."""
    shared = rng.standard_normal(N) * math.sqrt(correlation)
    z = shared + rng.standard_normal((metrics, N)) * math.sqrt(1 - correlation)
    z[:differing] += EFFECT
    if yes_no:
        cut = NormalDist().inv_cdf(1 - DIFFER / 2)
        return ((1.0 - (row < -cut), 1.0 - (row > cut)) for row in z)
    baseline = rng.standard_normal((metrics, N))
    return zip(baseline + z, baseline, strict=True)
