"""The result of a pairwise comparison."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evalflows.reports.comparison import ComparisonReport, comparison_report
from evalflows.store.records import ComparisonSetRow
from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows.dashboard.notebook import Plot


class ComparativeResult:
    """A finished comparison. Iterates over its pairs as mappings, by metric, then in the dataset's order."""

    def __init__(self, comparison_id: str) -> None:
        self._store = store = Store()
        (row,) = store.read("comparison_sets", comparison_id)
        self._row: ComparisonSetRow = row
        self._pairs = ask_arrow(store, _PAIRS, [comparison_id]).to_pylist()
        self.report: ComparisonReport = comparison_report(store, comparison_id)

    def __repr__(self) -> str:
        metrics = ", ".join(sorted({pair["metric"] for pair in self._pairs}))
        return f"ComparativeResult({self.name!r}, {self.comparison_id}, {len(self)} pairs: {metrics})"

    def __str__(self) -> str:
        """Return the comparison's name and its summary, one sentence per line."""
        return "\n".join([f"{self.name} ({self.comparison_id})", *self.report.sentences])

    def _repr_html_(self) -> str:
        from evalflows.dashboard.notebook import shown, win_rates_table  # late: only notebooks need templates

        return shown(lambda: win_rates_table(self._store, f"{self.name} ({self.comparison_id})", self.report))

    def plot(self) -> "Plot":
        """Draw each win rate with its interval; notebooks show it, and `str` gives the SVG."""
        from evalflows.dashboard.notebook import plot_of_win_rates

        return plot_of_win_rates(f"Win rates of {self.name}", self.report)

    @property
    def comparison_id(self) -> str:
        return self._row.comparison_id

    @property
    def name(self) -> str:
        return self._row.name

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._pairs)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per pair and metric.

        Columns: example_id, repetition, metric, left, right (experiments; with the end of the id if the two have one
        name), winner (an experiment, `tie`, or None if
        the verdict is missing), shown_first (an experiment, `both`, or None if
        that is not known), inputs.*, reference.*, left.*, right.*, and
        scores, comments, status and cost.
        """
        import pandas as pd

        return pd.DataFrame([_flat(pair) for pair in self._pairs])

    def win_rates(self) -> "pd.DataFrame":
        """Return one row per candidate, baseline, metric and slice."""
        return self._query("select * from win_rates where comparison_id = ?")

    def leaderboard(self) -> "pd.DataFrame":
        """Return one row per experiment, metric and slice, best first."""
        return self._query(
            "select * from leaderboard where comparison_id = ? order by metric, slice <> 'all', slice, rank"
        )

    def _query(self, query: str) -> "pd.DataFrame":
        table: pd.DataFrame = ask_arrow(Store(), query, [self.comparison_id]).to_pandas()
        return table


def _flat(pair: dict[str, Any]) -> dict[str, Any]:
    texts = {"inputs": "inputs", "reference": "reference_outputs", "left": "left_outputs", "right": "right_outputs"}
    columns = {name: value for name, value in pair.items() if name not in texts.values()}
    for prefix, name in texts.items():
        columns |= {f"{prefix}.{field}": value for field, value in json.loads(pair[name] or "{}").items()}
    return columns


_PAIRS = """
with named as (
    select *, left_experiment || case when is_same then '-' || right(left_experiment_id, 8) else '' end as "left",
           right_experiment || case when is_same then '-' || right(right_experiment_id, 8) else '' end as "right"
    from (select *, left_experiment = right_experiment as is_same from pair_outcomes where comparison_id = ?)
)
select example_id, repetition, metric, "left", "right",
       case when left_points > 0.5 then "left" when left_points < 0.5 then "right" else winner end as winner,
       case shown_first when 'left' then "left" when 'right' then "right" else shown_first end as shown_first,
       outcome, left_score, right_score, comment, other_comment, status, error, decided_by, agreement,
       left_run_id, right_run_id, left_experiment_id, right_experiment_id, cost_usd,
       inputs, reference_outputs, left_outputs, right_outputs
from named
order by metric, repetition, position, left_experiment_id, right_experiment_id
"""
