"""Metrics whose judge known-answer controls did not validate, for every place that shows their means."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.specs.errors import base_metric
from evalflows.specs.evaluator import CompositeSpec
from evalflows.store.records import controls_batch, from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJudge:
    """A judge that failed on its known-answer controls, or that they could not validate."""

    judge: str
    passed: bool | None
    message: str

    @property
    def text(self) -> str:
        return "judge failed validation" if self.passed is False else "judge not validated"


FailedMetrics = Mapping[tuple[str, str], FailedJudge]
"""The judges by experiment id and metric."""


def failed_metrics(store: Store, groups: Mapping[str, str]) -> FailedMetrics:
    """Return the metrics on which no verdict rests because of their judge; composites of them count too.

    `groups` are run groups by experiment id. If no judge failed, only checks are read.
    """
    batches = {controls_batch(group): group for group in groups.values()}
    failed: dict[str, dict[str, FailedJudge]] = {}
    for batch, judge, passed, message in _rows(store, _FAILED, batches):
        one = FailedJudge(judge=judge, passed=passed, message=message or "not checked")
        failed.setdefault(batches[batch], {})[judge] = one
    concerned = [identity for identity, group in groups.items() if group in failed]
    found: dict[tuple[str, str], FailedJudge] = {}
    for identity, metrics, evaluators, spec in _rows(store, _METRICS, concerned):
        judges = failed[groups[identity]]
        versions = [(one["name"], one["version"]) for one in from_json(evaluators)]
        by_metric = {
            metric: judges[name]
            for metric, version in metrics
            if (name := _evaluator(metric, [name for name, of in versions if of == version])) in judges
        }
        for composite in map(CompositeSpec.model_validate, from_json(spec).get("composites") or ()):
            if parts := sorted(composite.metrics & {base_metric(metric) for metric in by_metric}):
                by_metric[composite.name] = by_metric[parts[0]]
        found |= {(identity, metric): judge for metric, judge in by_metric.items()}
    return found


def _evaluator(metric: str, names: Sequence[str]) -> str | None:
    """Return which of the evaluators with the version of a metric gave it: that of its name, if there is one."""
    base = base_metric(metric)
    return base if base in names else next(iter(names), None)


def _rows(store: Store, query: str, owners: Collection[str]) -> list[tuple[Any, ...]]:
    """Ask about some owners by their ids, which DuckDB then finds by the names of the files."""
    if not owners:
        return []
    places = ", ".join(f"${place}" for place in range(1, len(owners) + 1))
    return ask(store, (query.format(places), [*owners]))[0]


_FAILED = """
select batch_id, subject_id, passed, message from checks
where batch_id in ({}) and subject_kind = 'judge' and name = 'controls' and passed is distinct from true
"""

_METRICS = """
select e.experiment_id, list((t.metric, t.evaluator_version)), any_value(e.evaluators), any_value(e.spec)
from experiments e join estimates t using (experiment_id)
where e.experiment_id in ({}) and t.slice is null group by e.experiment_id
"""
