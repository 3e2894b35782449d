"""Composite scores of each answer, from its scores and measures."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from evalflows.engine.results import Columns, EvaluationResult
from evalflows.evaluators.composite import MetricPart, combined
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import LENGTH, MEASURES
from evalflows.specs.metrics import CompositeSpec
from evalflows.specs.reference import load
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.records import JudgementRow, OutputRow, to_json
from evalflows.store.schemas import records_of

ScoresByRun = Mapping[str, Sequence[JudgementRow]]


def composite_rows(
    composite: CompositeSpec,
    spec: ExperimentSpec | TraceEvaluationSpec,
    outputs: Sequence[OutputRow],
    of_run: ScoresByRun,
    columns: Callable[..., Columns],
) -> list[JudgementRow]:
    """Return the rows of a composite's results; `columns` makes their columns as `run_scores` does."""
    metrics = {metric: spec.direction(metric) for metric in composite.metrics}
    own, evaluators = load(composite.function) if composite.function else None, _evaluators_by_metric(of_run)
    results, rates = [], []
    for output in outputs:
        scores = [score for score in of_run[output.run_id] if score.turn is None]
        parts = _measures(output) | {
            metric: _part(metric, scores, evaluators.get(metric, ()))
            for metric in composite.metrics
            if metric not in MEASURES or metric in evaluators
        }
        made = combined(composite, parts, metrics, own)
        results.append(
            EvaluationResult(
                metric=composite.name,
                value=made.value,
                data_type=None if made.value is None else "NUMERIC",
                status=made.status,
                error=made.error,
                comment=made.comment,
                metadata=to_json({"parts": made.parts, "unmet_requirement": made.unmet_requirement}),
            )
        )
        known = (score.sampling_rate for score in scores if score.metric in composite.metrics)
        rates.append(min((rate for rate in known if rate is not None), default=None))  # smaller samples are in larger
    if not results:
        return []
    made_columns = columns(outputs, results, evaluator=composite.name, sampling_rates=rates)
    return records_of("judgements", made_columns, len(results))


def _evaluators_by_metric(of_run: ScoresByRun) -> dict[str, list[str]]:
    """Return the names of the evaluators that give each metric."""
    evaluators: dict[str, dict[str, None]] = {}
    for score in chain.from_iterable(of_run.values()):
        if score.turn is None and (score.status == "scored" or score.metric == score.evaluator):
            evaluators.setdefault(score.metric, {})[score.evaluator] = None
    return {metric: list(names) for metric, names in evaluators.items()}


def _part(metric: str, scores: Sequence[JudgementRow], evaluators: Sequence[str]) -> MetricPart:
    """Return a metric of a run as a part of a composite.

    If its evaluator failed, did not apply or was not sampled, that row has the evaluator's name as its metric.
    """
    if len(evaluators) > 1:
        return MetricPart(value=None, status="failed", error=f"{' and '.join(sorted(evaluators))} both return it")
    rows = [score for score in scores if score.metric == metric]
    rows += [s for s in scores if s.evaluator in evaluators and s.metric == s.evaluator and s.status != "scored"]
    if rows:
        return MetricPart(value=rows[0].value, status=rows[0].status, error=rows[0].error)
    has_judged = any(score.evaluator in evaluators for score in scores)
    return MetricPart(value=None, status="not_applicable" if has_judged else "failed", error="no evaluator returned it")


def _measures(output: OutputRow) -> dict[str, MetricPart]:
    """Return the measures of a run, as in the view `measures`."""
    tokens = None if output.tokens_in is None or output.tokens_out is None else output.tokens_in + output.tokens_out
    cost = None if output.calls_cached else output.cost_usd  # of a call from the ledger it is unknown
    values = {"latency": output.latency_s, "cost": cost, "tokens": tokens, LENGTH: output.length}
    if output.status != "ok":
        return dict.fromkeys(values, MetricPart(value=None, status=output.status, error=output.error))
    return {
        metric: MetricPart(value=value, status="scored" if value is not None else "not_applicable")
        for metric, value in values.items()
    }
