"""All cells, by kind."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from benchmarks.simulation.cells import Cell
from benchmarks.simulation.clusters import cluster_cells
from benchmarks.simulation.differences import mean_cells, paired_cells
from benchmarks.simulation.families import holm_cells
from benchmarks.simulation.figures import figure_cells
from benchmarks.simulation.gates import gate_cells
from benchmarks.simulation.lengths import length_control_cells
from benchmarks.simulation.monitoring import monitoring_cells
from benchmarks.simulation.preferences import rating_cells
from benchmarks.simulation.rare_losses import rare_loss_cells
from benchmarks.simulation.selection import selection_cells
from benchmarks.simulation.sequences import prediction_powered_cells, sequential_cells
from benchmarks.simulation.slices import slice_cells

KINDS: Mapping[str, Callable[[], Iterator[Cell]]] = {
    "paired": paired_cells,
    "means": mean_cells,
    "clusters": cluster_cells,
    "sequential": sequential_cells,
    "holm": holm_cells,
    "prediction_powered": prediction_powered_cells,
    "gate": gate_cells,
    "rare_losses": rare_loss_cells,
    "ratings": rating_cells,
    "length_control": length_control_cells,
    "monitoring": monitoring_cells,
    "selection": selection_cells,
    "slices": slice_cells,
    "figures": figure_cells,
}


@cache
def all_cells() -> tuple[Cell, ...]:
    return tuple(cell for cells in KINDS.values() for cell in cells())
