"""The difference of stored experiments from a baseline: read from the store, computed when asked for, never stored."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from evalflows.analysis.differences.stored_pairs import figures_between
from evalflows.flows.api.decisions import Compared, identity_of
from evalflows.reports.change_queries import Change
from evalflows.reports.diff import SHOWN, ExperimentsDiff, experiments_diff
from evalflows.reports.diff_texts import notes_of
from evalflows.reports.example_changes import ChangeFilter, ExampleChange, changed_examples
from evalflows.reports.results import Result
from evalflows.specs.metric_names import MEASURES
from evalflows.store.parquet import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows.pages.notebook import Plot


class DiffResult:
    """Candidates against a baseline. `report` has everything that `evalflows diff` prints."""

    def __init__(self, store: Store, baseline: str, candidates: Sequence[str], where: str | None = None) -> None:
        self._store = store
        self._figures = figures_between(store, baseline, candidates, where)
        self.report: ExperimentsDiff = experiments_diff(store, self._figures, limit=SHOWN)

    def __repr__(self) -> str:
        names = ", ".join(repr(one.name) for one in self.report.candidates)
        compared = [result for result in self.report.results if result.conclusion and result.metric not in MEASURES]
        verdicts = ", ".join(f"{result.metric} {result.verdict_text}" for result in compared)
        return f"DiffResult({names} against {self.report.baseline.name!r}: {verdicts or 'no shared metric'})"

    def __str__(self) -> str:
        """What the verdicts are, and what else differs, one sentence per line."""
        return "\n".join([*self.report.sentences, *notes_of(self.report)])

    def _repr_html_(self) -> str:
        """The table of metrics with differences and verdicts, for notebooks."""
        from evalflows.pages.notebook import results_table, shown  # late: only notebooks need templates

        notes = [*self.report.sentences, *notes_of(self.report)]
        return shown(lambda: results_table(self._store, self._title, self.report.results, notes))

    def plot(self) -> "Plot":
        """Draw the difference of each metric with its interval; notebooks show it, and `str` gives the SVG."""
        from evalflows.pages.notebook import plot_of_differences

        return plot_of_differences(self._title, self.report.results)

    @property
    def _title(self) -> str:
        return f"{', '.join(one.name for one in self.report.candidates)} against {self.report.baseline.name}"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per metric and candidate: the means of both sides, the difference, p-values, verdict and counts."""
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
        """One row per changed example, metric and candidate, those that got worst first.

        Args:
            metrics: Only these. Default: all metrics of evaluators.
            changes: Only these, of improved, regressed, same, flipped, changed, missing and not_applicable.
        """
        import pandas as pd

        known = [count.metric for count in self.report.counts]
        wanted = ChangeFilter(metrics=metrics or [one for one in known if one not in MEASURES], changes=changes)
        found = changed_examples(self._store, self._figures.compared, wanted)
        return pd.DataFrame([asdict(one) for one in found], columns=list(ExampleChange.__slots__))

    def _baseline_of(self, result: Result) -> Result | None:
        baseline = self.report.baseline.experiment_id
        same = (one for one in self.report.results if one.metric == result.metric and one.experiment_id == baseline)
        return next(same, None)


def diff(baseline: Compared, *candidates: Compared, where: str | None = None) -> DiffResult:
    """Compare stored experiments with a baseline, started together or apart. Nothing is run or stored.

    Args:
        baseline: Id, id prefix or name of an experiment (`NAME~1`: the run before the newest), or a result.
        candidates: The same.
        where: A SQL condition: only the examples for which it holds are compared, such as "split = 'hard'".

    Raise InputError if an experiment does not exist or is given twice, if no example is shared, and for a condition
    that is none or holds for no shared example.
    """
    store = Store()
    return DiffResult(store, identity_of(store, baseline), [identity_of(store, one) for one in candidates], where)


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
