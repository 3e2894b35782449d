"""What is expected of the results of a finished experiment: its planned runs, outputs and scores."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from evalflows.specs.dataset import Expectation
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.queries.result_columns import COUNTED, by, value_of
from evalflows.store.records import ExperimentRow, OutputStatus, ScoreStatus
from evalflows.store.row_specs import experiment_spec

UNIT = (0.0, 1.0)
"""The range of a composite, unless another is declared."""


def expect(type_: str, column: str, severity: str = "critical", **kwargs: Any) -> Expectation:
    """Return an expectation about the values of a column."""
    fields = {"type": f"expect_column_values_to_{type_}", "kwargs": {"column": column} | kwargs, "severity": severity}
    return Expectation.model_validate(fields)


def evaluators_of(spec: ExperimentSpec) -> list[str]:
    """Return the names of what judges every run, or, if sampled, says of every run that it was left out."""
    return [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]


def summaries_of(spec: ExperimentSpec) -> list[str]:
    """Return the names of what judges all runs together."""
    return [evaluator.metric for evaluator in spec.summary_evaluators]


def ranges_of(spec: ExperimentSpec) -> Mapping[str, tuple[float, float]]:
    """Return the range of each metric that has one."""
    declared = {name: metric.range for name, metric in spec.metrics.items() if metric.range is not None}
    return dict.fromkeys((composite.name for composite in spec.composites), UNIT) | declared


def of_runs(experiment: ExperimentRow) -> list[Expectation]:
    """Each planned run has one output, and a score by each evaluator."""
    judged = [by(evaluator) for evaluator in evaluators_of(experiment_spec(experiment))]
    return [
        expect("be_between", "runs.outputs", min_value=1, max_value=1),
        *(expect("be_between", name, min_value=1) for name in judged),
    ]


def of_summaries(experiment: ExperimentRow) -> list[Expectation]:
    """Each summary evaluator has a score."""
    return [expect("be_between", "summaries.scores", min_value=1)] if summaries_of(experiment_spec(experiment)) else []


def of_outputs(experiment: ExperimentRow) -> list[Expectation]:
    """Each output is of a planned run; it has an answer in JSON, or the reason why not. No amount is negative."""
    answered = _among("outputs.status", ["ok"])
    lacking = _among("outputs.status", ["failed", "not_attempted"])
    return [
        expect("not_be_null", "outputs.example"),
        expect("be_between", "outputs.repetition", min_value=0, max_value=experiment.repetitions - 1),
        expect("be_in_set", "outputs.status", value_set=[*get_args(OutputStatus)]),
        expect("not_be_null", "outputs.outputs", row_condition=answered),
        expect("be_json_parseable", "outputs.outputs", row_condition=answered),
        expect("not_be_null", "outputs.error", "warning", row_condition=lacking),
        *(expect("be_between", f"outputs.{name}", min_value=0) for name in COUNTED),
    ]


def of_scores(experiment: ExperimentRow) -> list[Expectation]:
    """Each score is of a known run and has no double; it has a value in the range, or the reason why not."""
    scored = _among("scores.status", ["scored"])
    others = _among("scores.status", [status for status in get_args(ScoreStatus) if status != "scored"])
    missing = _among("scores.status", ["failed", "not_attempted"])
    return [
        expect("not_be_null", "scores.subject"),
        expect("be_between", "scores.rows_of_key", min_value=1, max_value=1),
        expect("be_in_set", "scores.status", value_set=[*get_args(ScoreStatus)]),
        expect("not_be_null", "scores.result", row_condition=scored),
        expect("be_null", "scores.result", row_condition=others),
        expect("be_in_set", "scores.is_finite", value_set=[True]),
        *_in_range(experiment_spec(experiment)),
        expect("not_be_null", "scores.error", "warning", row_condition=missing),
        expect("be_between", "scores.sampling_rate", min_value=0, max_value=1, strict_min=True),
        *(expect("be_between", f"scores.{name}", "warning", min_value=0) for name in COUNTED),
    ]


def _in_range(spec: ExperimentSpec) -> list[Expectation]:
    return [
        expect("be_between", value_of(metric), min_value=low, max_value=high, row_condition=_filled(value_of(metric)))
        for metric, (low, high) in ranges_of(spec).items()
    ]


def _among(column: str, values: Sequence[str]) -> dict[str, Any]:
    return {"type": "comparison", "column": {"name": column}, "operator": "IN", "parameter": [*values]}


def _filled(column: str) -> dict[str, Any]:
    return {"type": "nullity", "column": {"name": column}, "is_null": False}
