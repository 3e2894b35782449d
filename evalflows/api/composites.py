"""Composites of results that other harnesses wrote, from the scores of each answer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evalflows.evaluators.composite import Function, MetricPart, combined
from evalflows.harnesses.assembling import ResultRow
from evalflows.harnesses.recording import RecordedSystem
from evalflows.specs.errors import InputError, names_to_choose
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.metrics import CompositeSpec, MetricSpec
from evalflows.specs.reference import load


def with_composites(systems: Sequence[RecordedSystem], spec: ExperimentSpec) -> list[RecordedSystem]:
    """Return systems whose answers have the composites of a spec among their scores.

    Raise InputError for a panel, and for a part that no system has.
    """
    made = [*systems]
    for composite in spec.composites:
        given = {kept_apart(metric) for system in made for metric in system.results.metrics}
        where = f"composite {composite.name!r}"
        if composite.panel:
            raise InputError(f"{where}: got a panel of judges, wanted weights")
        if unknown := sorted(composite.metrics - given):
            raise InputError(f"{where}: got the part {unknown[0]!r}, wanted {names_to_choose(unknown[0], given)}")
        metrics = {metric: spec.direction(metric) for metric in composite.metrics}
        own = load(composite.function) if composite.function else None
        for place, system in enumerate(made):
            names = {kept_apart(metric): metric for metric in system.results.metrics}
            rows = [_with_composite(row, composite, names, metrics, own) for row in system.results.rows]
            made[place] = replace(system, results=replace(system.results, rows=rows))
    return made


def _with_composite(
    row: ResultRow,
    composite: CompositeSpec,
    names: Mapping[str, str],
    metrics: Mapping[str, MetricSpec],
    own: Function | None,
) -> ResultRow:
    parts = {metric: _part(row, names.get(metric)) for metric in composite.metrics}
    made = combined(composite, parts, metrics, own)
    if made.status == "not_applicable":
        return row
    reasons = row.reasons if made.error is None else {**row.reasons, composite.name: made.error}
    return replace(row, scores={**row.scores, composite.name: made.value}, reasons=reasons)


def _part(row: ResultRow, metric: str | None) -> MetricPart:
    if metric is None or metric not in row.scores:
        return MetricPart(value=None, status="not_applicable")
    value = row.scores[metric]
    if value is None:
        return MetricPart(value=None, status="failed", error=row.why_missing(metric))
    return MetricPart(value=value, status="scored")
