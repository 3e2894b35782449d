"""Metrics of a whole experiment on resamples of its examples, from which their intervals and differences are made."""

from collections.abc import Iterator, Sequence

import numpy as np

from evalflows.engine.results import EvaluationResult
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.spec_evaluators import PreparedEvaluator
from evalflows.evaluators.binding import Bound, read_returned
from evalflows.evaluators.figures import FIGURES, Figures, null_for_nan
from evalflows.evaluators.score import Judgement
from evalflows.evaluators.views import ItemResult, offer_experiment
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import clustering_of
from evalflows.stats.resampling import N_RESAMPLES, Statistic, resampled
from evalflows.store.records import ClassifiedRow, ExampleRow, MissingAs, ResampleRow, derived_id


def resample_rows(
    evaluator: RunnableEvaluator,
    spec: EvaluatorSpec,
    experiment_id: str,
    examples: Sequence[ExampleRow],
    results: Sequence[ItemResult],
    judged: Sequence[EvaluationResult],
) -> Iterator[ResampleRow | ClassifiedRow]:
    """Yield the metrics of an evaluator of all runs on resamples, and the labels that it compares; `judged` is what it
    gave. Nothing for one that has no value, or of which only its value is known."""
    scored = [result.metric for result in judged if result.value is not None]
    figures = _figures(evaluator.bound, results) if scored else None
    if figures is None and scored and spec.resample:
        figures = _by_calling(evaluator.bound, results, scored)
    if figures is None:
        return
    ordered = sorted(examples, key=lambda example: example.position)  # other experiments on them are drawn alike
    clusters = clustering_of([example.cluster for example in ordered], len(ordered))
    unit_of = dict(zip((example.example_id for example in ordered), clusters.numbers.tolist(), strict=True))
    units = np.array([unit_of[result.item.id] for result in results], dtype=np.intp)
    cases: dict[MissingAs, Statistic | None] = {"known": figures.statistic}
    if figures.n_missing:
        cases |= {"lowest": figures.lowest, "highest": figures.highest}
    for case, statistic in cases.items():
        if statistic is None:
            continue
        found = resampled(
            statistic, units, n_units=clusters.count, n_resamples=N_RESAMPLES, seconds=spec.resample_s / len(cases)
        )
        metrics = [metric or evaluator.bound.name for metric in figures.metrics]
        for metric, figure in zip(metrics, found, strict=True):
            if metric in scored:
                yield ResampleRow(
                    resample_id=derived_id(experiment_id, metric, evaluator.version, case),
                    experiment_id=experiment_id,
                    metric=metric,
                    evaluator=evaluator.bound.name,
                    evaluator_version=evaluator.version,
                    missing_as=case,
                    value=null_for_nan([figure.value])[0],
                    resamples=null_for_nan(figure.resamples.tolist()),
                    left_out=null_for_nan(figure.left_out.tolist()),
                    n_units=figure.n,
                    is_clustered=any(example.cluster is not None for example in examples),
                    n_runs=len(results) - figures.n_missing,
                    n_missing=figures.n_missing,
                )
    for result, labels in zip(results, figures.labels or (), strict=figures.labels is not None):
        if labels is not None:
            yield ClassifiedRow(
                classified_id=derived_id(result.run.id, evaluator.bound.name, evaluator.version),
                experiment_id=experiment_id,
                run_id=result.run.id,
                example_id=result.item.id,
                repetition=result.run.repetition,
                evaluator=evaluator.bound.name,
                evaluator_version=evaluator.version,
                expected=labels[0],
                got=labels[1],
            )


def is_resampled(evaluator: PreparedEvaluator[EvaluatorSpec]) -> bool:
    """Return whether the metrics of an evaluator of all runs get intervals."""
    return evaluator.spec.resample or hasattr(evaluator.bound.function, FIGURES)


def _figures(bound: Bound, results: Sequence[ItemResult]) -> Figures | None:
    """Return what an evaluator gives to be resampled by a function of its own; None if it has none."""
    make = getattr(bound.function, FIGURES, None)
    figures: Figures | None = make and bound.call(offer_experiment([*results]), make)
    return figures


def _by_calling(bound: Bound, results: Sequence[ItemResult], metrics: Sequence[str]) -> Figures:
    """Return figures by calling an evaluator on lists in which each run is as often as it counts."""

    def values(counts: Sequence[int]) -> list[float]:
        drawn = [result for result, count in zip(results, counts, strict=True) for _ in range(count)]
        try:
            available = offer_experiment(drawn)
            returned = read_returned(bound, bound.call(available), available)
            found = {score.metric: score.value for score in returned if isinstance(score, Judgement)}
        except Exception:  # such as a division by zero: not defined on these runs
            found = {}
        return [np.nan if (value := found.get(metric)) is None else value for metric in metrics]

    def statistic(weights: FloatArray) -> FloatArray:
        return np.array([values(row) for row in weights.astype(int).tolist()], dtype=np.float64)

    n_missing = sum(result.run.outputs is None for result in results)
    return Figures(metrics=metrics, n_runs=len(results), statistic=statistic, n_missing=n_missing)
