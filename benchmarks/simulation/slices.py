"""Cells for the search of slices: how often any is named without a departure, and a planted loss first."""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.simulation.cells import Cell, Figure, difference_text
from benchmarks.simulation.worlds import Normal, World, YesNo
from evalflows.analysis.slice_search import Slices, contrasts_of, departing, slices_of
from evalflows.stats.arrays import FloatArray
from evalflows.store.records import ExampleRow, to_json

FIELDS = 40
"""Fields of the metadata, of two to five values each."""
SHARE = 0.15
"""Share of the examples that have the value 1 of the first field, where a loss is planted."""
LOSS = 0.2
CLUSTER = 10
"""Examples of a cluster. The examples of one are alike in half of the fields."""
SAME_FIELDS = 10
"""Runs with the same fields."""
LEVEL = 0.95

NAMED = Figure(name="any slice named", at_most=0.06)
FIRST = Figure(name="planted slice first")
FIRST_BOUNDED = Figure(name="planted slice first", at_least=0.8)


def slice_cells() -> Iterator[Cell]:
    """A/A pairs, and a loss in one slice; without a bound where 600 examples are too few."""
    graded = Normal(name="graded, differences of sd 0.3")
    for world in (_yes_no(0.02), _yes_no(0.1), graded):
        yield _cell(world, 600)
    yield _cell(_yes_no(0.04), 600, hard=True)
    yield _cell(graded, 600, clustered=True)
    yield _cell(_yes_no(0.04), 600, clustered=True)
    for differ, n in ((0.02, 600), (0.04, 600), (0.1, 1000)):
        yield _cell(_yes_no(differ), n, LOSS, FIRST_BOUNDED)
    yield _cell(_yes_no(0.1), 600, LOSS, FIRST)
    yield _cell(graded, 600, LOSS, FIRST_BOUNDED)
    yield _cell(graded, 600, LOSS, FIRST_BOUNDED, clustered=True)
    yield _cell(_yes_no(0.04), 600, LOSS, FIRST_BOUNDED, clustered=True)


def _yes_no(differ: float) -> YesNo:
    return YesNo(base=0.7, differ=differ)


def _cell(
    world: World, n: int, loss: float = 0.0, figure: Figure = NAMED, *, hard: bool = False, clustered: bool = False
) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for run in range(runs):
            if run % SAME_FIELDS == 0:
                clusters = [str(place // CLUSTER) for place in range(n)] if clustered else None
                slices, planted = _slices(rng, n, clustered=clustered)
            differences = _differences(rng, world, planted, loss, hard=hard, clustered=clustered)
            found = departing(slices, contrasts_of(slices, differences[None], clusters, LEVEL), LEVEL)
            yield [float(bool(found) and (not loss or slices.all[found[0].slice].name == "metadata.field0=1"))]

    return Cell(
        kind="slices",
        method=f"{FIELDS} fields",
        world=world.name + ", a hard slice" * hard + f", clusters of {CLUSTER}" * clustered,
        n=str(n),
        difference=difference_text(-loss) + f" in {SHARE:.0%}" * bool(loss),
        figures=(figure,),
        rows=rows,
        thinning=20,
    )


def _slices(rng: np.random.Generator, n: int, *, clustered: bool) -> tuple[Slices, FloatArray]:
    """Return the slices of n examples, and 1.0 for each example of the planted one."""
    fields = [rng.integers(0, 2 + field % 4, n) for field in range(FIELDS)]
    if clustered:
        fields[::2] = [np.repeat(one[::CLUSTER], CLUSTER) for one in fields[::2]]
    fields[0] = (rng.random(n) < SHARE).astype(np.int64)
    columns = [one.tolist() for one in fields]
    rows = [
        ExampleRow(
            snapshot_id="",
            example_id=str(place),
            position=place,
            inputs='""',
            metadata=to_json({f"field{field}": column[place] for field, column in enumerate(columns)}),
        )
        for place in range(n)
    ]
    return slices_of(rows), fields[0].astype(np.float64)


def _differences(
    rng: np.random.Generator, world: World, planted: FloatArray, loss: float, *, hard: bool, clustered: bool
) -> FloatArray:
    """Return a difference for each example. In a hard slice, the planted one, half of the answers differ. In clusters,
    graded values have a part in common, and half of the yes/no answers copy one of their cluster."""
    candidate, baseline = world.pairs(rng, planted.shape, 0.0)
    differences = candidate - baseline
    if not world.binary:
        common = 0.2 * rng.standard_normal(len(planted) // CLUSTER if clustered else 0)
        return 0.3 * differences - loss * planted + (np.repeat(common, CLUSTER) if clustered else 0)
    if clustered:
        copied = np.repeat(differences[::CLUSTER], CLUSTER)
        differences = np.where(rng.random(len(planted)) < 0.5, copied, differences)
    if hard:
        return np.where(planted > 0, rng.choice([-1.0, 0.0, 1.0], len(planted), p=[0.25, 0.5, 0.25]), differences)
    return np.where((planted > 0) & (rng.random(len(planted)) < loss), -1.0, differences)
