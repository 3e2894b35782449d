"""What `evalflows report` can be asked about: experiments, a decision or a comparison, as Markdown, JSON and JUnit."""

from dataclasses import dataclass

from evalflows.reports.comparison import comparison_report
from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import Decision, decisions_of, find_decision
from evalflows.reports.document import Document, document
from evalflows.reports.experiments_report import ExperimentsReport, experiments_report
from evalflows.reports.gate_report import gate_report
from evalflows.reports.junit import junit
from evalflows.reports.markdown_pages import comparison_page, experiments_page, gate_page
from evalflows.reports.next_step import after_comparison, after_experiments
from evalflows.reports.results import results_of
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_comparison, find_experiments, is_comparison, is_decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedExperiments:
    store: Store
    identities: list[str]

    @property
    def names(self) -> str:
        return ", ".join(one.name for one in self._report.experiments)

    @property
    def decisions(self) -> list[Decision]:
        return decisions_of(self.store, self.identities)

    @property
    def markdown(self) -> str:
        return experiments_page(self._report)

    @property
    def document(self) -> Document:
        report = self._report
        command = after_experiments(self.store, report.results, report.decisions, experiments=self.identities)
        return document([report], next_command=command)

    @property
    def junit(self) -> str:
        """Raise InputError without a decision."""
        if not (decisions := self.decisions):
            raise InputError("junit: got no decision, wanted an experiment on which a gate has decided")
        return junit(decisions)

    @property
    def _report(self) -> ExperimentsReport:
        results, decisions = results_of(self.store, self.identities), with_limits(self.store, self.decisions)
        return experiments_report(self.store, self.identities, results, decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDecision:
    store: Store
    decision: Decision

    @property
    def markdown(self) -> str:
        return gate_page(gate_report(self.store, [self.decision]))

    @property
    def document(self) -> Document:
        return gate_report(self.store, [self.decision]).document

    @property
    def junit(self) -> str:
        return junit([self.decision])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedComparison:
    store: Store
    identity: str

    @property
    def markdown(self) -> str:
        return comparison_page(comparison_report(self.store, self.identity)) + "\n"

    @property
    def document(self) -> Document:
        report = comparison_report(self.store, self.identity)
        return document([], comparison=report, next_command=after_comparison(report.overview))

    @property
    def junit(self) -> str:
        raise InputError("junit: got a comparison, wanted a decision, or an experiment on which a gate has decided")


Reported = ReportedExperiments | ReportedDecision | ReportedComparison


def reported(store: Store, reference: str) -> Reported:
    """Return what a reference means. Raise InputError if it means nothing.

    An experiment comes first, by any of its names; then a comparison, then a decision, by its id or its gate's name.
    """
    if is_comparison(store, reference):
        return ReportedComparison(store=store, identity=find_comparison(store, reference))
    if is_decision(store, reference):
        return ReportedDecision(store=store, decision=find_decision(store, reference))
    return ReportedExperiments(store=store, identities=find_experiments(store, reference))
