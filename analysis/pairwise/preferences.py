"""Load the judgements of a comparison, and the outcome of each pair over its presentation orders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from evalflows.execution.pair_chunks import pairs_of
from evalflows.execution.views import has_value, value_at
from evalflows.store.catalog import ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.records import ComparisonSetRow, ExampleRow
from evalflows.store.row_specs import comparison_spec

Values = npt.NDArray[np.float64]

MAX_SLICE_VALUES = 50
"""A field with more values than this is nearly an id, so it gives no slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """One metric of a comparison.

    `outcomes` has one row per pair of runs: example_id, repetition, left, right (experiment ids), points of the left
    (NaN if missing), status, outcome, asked, longer (length of the left minus the right's, in characters), shown (+1
    left first, -1 right first, 0 both), agreement, cluster_id. `judgements` has one row per presentation order.
    """

    metric: str
    evaluator: str
    outcomes: pd.DataFrame
    judgements: pd.DataFrame

    def of_examples(self, examples: frozenset[str]) -> "Preferences":
        """Restrict to some examples."""
        outcomes, judgements = (rows[rows.example_id.isin(examples)] for rows in (self.outcomes, self.judgements))
        return Preferences(metric=self.metric, evaluator=self.evaluator, outcomes=outcomes, judgements=judgements)

    def between(self, candidate: str, baseline: str) -> pd.DataFrame:
        """The outcomes between two experiments, with the candidate's `points`, `longer` and `shown`."""
        experiments = [candidate, baseline]
        rows = self.outcomes[self.outcomes.left.isin(experiments) & self.outcomes.right.isin(experiments)].copy()
        if candidate > baseline:  # the candidate is on the right
            rows["points"] = 1 - rows.points
            rows["longer"], rows["shown"] = -rows.longer, -rows.shown
        return rows


def preferences_in(store: Store, row: ComparisonSetRow, examples: Sequence[ExampleRow]) -> list[Preferences]:
    """The metrics of a comparison, without those that several evaluator versions give.

    Planned pairs without a row, as in an interrupted comparison, count as missing.
    """
    store.verify(row.experiments, {"outputs"})
    outcomes = _drop_unused_own_names(ask_arrow(store, _OUTCOMES, [row.comparison_id]).to_pandas())
    judgements = ask_arrow(store, _JUDGEMENTS, [row.comparison_id]).to_pandas()
    return [
        Preferences(
            metric=str(metric),
            evaluator=str(of_metric.evaluator.iloc[0]),
            outcomes=_with_missing_pairs(of_metric.reset_index(drop=True), row, examples),
            judgements=judgements[judgements.metric == metric].reset_index(drop=True),
        )
        for metric, of_metric in outcomes.groupby("metric", sort=True)
        if of_metric.evaluator_version.nunique() == 1
    ]


def _drop_unused_own_names(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Drop rows under an evaluator's own name if it gives its metrics only under other names."""
    given = outcomes[outcomes.asked & (outcomes.status == "scored")]
    others = set(given.evaluator) - set(given[given.metric == given.evaluator].evaluator)
    return outcomes[~(outcomes.evaluator.isin(others) & (outcomes.metric == outcomes.evaluator))]


def _with_missing_pairs(outcomes: pd.DataFrame, row: ComparisonSetRow, examples: Sequence[ExampleRow]) -> pd.DataFrame:
    keys = ["example_id", "repetition", "left", "right"]
    existing = set(outcomes[keys].itertuples(index=False, name=None))
    pairs = [tuple(sorted(pair)) for pair in pairs_of(comparison_spec(row))]
    missing = {"points": np.nan, "status": "missing", "asked": True, "longer": np.nan, "shown": 0.0}
    missing_rows = [
        {**dict(zip(keys, key, strict=True)), "cluster_id": _cluster_id(example), **missing}
        for pair in pairs
        for repetition in range(row.repetitions)
        for example in examples
        if (key := (example.example_id, repetition, *pair)) not in existing
    ]
    return pd.concat((outcomes, pd.DataFrame(missing_rows)), ignore_index=True) if missing_rows else outcomes


def _cluster_id(example: ExampleRow) -> str:
    return f"cluster {example.cluster}" if example.cluster is not None else f"example {example.example_id}"


def slices(examples: Sequence[ExampleRow], by: Sequence[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the examples of each value of some fields, and of each split if there are several."""
    splits = ["split"] if len({example.split for example in examples} - {None}) > 1 else []
    for path in dict.fromkeys([*splits, *by]):
        of_value: dict[str, set[str]] = {}
        for example in examples:
            if has_value(example, path):
                of_value.setdefault(str(value_at(example, path)), set()).add(example.example_id)
        if len(of_value) <= MAX_SLICE_VALUES:
            yield from ((f"{path}={value}", frozenset(ids)) for value, ids in sorted(of_value.items()))


_OUTCOMES = """
select metric, evaluator, evaluator_version, example_id, repetition, left_experiment_id as "left",
       right_experiment_id as "right", coalesce(left_points, 'nan'::double) as points, status, outcome,
       decided_by is null as asked, (left_length - right_length)::double as longer,
       case shown_first when 'left' then 1.0 when 'right' then -1.0 else 0.0 end as shown, agreement,
       coalesce('cluster ' || cluster, 'example ' || example_id) as cluster_id
from pair_outcomes where comparison_id = ?
order by metric, example_id, repetition, "left", "right"
"""

_JUDGEMENTS = """
select c.metric, c.example_id, c.left_experiment_id as "left", c.right_experiment_id as "right", c.winner,
       c.shown_first, p.orders, p.decided_by is null as asked,
       coalesce('cluster ' || p.cluster, 'example ' || p.example_id) as cluster_id
from comparisons c join pair_outcomes p using (comparison_id, metric, evaluator_version, left_run_id, right_run_id)
where c.comparison_id = ? and p.status = 'scored' and c.status = 'scored'
order by c.metric, c.example_id, c.repetition, c.left_run_id, c.right_run_id, c.shown_first
"""
