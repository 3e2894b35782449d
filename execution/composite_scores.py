"""Composite scores: each composite of a run from the scores and measures that the run has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from evalflows.evaluators.composite import Part, combined
from evalflows.execution.evaluation_result import EvaluationResult
from evalflows.specs.metric import CompositeSpec, MetricSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.reference import load
from evalflows.store.records import OutputRow, ScoreRow, to_json

ScoresByRun = Mapping[str, Sequence[ScoreRow]]


def composite_results(
    spec: CompositeSpec, metrics: Mapping[str, MetricSpec], outputs: Iterable[OutputRow], of_run: ScoresByRun
) -> Iterator[tuple[OutputRow, EvaluationResult, float | None]]:
    """Yield a composite's result for each run, with the sampling rate of its parts.

    `metrics` are the declared properties of the composite's metrics.
    """
    own = load(spec.function) if spec.function else None
    evaluators = _evaluators_by_metric(of_run)
    for output in outputs:
        scores = [score for score in of_run[output.run_id] if score.turn is None]
        parts = _measures(output) | {
            metric: _part(metric, scores, evaluators.get(metric, ()))
            for metric in spec.metrics
            if metric not in MEASURES or metric in evaluators
        }
        composite = combined(spec, parts, metrics, own)
        result = EvaluationResult(
            metric=spec.name,
            value=composite.value,
            data_type=None if composite.value is None else "NUMERIC",
            status=composite.status,
            error=composite.error,
            comment=composite.comment,
            metadata=to_json({"parts": composite.parts, "unmet_requirement": composite.unmet_requirement}),
        )
        yield output, result, _rate(spec, scores)


def _evaluators_by_metric(of_run: ScoresByRun) -> dict[str, list[str]]:
    """Return the names of the evaluators that give each metric."""
    evaluators: dict[str, dict[str, None]] = {}
    for score in chain.from_iterable(of_run.values()):
        if score.turn is None and (score.status == "scored" or score.metric == score.evaluator):
            evaluators.setdefault(score.metric, {})[score.evaluator] = None
    return {metric: list(names) for metric, names in evaluators.items()}


def _part(metric: str, scores: Sequence[ScoreRow], evaluators: Sequence[str]) -> Part:
    """Return a metric of a run as a part of a composite.

    If its evaluator failed, did not apply or was not sampled, that row has the evaluator's name as its metric.
    """
    if len(evaluators) > 1:
        return Part(value=None, status="failed", error=f"{' and '.join(sorted(evaluators))} both return it")
    rows = [score for score in scores if score.metric == metric]
    rows += [s for s in scores if s.evaluator in evaluators and s.metric == s.evaluator and s.status != "scored"]
    if rows:
        return Part(value=rows[0].value, status=rows[0].status, error=rows[0].error)
    has_judged = any(score.evaluator in evaluators for score in scores)
    return Part(value=None, status="not_applicable" if has_judged else "failed", error="no evaluator returned it")


def _rate(spec: CompositeSpec, scores: Iterable[ScoreRow]) -> float | None:
    """Return the lowest sampling rate of the parts: smaller samples are part of larger ones."""
    rates = [
        score.sampling_rate for score in scores if score.metric in spec.metrics and score.sampling_rate is not None
    ]
    return min(rates, default=None)


def _measures(output: OutputRow) -> dict[str, Part]:
    """Return the measures of a run, as in the view `measures`."""
    tokens = None if output.tokens_in is None or output.tokens_out is None else output.tokens_in + output.tokens_out
    values = {"latency": output.latency_s, "cost": output.cost_usd, "tokens": tokens, "length": output.length}
    return {metric: _measure(output, value) for metric, value in values.items()}


def _measure(output: OutputRow, value: float | None) -> Part:
    if output.status != "ok":
        return Part(value=None, status=output.status, error=output.error)
    return Part(value=value, status="scored" if value is not None else "not_applicable")
