"""A metric of all answers at once, held against a floor: one number, of which there is no interval."""

from specs.experiment import ExperimentSpec
from store.parquet import Store
from store.records import ExperimentRow
from tasks.rules import Measured, Rule


def measured_whole(store: Store, spec: ExperimentSpec, row: ExperimentRow, rule: Rule) -> Measured | str:
    """What an evaluator of the whole experiment gave, or why there is nothing to hold the rule against."""
    found = store.query(_OF_ALL, [row.experiment_id, rule.metric])
    if len(found) != 1:
        return _why_none(store, row, rule.metric) if not found else "two evaluators of all answers gave it"
    ((value, error),) = found
    answered, planned = store.query(_ANSWERED, [row.experiment_id])[0][0], row.n_examples * row.repetitions
    if value is None:
        return f"it is no number: {error or 'a label'}"
    if rule.kind != "floor":
        return "it is one number of all answers, without an interval: wanted under floors"
    if answered < planned:
        return f"it is of {answered} of {planned} answers: what is missing could turn it"
    higher = bool(spec.direction(rule.metric).higher_is_better)
    gain = value if higher else -value
    return Measured(
        value=gain,
        interval_at=lambda level: None,
        sure_at=lambda level: None,
        sure_value=(gain, gain),
        n=answered,
        noun="answers",
        lost=0,
        higher_is_better=higher,
    )


def _why_none(store: Store, row: ExperimentRow, metric: str) -> str:
    """Why a metric has no values of runs that could be weighed."""
    ((evaluators, labels, numbers),) = store.query(_OF_RUNS, [row.experiment_id, metric])
    if labels:
        return "it has labels" + (" besides numbers" if numbers else "") + ", which are not averaged"
    if evaluators > 1:
        return f"{evaluators} evaluators gave it, and there is no saying which is meant"
    return "nothing gave it" if not evaluators else "it has no value that was scored"


_OF_ALL = """select value, error from source.scores
             where experiment_id = ? and subject_kind = 'experiment' and metric = ?"""
_ANSWERED = "select count(*) from source.outputs where experiment_id = ? and status = 'ok'"
_OF_RUNS = """select count(distinct evaluator), count(label), count(value) from source.scores
              where experiment_id = ? and subject_kind = 'run' and turn is null and metric = ?"""
