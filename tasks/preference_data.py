"""What a comparison's statistics are made of: the judgements, and what the orders of each pair say together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from specs.comparison import ComparisonSpec
from store.catalog import ask_arrow
from store.parquet import Store
from store.records import ComparisonSetRow, ExampleRow
from tasks.pairs import pairs_of
from tasks.subject import has_value, value_at

Values = npt.NDArray[np.float64]

MOST_VALUES = 50
"""Values of a field for which there are win rates each; of more, it is no slice but nearly an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """One metric of a comparison.

    `outcomes` has a row a pair of runs: example_id, repetition, left, right (experiment ids), points of the left (NaN
    where there is none), status, outcome, asked, longer (characters of the left beyond the right's), shown (+1 left
    first, -1 right first, 0 both), agreement, together (what was sampled together). `judgements` has a row an order.
    """

    metric: str
    evaluator: str
    outcomes: pd.DataFrame
    judgements: pd.DataFrame

    def of_examples(self, examples: frozenset[str]) -> "Preferences":
        """The same of some examples only."""
        outcomes, judgements = (one[one.example_id.isin(examples)] for one in (self.outcomes, self.judgements))
        return Preferences(metric=self.metric, evaluator=self.evaluator, outcomes=outcomes, judgements=judgements)

    def between(self, candidate: str, baseline: str) -> pd.DataFrame:
        """The outcomes between two experiments, `points` and `longer` and `shown` being the candidate's."""
        sides = (self.outcomes.left, self.outcomes.right)
        found = self.outcomes[sides[0].isin([candidate, baseline]) & sides[1].isin([candidate, baseline])].copy()
        if candidate > baseline:  # the candidate is the right one
            found["points"] = 1 - found.points
            found["longer"], found["shown"] = -found.longer, -found.shown
        return found


def preferences_in(store: Store, row: ComparisonSetRow, examples: Sequence[ExampleRow]) -> list[Preferences]:
    """Every metric that one evaluator gives; of two evaluators' there is no saying which is meant.

    Planned pairs without any row, as a comparison has them that was broken off, are missing.
    """
    outcomes = _known_names(ask_arrow(store, _OUTCOMES, [row.comparison_id]).to_pandas())
    judgements = ask_arrow(store, _JUDGEMENTS, [row.comparison_id]).to_pandas()
    return [
        Preferences(
            metric=str(metric),
            evaluator=str(of_metric.evaluator.iloc[0]),
            outcomes=_with_unmade(of_metric.reset_index(drop=True), row, examples),
            judgements=judgements[judgements.metric == metric].reset_index(drop=True),
        )
        for metric, of_metric in outcomes.groupby("metric", sort=True)
        if of_metric.evaluator_version.nunique() == 1
    ]


def _known_names(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Without what an evaluator left under its own name because it gave its metrics under others only."""
    given = outcomes[outcomes.asked & (outcomes.status == "scored")]
    others = set(given.evaluator) - set(given[given.metric == given.evaluator].evaluator)
    return outcomes[~(outcomes.evaluator.isin(others) & (outcomes.metric == outcomes.evaluator))]


def _with_unmade(outcomes: pd.DataFrame, row: ComparisonSetRow, examples: Sequence[ExampleRow]) -> pd.DataFrame:
    keys = ["example_id", "repetition", "left", "right"]
    made = set(outcomes[keys].itertuples(index=False, name=None))
    pairs = [tuple(sorted(pair)) for pair in pairs_of(ComparisonSpec.model_validate_json(row.spec))]
    nothing = {"points": np.nan, "status": "missing", "asked": True, "longer": np.nan, "shown": 0.0}
    unmade = [
        {**dict(zip(keys, (one.example_id, repetition, *pair), strict=True)), "together": _together(one), **nothing}
        for pair in pairs
        for repetition in range(row.repetitions)
        for one in examples
        if (one.example_id, repetition, *pair) not in made
    ]
    return pd.concat((outcomes, pd.DataFrame(unmade)), ignore_index=True) if unmade else outcomes


def _together(example: ExampleRow) -> str:
    return f"cluster {example.cluster}" if example.cluster is not None else f"example {example.example_id}"


def slices(examples: Sequence[ExampleRow], by: Sequence[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The name and the examples of each value of some fields; of the splits too, where there are several."""
    splits = ["split"] if len({one.split for one in examples} - {None}) > 1 else []
    for path in dict.fromkeys([*splits, *by]):
        of_value: dict[str, set[str]] = {}
        for one in examples:
            if has_value(one, path):
                of_value.setdefault(str(value_at(one, path)), set()).add(one.example_id)
        if len(of_value) <= MOST_VALUES:
            yield from ((f"{path}={value}", frozenset(found)) for value, found in sorted(of_value.items()))


_OUTCOMES = """
select metric, evaluator, evaluator_version, example_id, repetition, left_experiment_id as "left",
       right_experiment_id as "right", coalesce(left_points, 'nan'::double) as points, status, outcome,
       decided_by is null as asked, (left_length - right_length)::double as longer,
       case shown_first when 'left' then 1.0 when 'right' then -1.0 else 0.0 end as shown, agreement,
       coalesce('cluster ' || cluster, 'example ' || example_id) as together
from pair_outcomes where comparison_id = ?
order by metric, example_id, repetition, "left", "right"
"""

_JUDGEMENTS = """
select c.metric, c.example_id, c.left_experiment_id as "left", c.right_experiment_id as "right", c.winner,
       c.shown_first, p.orders, p.decided_by is null as asked,
       coalesce('cluster ' || p.cluster, 'example ' || p.example_id) as together
from comparisons c join pair_outcomes p using (comparison_id, metric, evaluator_version, left_run_id, right_run_id)
where c.comparison_id = ? and p.status = 'scored' and c.status = 'scored'
order by c.metric, c.example_id, c.repetition, c.left_run_id, c.right_run_id, c.shown_first
"""
