"""Labelled items with what every judge said of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd


class JudgeOfLabels(NamedTuple):
    """A version of a judge with one model, and the metrics of which its judgements and people's labels are."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledItems:
    """What a judge judged in one experiment or comparison and people labelled, as in `Judged`."""

    judge: JudgeOfLabels
    is_pairs: bool
    judgements: "pd.DataFrame"
    labels: "pd.DataFrame"


def labelled_items(store: Store, evaluator: str | None = None) -> Iterator[LabelledItems]:
    """Yield the labelled items of all judges, or of one, by experiment and comparison."""
    found = ask_arrow(store, _ITEMS, [evaluator]).to_pandas()
    if (found.kind == "pair").any():
        pairs = ask_arrow(store, _OUTCOMES, [sorted({*found.owner[found.kind == "pair"]})]).to_pandas()
        found = _with_outcomes(found, pairs)
    for (*_, kind), some in found.groupby(["owner", *JudgeOfLabels._fields, "kind"], sort=False):
        judgements = some.drop_duplicates("unit")[["unit", "value", "label", "status", "rate", "together"]]
        columns = {"people_value": "value", "people_label": "label"}
        labels = some.drop(columns=["value", "label"]).rename(columns=columns)
        judge = JudgeOfLabels(*(str(some[name].iloc[0]) for name in JudgeOfLabels._fields))
        yield LabelledItems(judge=judge, is_pairs=kind == "pair", judgements=judgements, labels=labels)


def _with_outcomes(found: "pd.DataFrame", pairs: "pd.DataFrame") -> "pd.DataFrame":
    """Give pairs the combined outcome of both orders; each label then stands once."""
    import pandas as pd

    runs, ordered = found[found.kind == "run"], found[found.kind == "pair"]
    keys = ["owner", "metric", "evaluator_version", "unit"]
    once = ordered.drop_duplicates([*keys, "people_metric", "label_id"]).drop(columns=["value", "label"])
    return pd.concat([runs, once.merge(pairs, on=keys)], ignore_index=True)


_ITEMS = """
select j.experiment_id as owner, j.kind, j.evaluator, j.evaluator_version,
       coalesce(j.judge_model, 'no model') as judge_model, j.metric, j.people_metric,
       j.run_id || coalesce(' ' || j.other_run_id, '') as unit, j.value, j.label, 'scored' as status,
       null::double as rate, 'example ' || j.example_id as together, j.label_id, j.people_value, j.people_label,
       l.labeller, l.is_fair, l.chance, l.source
from judge_labels j join current_labels l using (label_id)
where $1::varchar is null or j.evaluator = $1
order by owner, j.metric, j.people_metric, j.evaluator_version, unit, l.labeller
"""

_OUTCOMES = """
select comparison_id as owner, metric, evaluator_version, left_run_id || ' ' || right_run_id as unit,
       left_points as value, case when left_points > 0.5 then 'left' when left_points < 0.5 then 'right'
            when left_points = 0.5 then 'tie' end as label
from pair_outcomes
where is_one_of(comparison_id, $1) and status = 'scored' and decided_by is distinct from 'failed_output'
"""
