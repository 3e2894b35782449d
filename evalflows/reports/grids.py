"""The grids of a matrix: a table of cells for each combination of the levels of all factors but two, which is the best,
and the main effects, as cells of text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from evalflows.analysis.figures import estimate, estimate_text
from evalflows.reports.results import conclusion_text, why_interval_includes_0
from evalflows.store.records import from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.grid import Cell, Grid, MainEffect

MARKS = {"best": "*", "may_be_best": "~"}

EFFECT_HEADER = ("factor", "level", "against", "mean difference", "verdict")

_CELLS = """
select experiment_id, run_group, factors_of(spec, target) from source.experiments
where run_group in (select run_group from source.experiments where is_one_of(experiment_id, $1))
order by list_position($1, experiment_id)
"""


class GridTable(NamedTuple):
    """The levels of the first factor down, those of the second across; None where there is no cell."""

    title: str
    header: Sequence[str]
    rows: "Sequence[tuple[str, Sequence[Cell | None]]]"


def cells_on(store: Store, experiments: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the levels of each experiment, by its id, if they are all cells of one matrix; else nothing."""
    if len(experiments) < 2:
        return {}
    (rows,) = ask(store, (_CELLS, [list(experiments)]))
    cells: dict[str, Mapping[str, str]] = {identity: from_json(factors) or {} for identity, _, factors in rows}
    if {*cells} != {*experiments} or len({group for _, group, _ in rows}) > 1 or not all(cells.values()):
        return {}
    return cells


def grids_on(store: Store, experiments: Sequence[str]) -> "Sequence[Grid]":
    """Return a grid for each metric, if the experiments are all cells of one matrix, in the spec's order; else none."""
    if not (cells := cells_on(store, experiments)):
        return ()
    from evalflows.analysis.grid import grids_of  # late: specs are slow to import, and few runs have a matrix

    return grids_of(store, cells)


def tables_of(grid: "Grid") -> list[GridTable]:
    """Return a table for each combination of levels of all factors but the first two, without empty ones."""
    down, *others = grid.factors
    across = others[0] if others else None
    columns = grid.factors[across] if across else [grid.metric]
    by_rest: dict[tuple[str, ...], dict[tuple[str, str], Cell]] = {}
    for cell in grid.cells:
        rest = tuple(f"{factor} {cell.levels[factor]}" for factor in others[1:])
        by_rest.setdefault(rest, {})[cell.levels[down], cell.levels[across] if across else grid.metric] = cell
    return [
        GridTable(
            title=", ".join([grid.metric, *rest]),
            header=[f"{down} \\ {across}" if across else down, *columns],
            rows=[
                (level, [cells.get((level, column)) for column in columns])
                for level in grid.factors[down]
                if any(row == level for row, _ in cells)
            ],
        )
        for rest, cells in by_rest.items()
    ]


def cell_text(cell: "Cell | None", metric: str) -> tuple[str, str]:
    """Return a cell's mean with its mark, and its interval."""
    if cell is None:
        return "", ""
    mean, interval = estimate(cell.mean, cell.low, cell.high, metric)
    return f"{mean} {MARKS.get(cell.standing or '', '')}".rstrip(), interval


def legend(grid: "Grid", best: str = MARKS["best"], alike: str = MARKS["may_be_best"]) -> str:
    """Return what the marks say; empty without any."""
    if grid.best is None:
        return ""
    level = f"{grid.best.confidence_level:.0%}"
    corrected = f"{level}, corrected for all {len(grid.cells)} cells"
    said = "" if grid.best.reason else f"; {alike}: cannot be told apart from it ({corrected})"
    worst = ", missing values at their worst" if any(variant.n_missing for variant in grid.best.variants) else ""
    return f"[{level} interval of the cell alone]; {best}: best mean{worst}{said}"


def grid_sentences(grid: "Grid") -> list[str]:
    """Return which cell is the best, or why that is not known."""
    return grid.best.sentences if grid.best else [grid.reason] if grid.reason else []


def effect_cells(effect: "MainEffect", metric: str) -> tuple[str, ...]:
    """Return a main effect as cells of text."""
    difference = estimate_text(effect.difference, effect.low, effect.high, metric, signed=True)
    said, why = conclusion_text(effect.conclusion, effect.reason_code, effect.margin), why_effect(effect)
    return effect.factor, effect.level, effect.reference, difference, ": ".join(filter(None, [said, why]))


def why_effect(effect: "MainEffect") -> str:
    """Return why the verdict on a main effect is not what its interval shows; empty if it is."""
    if effect.reason_code == "no_significant_difference":
        return ""
    return why_interval_includes_0(effect.conclusion, effect.low, effect.high) or effect.reason or ""


def effects_title(grid: "Grid") -> str:
    """Return what the main effects are of."""
    level = f"{grid.effects[0].confidence_level:.0%}" if grid.effects else ""
    return (
        f"main effects on {grid.metric}: over the levels of the other factors, paired by example ({level} per factor)"
    )
