"""Judging production items: those in an evaluator's sample, with scores that name the item and when it began."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

from evalflows.execution.composite_scores import composite_results
from evalflows.execution.evaluation_result import EvaluationResult, one_score
from evalflows.execution.judging import Judging, Run
from evalflows.execution.running_experiment import RunnableEvaluator
from evalflows.execution.running_traces import RunningTraceEvaluation
from evalflows.execution.trace_runs import Item, item_id
from evalflows.specs.evaluator import EvaluatorSpec, as_key
from evalflows.store.records import OutputRow, ScoreRow, SubjectKind, derived_id
from evalflows.store.trace_records import SUBJECT_KINDS
from evalflows.telemetry.paths import at_path


class TraceJudging(Judging):
    """The judgements of one chunk of a trace evaluation."""

    keeps_rows = True

    def __init__(self, evaluation: RunningTraceEvaluation, items: Sequence[Item], *args: Any) -> None:
        super().__init__(evaluation.evaluators, evaluation.judging, *args)
        self._evaluation_id = evaluation.batch.evaluation_id
        self._kind = SUBJECT_KINDS[evaluation.spec.scope]
        self._mapper_version = evaluation.mapper_version
        self._items = {item_id(item): item for item in items}

    def _sampled(self, evaluator: RunnableEvaluator, runs: list[Run], numbers: list[int]) -> list[int]:
        """Return the runs in the evaluator's sample. Others get no row: the same items are drawn whenever asked."""
        drawn = [number for number in numbers if is_drawn(evaluator.spec, self._items[runs[number][1].run_id])]
        self._count(len(numbers) - len(drawn))
        return drawn

    def _score(self, evaluator: RunnableEvaluator, output: OutputRow, result: EvaluationResult) -> ScoreRow:
        rate = sampling_rate(evaluator.spec, self._items[output.run_id])
        return item_score(
            output,
            result,
            evaluation_id=self._evaluation_id,
            kind=self._kind,
            mapper_version=self._mapper_version,
            evaluator=evaluator.bound.name,
            version=evaluator.version,
            declared_version=evaluator.spec.version,
            sampling_rate=None if rate == 1.0 else rate,
        )


def item_score(
    output: OutputRow,
    result: EvaluationResult,
    *,
    evaluation_id: str,
    kind: SubjectKind,
    mapper_version: str | None,
    evaluator: str,
    version: str,
    declared_version: str | None = None,
    sampling_rate: float | None = None,
) -> ScoreRow:
    """Return the score row of one item."""
    return ScoreRow(
        score_id=derived_id(evaluation_id, kind, output.run_id, result.turn, result.metric, version, mapper_version),
        subject_kind=kind,
        subject_id=output.run_id,
        subject_at=output.started_at,
        experiment_id=output.experiment_id,
        evaluator=evaluator,
        evaluator_version=version,
        declared_version=declared_version,
        sampling_rate=sampling_rate,
        mapper_version=mapper_version,
        **one_score(result),
    )


def composite_scores(
    evaluation: RunningTraceEvaluation,
    outputs: Sequence[OutputRow],
    judging: TraceJudging,
    before: Collection[tuple[str, str]],
) -> list[ScoreRow]:
    """Return the composite scores of items, from all their judgements, except those `before`: of an item, by a name."""
    spec, rows = evaluation.spec, []
    of_run = {output.run_id: judging.scores_of(output.run_id) for output in outputs}
    for composite in spec.composites:
        version = evaluation.composite_versions[composite.name]
        metrics = {metric: spec.direction(metric) for metric in composite.metrics}
        left = [output for output in outputs if (output.run_id, composite.name) not in before]
        for output, result, rate in composite_results(composite, metrics, left, of_run):
            row = item_score(
                output,
                result,
                evaluation_id=evaluation.batch.evaluation_id,
                kind=SUBJECT_KINDS[spec.scope],
                mapper_version=evaluation.mapper_version,
                evaluator=composite.name,
                version=version,
                sampling_rate=rate,
            )
            rows.append(row)
    return rows


def is_drawn(spec: Any, item: Item) -> bool:
    """Whether an item is in an evaluator's sample: its trace's hash, from 0 to 1, is below the rate.

    So the same traces are drawn on every day and machine, and smaller samples are part of larger ones.
    """
    return _draw(spec.sample_seed, getattr(item, "trace_id", item.id)) < sampling_rate(spec, item)


def sampling_rate(spec: Any, item: Item) -> float:
    """Return the rate at which an evaluator judges items like this one: that of its stratum, else `sample_rate`."""
    if not isinstance(spec, EvaluatorSpec) or not spec.is_sampled:
        return 1.0
    if spec.sample_by is not None:
        value = at_path(item, spec.sample_by)
        values = value if isinstance(value, list) else [value]
        if rates := [spec.sample_rates[key] for key in map(as_key, values) if key in spec.sample_rates]:
            return max(rates)
    return spec.sample_rate or 1.0


def _draw(seed: int, identity: str) -> float:
    digest = hashlib.sha256(f"{seed} {identity}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64
