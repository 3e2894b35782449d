"""The figures of a comparison as tables: a group of rows for each metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.pages.charts import domain
from evalflows.reports.change_queries import Change
from evalflows.reports.diff import ExperimentsDiff
from evalflows.reports.example_changes import ChangeCounts
from evalflows.reports.results import Result

LINKED: tuple[Change, ...] = ("improved", "regressed", "flipped", "changed", "missing")
"""The changes that are counted, in the order of columns."""

MINOR = ("tokens", "length")
"""Measures that are shown below the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """One metric of all systems, the baseline's result first if it has the metric."""

    metric: str
    results: Sequence[Result]
    counts: Mapping[str, ChangeCounts]  # by candidate
    means: tuple[float, float]  # the scale of the means, and that of the differences
    differences: tuple[float, float]

    @property
    def is_minor(self) -> bool:
        return self.metric in MINOR


def metric_tables(diff: ExperimentsDiff) -> list[MetricTable]:
    """Return each metric's results that are worth showing, measures last."""
    metrics: dict[str, list[Result]] = {}
    for result in diff.results:
        if result.has_rows:
            metrics.setdefault(result.metric, []).append(result)
    counts = {(one.metric, one.candidate_experiment_id): one for one in diff.counts}
    return [
        MetricTable(
            metric=metric,
            results=results,
            counts={owner: one for (of, owner), one in counts.items() if of == metric},
            means=domain(each for one in results for each in (one.mean, one.ci_low, one.ci_high)),
            differences=domain(
                each for one in results for each in (one.difference, one.difference_low, one.difference_high, 0.0)
            ),
        )
        for metric, results in metrics.items()
    ]


def counted(diff: ExperimentsDiff) -> list[Change]:
    """Return the changes that have a column: those that there are, and the usual ones."""
    usual = ("improved", "regressed", "missing")
    return [change for change in LINKED if change in usual or any(getattr(one, change) for one in diff.counts)]


def change_totals(diff: ExperimentsDiff, metric: str | None) -> dict[str, list[tuple[Change, int]]]:
    """Return how many examples changed in which way by a metric, for each candidate; without counts of 0."""
    return {
        one.candidate_experiment_id: [(change, count) for change in LINKED if (count := getattr(one, change))]
        for one in diff.counts
        if one.metric == metric
    }
