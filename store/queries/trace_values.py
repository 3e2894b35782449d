"""The scores of a metric that traces or sessions have been given in production, as numbers to order them by."""

import json
from dataclasses import dataclass

from evalflows.specs.errors import InputError
from evalflows.specs.metric import MetricSpec
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.specs.trace_selection import SelectedScope
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemValue:
    """What one evaluator gave to one trace or session and its parts."""

    item: str
    evaluator: str
    lowest: float
    mean: float
    highest: float
    spread: float | None  # standard deviation over the repeats of the judge


def item_values(store: Store, scope: SelectedScope, metric: str) -> list[ItemValue]:
    """Return the values of a metric, by item and evaluator. Of each evaluator, only its newest version counts.

    An item's value includes those of its observations, and a session's those of its traces. Raise InputError if no
    item has a numeric value.
    """
    (rows,) = ask(store, (_VALUES, [scope, metric]))
    if not rows:
        (known,) = ask(store, (_METRICS, []))
        names = ", ".join(name for (name,) in known) or "none yet (`evaluate-traces`)"
        raise InputError(f"metric {metric!r}: no {scope} have numeric scores of it, wanted one of: {names}")
    return [
        ItemValue(item=item, evaluator=evaluator, lowest=lowest, mean=mean, highest=highest, spread=spread)
        for item, evaluator, lowest, mean, highest, spread in rows
    ]


def production_metric(store: Store, metric: str) -> MetricSpec:
    """Return the declared properties of a metric, with its direction, by the newest evaluation that has scored it."""
    query = """select w.spec from source.watermarks w where w.evaluation_id in (
                   select distinct left(experiment_id, -11) from source.scores
                   where metric = ? and starts_with(experiment_id, 'eval-'))
               order by w.recorded_at desc limit 1"""
    found = store.query(query, [metric])
    if found:
        return TraceEvaluationSpec.model_validate(json.loads(found[0][0])).direction(metric)
    return MetricSpec(higher_is_better=MetricSpec().is_higher_better(metric))


_VALUES = """
with given as (
    select case when $1 = 'traces' then trace_id when subject_kind = 'session' then subject_id else session_id end
               as item, evaluator, evaluator_version, value, spread, recorded_at
    from trace_scores
    where metric = $2 and status = 'scored' and value is not null
), newest as (
    select item, evaluator, arg_max(evaluator_version, recorded_at) as evaluator_version
    from given where item is not null group by all
)
select item, evaluator, min(value), avg(value), max(value), max(spread)
from given join newest using (item, evaluator, evaluator_version)
group by item, evaluator order by item, evaluator
"""

_METRICS = "select distinct metric from trace_scores where status = 'scored' and value is not null order by 1"
