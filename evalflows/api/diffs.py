"""The results of diffs of experiments, read from the store."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING

from evalflows.analysis.changes import Change, ChangeFilter, DepartingSlice, ExampleChange, changed_examples
from evalflows.analysis.diff import figures_between
from evalflows.reports.diff import EXAMPLES_LISTED, ExperimentsDiff, experiments_diff, notes_of
from evalflows.reports.names import names_apart
from evalflows.reports.results import Result
from evalflows.specs.metric_names import MEASURES
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows.dashboard.notebook import Plot


class DiffResult:
    """Candidates against a baseline. `report` has everything that `evalflows diff` prints."""

    def __init__(self, store: Store, baseline: str, candidates: Sequence[str], where: str | None = None) -> None:
        self._store = store
        self._figures = figures_between(store, baseline, candidates, where)
        self.report: ExperimentsDiff = experiments_diff(store, self._figures, limit=EXAMPLES_LISTED)

    def __repr__(self) -> str:
        names = ", ".join(repr(self._names[candidate.experiment_id]) for candidate in self.report.candidates)
        compared = [result for result in self.report.results if result.conclusion and result.metric not in MEASURES]
        verdicts = ", ".join(f"{result.metric} {result.verdict_text}" for result in compared)
        baseline = self._names[self.report.baseline.experiment_id]
        return f"DiffResult({names} against {baseline!r}: {verdicts or 'no shared metric'})"

    def __str__(self) -> str:
        """Return what the verdicts are, and what else differs, one sentence per line."""
        return "\n".join([*self.report.sentences, *notes_of(self.report)])

    def _repr_html_(self) -> str:
        from evalflows.dashboard.notebook import metrics_table, shown  # late: only notebooks need templates

        report = self.report
        notes = [*report.sentences, *notes_of(report)]
        return shown(lambda: metrics_table(self._store, self._title, report.results, notes, report))

    def plot(self) -> "Plot":
        """Draw the difference of each metric with its interval; notebooks show it, and `str` gives the SVG."""
        from evalflows.dashboard.notebook import plot_of_differences

        return plot_of_differences(self._title, self.report.results)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The experiments' names, told apart if two have the same."""
        shown = (self.report.baseline, *self.report.candidates)
        return names_apart(self._store, {side.experiment_id: side.name for side in shown})

    @property
    def _title(self) -> str:
        candidates = ", ".join(self._names[candidate.experiment_id] for candidate in self.report.candidates)
        return f"{candidates} against {self._names[self.report.baseline.experiment_id]}"

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per metric and candidate: the means of both sides, the difference, p-values, verdict and
        counts."""
        import pandas as pd

        return pd.DataFrame(
            [
                _row(result, self._baseline_of(result))
                for result in self.report.results
                if result.experiment_id != self.report.baseline.experiment_id and result.has_rows
            ]
        )

    def examples(
        self, metrics: Sequence[str] = (), changes: Sequence[Change] = ("regressed", "improved", "flipped", "changed")
    ) -> "pd.DataFrame":
        """Return one row per changed example, metric and candidate, those that got worst first.

        Args:
            metrics: Only these. Default: all metrics of evaluators.
            changes: Only these, of improved, regressed, same, flipped, changed, missing and not_applicable.
        """
        import pandas as pd

        listed = [count.metric for count in self.report.counts if count.is_listed]
        wanted = ChangeFilter(metrics=metrics or listed, changes=changes)
        found = changed_examples(self._store, self._figures.compared, wanted)
        return pd.DataFrame([asdict(change) for change in found], columns=list(ExampleChange.__slots__))

    def slices(self, metrics: Sequence[str] = ()) -> "pd.DataFrame":
        """Return one row per slice of the examples in which a candidate departs from its overall difference, worse ones
        first; p-values and intervals are adjusted for all slices and metrics that were searched.

        Args:
            metrics: Only these. Default: all metrics of evaluators.

        Warn if no slice of a candidate could be searched, and why.
        """
        import pandas as pd

        baseline, *candidates = self._figures.compared.experiment_ids
        searches = figures_between(self._store, baseline, candidates, self.report.where, searched=metrics).searches
        for search in searches:
            if not search.n_slices:
                warnings.warn(self.report.search_text(search), stacklevel=2)
        return pd.DataFrame(
            [asdict(row) for search in searches for row in search.found], columns=list(DepartingSlice.__slots__)
        )

    def _baseline_of(self, result: Result) -> Result | None:
        baseline = self.report.baseline.experiment_id
        same = (row for row in self.report.results if row.metric == result.metric and row.experiment_id == baseline)
        return next(same, None)


def _row(result: Result, baseline: Result | None) -> dict[str, object]:
    return {
        "metric": result.metric,
        "candidate": result.target,
        "candidate_experiment_id": result.experiment_id,
        "baseline": result.baseline,
        "mean": result.mean,
        "ci_low": result.ci_low,
        "ci_high": result.ci_high,
        "baseline_mean": baseline.mean if baseline else None,
        "difference": result.difference,
        "difference_low": result.difference_low,
        "difference_high": result.difference_high,
        "p_value": result.p_value,
        "p_adjusted": result.p_adjusted,
        "verdict": result.verdict_text or None,
        "margin": result.margin,
        "reason": result.reason,
        "n_pairs": result.n_pairs,
        "scored": result.scored,
        "missing": result.missing,
        "baseline_missing": baseline.missing if baseline else None,
    }
