"""Run-level metrics in gates: one number for a whole experiment, without an interval, tested by thresholds only."""

from evalflows.analysis.gates.rules import BoundedEstimate, Rule
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_slices import sliced_metric
from evalflows.store.parquet import Store
from evalflows.store.reasons import Reason
from evalflows.store.records import ExperimentRow


def run_level_estimate(store: Store, spec: ExperimentSpec, row: ExperimentRow, rule: Rule) -> BoundedEstimate | Reason:
    """The estimate of a run-level metric, or why the rule cannot be evaluated."""
    sliced = sliced_metric(rule.metric)
    scores = store.query(_RUN_LEVEL, [row.experiment_id, sliced.metric])
    if scores and sliced.path is not None:
        return Reason("run_level_metric", "a run-level metric is one number for all examples: it has no slices")
    if len(scores) != 1:
        several = Reason("ambiguous_metric", "several run-level evaluators give it")
        return several if scores else _why_no_values(store, row, sliced.metric)
    ((value, error),) = scores
    answered, planned = store.query(_ANSWERED, [row.experiment_id])[0][0], row.n_examples * row.repetitions
    if value is None:
        return Reason("not_numeric", f"it is not a number: {error or 'a label'}")
    if rule.kind != "threshold":
        text = "a run-level metric is one number without an interval: wanted under thresholds"
        return Reason("run_level_metric", text)
    if answered < planned:
        return Reason("incomplete", f"computed from {answered} of {planned} answers: the missing ones could change it")
    higher = bool(spec.direction(rule.metric).higher_is_better)
    gain = value if higher else -value
    return BoundedEstimate(
        value=gain,
        interval_at=lambda confidence_level: None,
        worst_case_interval_at=lambda confidence_level: None,
        worst_case_values=(gain, gain),
        n=answered,
        noun="answers",
        n_missing=0,
        higher_is_better=higher,
    )


def _why_no_values(store: Store, row: ExperimentRow, metric: str) -> Reason:
    """Explain why a metric has no values per run that could be tested."""
    ((evaluators, labels, numbers),) = store.query(_PER_RUN, [row.experiment_id, metric])
    if labels:
        besides = " besides numbers" if numbers else ""
        return Reason("not_numeric", f"it has labels{besides}, which are not averaged")
    if evaluators > 1:
        return Reason("ambiguous_metric", f"{evaluators} evaluators give it, so it is ambiguous")
    if not evaluators:
        return Reason("no_such_metric", "no evaluator gives it")
    return Reason("no_data", "it has no scored values")


_RUN_LEVEL = """select value, error from source.scores
             where experiment_id = ? and subject_kind = 'experiment' and metric = ?"""
_ANSWERED = "select count(*) from source.outputs where experiment_id = ? and status = 'ok'"
_PER_RUN = """select count(distinct evaluator), count(label), count(value) from source.scores
              where experiment_id = ? and subject_kind = 'run' and turn is null and metric = ?"""
