"""What comparing experiments gives back: a comparison's rows, read from the store."""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from store.catalog import ask_arrow
from store.comparison_report import ComparisonReport, comparison_report
from store.parquet import Store
from store.records import ComparisonSetRow


class ComparativeResult:
    """A finished comparison. Iterates over its pairs, a mapping each, in the dataset's order, metric by metric."""

    def __init__(self, comparison_id: str) -> None:
        store = Store()
        (row,) = store.read("comparison_sets", comparison_id)
        self._row: ComparisonSetRow = row
        self._pairs = ask_arrow(store, _PAIRS, [comparison_id]).to_pylist()
        self.report: ComparisonReport = comparison_report(store, comparison_id)

    def __repr__(self) -> str:
        metrics = ", ".join(sorted({pair["metric"] for pair in self._pairs}))
        return f"ComparativeResult({self.name!r}, {self.comparison_id}, {len(self)} pairs: {metrics})"

    def __str__(self) -> str:
        """What is to be said of it, a sentence a line."""
        return "\n".join([f"{self.name} ({self.comparison_id})", *self.report.sentences])

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

    def to_pandas(self) -> pd.DataFrame:
        """A row a pair and metric: example_id, repetition, metric, left, right (experiments), winner (an experiment,
        `tie`, or None where the verdict is missing), shown_first (an experiment, or `both`), and what else is known;
        inputs.*, reference.*, left.*, right.*."""
        return pd.DataFrame([_flat(pair) for pair in self._pairs])

    def win_rates(self) -> pd.DataFrame:
        """A row a candidate, baseline, metric and slice."""
        return self._asked("select * from win_rates where comparison_id = ?")

    def leaderboard(self) -> pd.DataFrame:
        """A row an experiment, metric and slice, the best first."""
        return self._asked(
            "select * from leaderboard where comparison_id = ? order by metric, slice <> 'all', slice, rank"
        )

    def _asked(self, query: str) -> pd.DataFrame:
        found: pd.DataFrame = ask_arrow(Store(), query, [self.comparison_id]).to_pandas()
        return found


def _flat(pair: dict[str, Any]) -> dict[str, Any]:
    texts = {"inputs": "inputs", "reference": "reference_outputs", "left": "left_outputs", "right": "right_outputs"}
    columns = {name: value for name, value in pair.items() if name not in texts.values()}
    for prefix, name in texts.items():
        columns |= {f"{prefix}.{field}": value for field, value in json.loads(pair[name] or "{}").items()}
    return columns


_PAIRS = """
select example_id, repetition, metric, left_experiment as "left", right_experiment as "right", winner,
       case shown_first when 'left' then left_experiment when 'right' then right_experiment else 'both' end
           as shown_first,
       outcome, left_score, right_score, comment, other_comment, status, error, decided_by, agreement,
       left_run_id, right_run_id, left_experiment_id, right_experiment_id, cost_usd,
       inputs, reference_outputs, left_outputs, right_outputs
from pair_outcomes where comparison_id = ?
order by metric, repetition, position, left_experiment_id, right_experiment_id
"""
