"""The grids of a matrix, as pages have them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from evalflows.dashboard.charts import domain
from evalflows.dashboard.rendering import Site, render
from evalflows.reports.grids import (
    EFFECT_HEADER,
    cell_text,
    effect_cells,
    effects_title,
    grid_sentences,
    grids_on,
    legend,
    tables_of,
    why_effect,
)

if TYPE_CHECKING:
    from evalflows.analysis.grid import Grid


def grids_part(site: Site, experiments: Sequence[str]) -> Markup:
    """Return the grids of experiments that are all cells of one matrix; empty for others."""
    if not (found := grids_on(site.store, experiments)):
        return Markup()
    texts = {
        made.__name__: made
        for made in (cell_text, effect_cells, effects_title, grid_sentences, legend, tables_of, why_effect)
    }
    return render("grids.html", site, grids=found, scale_of=_scale, effect_header=EFFECT_HEADER, **texts)


def _scale(grid: "Grid") -> tuple[float, float]:
    """Return the axis of all cells: 0 to 1 if all intervals are within it."""
    ends = [end for cell in grid.cells for end in (cell.mean, cell.low, cell.high) if end is not None]
    return (0.0, 1.0) if all(0 <= end <= 1 for end in ends) else domain(ends)
