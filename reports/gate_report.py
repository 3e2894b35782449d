"""What is shown about gate decisions: each candidate against its baseline, with the decisions on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import Decision, with_manifests
from evalflows.reports.document import Document, document
from evalflows.reports.experiments_report import ExperimentOverview, ExperimentsReport, experiments_report
from evalflows.reports.next_step import after_experiments
from evalflows.reports.results import results_against
from evalflows.store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Decisions, and a report for each pair of a candidate and its baseline."""

    decisions: Sequence[Decision]
    reports: Sequence[ExperimentsReport]
    calls_made: int | None  # model calls of this run; None if nothing was run
    next_command: str
    incomplete: str | None  # why the run did not finish; None if it did

    @property
    def experiments(self) -> list[ExperimentOverview]:
        """The experiments, each once."""
        return [*{one.experiment_id: one for report in self.reports for one in report.experiments}.values()]

    @property
    def document(self) -> Document:
        """What `gate --format json` prints."""
        is_known = not any(one.has_unrecorded for one in self.experiments)
        calls_made = self.calls_made if is_known else None
        return document(self.reports, calls_made=calls_made, next_command=self.next_command)


def gate_report(
    store: Store,
    decisions: Sequence[Decision],
    made: Mapping[str | None, int] | None = None,
    *,
    spec: str = "SPEC",
    incomplete: str | None = None,
) -> GateReport:
    """Return the report of decisions; `made` are the model calls of this run by experiment."""
    decisions = with_manifests(store, with_limits(store, decisions))
    reports = [_report_on(store, *pair, group) for pair, group in _by_pair(decisions).items()]
    experiments = {one.experiment_id for report in reports for one in report.experiments}
    results = [result for report in reports for result in report.results]
    return GateReport(
        decisions=decisions,
        reports=reports,
        calls_made=None if made is None else sum(made.get(identity, 0) for identity in experiments),
        next_command=after_experiments(store, results, decisions, spec=spec),
        incomplete=incomplete,
    )


def _report_on(store: Store, candidate: str, baseline: str | None, decisions: Sequence[Decision]) -> ExperimentsReport:
    """The report of a candidate and its baseline, with these decisions on them."""
    results = results_against(store, candidate, baseline, [decision.decision_id for decision in decisions])
    return experiments_report(store, dict.fromkeys(one.experiment_id for one in results), results, decisions)


def _by_pair(decisions: Sequence[Decision]) -> dict[tuple[str, str | None], list[Decision]]:
    pairs: dict[tuple[str, str | None], list[Decision]] = {}
    for decision in decisions:
        pairs.setdefault((decision.candidate_experiment_id, decision.baseline_experiment_id), []).append(decision)
    return pairs
