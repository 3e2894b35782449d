"""Reports that can be sent: pages of the dashboard in one HTML file, with links between them."""

from collections.abc import Callable, Iterable, Sequence

from evalflows.dashboard.compare import compare_page
from evalflows.dashboard.decisions import decision_page
from evalflows.dashboard.experiments import experiment_page
from evalflows.dashboard.links import FileLinks, Links
from evalflows.dashboard.pairs import comparison_page
from evalflows.dashboard.rendering import Page, Query, Site, anchor_of, one_file
from evalflows.dashboard.two_judges import two_judges_page
from evalflows.reports.decisions import Decision
from evalflows.reports.grids import cells_on
from evalflows.reports.markdown_pages import (
    MOST_CANDIDATES,
    Reported,
    ReportedComparison,
    ReportedDecision,
    ReportedExperiments,
)
from evalflows.reports.results import results_of
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.queries.lookup import run_groups
from evalflows.store.queries.two_judges import newest_again
from evalflows.store.store import Store

MOST_ROWS = 500
"""Rows of each list in a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A page of the dashboard that becomes part of a report."""

    address: str | None  # in the dashboard
    page: Callable[[Site, Query], Page]
    query: Query


def report_on(what: Reported) -> str:
    """Return the report of what `evalflows report` was asked about."""
    parts = _parts(what)
    site = site_in_file(what.store, [part.address for part in parts])
    pages = [part.page(site, part.query) for part in parts]
    title = f"Report on {what.names}" if isinstance(what, ReportedExperiments) and len(pages) > 1 else pages[0].title
    return one_file(title, pages, site)


def _parts(what: Reported) -> list[ReportPage]:
    match what:
        case ReportedComparison():
            pairs = _part(Links().comparison(what.identity), comparison_page, id=what.identity)
            return [pairs, *_two_judges(what.store, [what.identity])]
        case ReportedDecision():
            baseline, candidate = what.decision.baseline_experiment_id, what.decision.candidate_experiment_id
            compared = [] if baseline is None else [_compare(baseline, [candidate])]
            return [_decision(what.decision), *compared, _experiment(candidate)]
        case ReportedExperiments():
            decided = map(_decision, what.decisions)
            judged = _two_judges(what.store, what.identities)
            are_cells = bool(cells_on(what.store, what.identities))
            cells = [_experiment(run_groups(what.store, what.identities)[0])] if are_cells else []
            return [*decided, *cells, *judged, *_comparisons(what), *map(_experiment, what.identities)]


def _two_judges(store: Store, identities: Sequence[str]) -> list[ReportPage]:
    """Return the page of two judges, if some of these were judged again, or are what was."""
    found = next((identity for identity in identities if newest_again(store, identity) is not None), None)
    return [] if found is None else [_part(Links().page("two-judges", of=found), two_judges_page, of=found)]


def _comparisons(what: ReportedExperiments) -> list[ReportPage]:
    """Return the comparisons of experiments with the baselines of their run, and of the gates that decided on them."""
    pairs = [
        (result.experiment_id, result.baseline_experiment_id) for result in results_of(what.store, what.identities)
    ]
    pairs += [(decision.candidate_experiment_id, decision.baseline_experiment_id) for decision in what.decisions]
    compared = grouped((baseline, candidate) for candidate, baseline in dict.fromkeys(pairs) if baseline is not None)
    return [
        _compare(baseline, candidates[start : start + MOST_CANDIDATES])
        for baseline, candidates in compared.items()
        for start in range(0, len(candidates), MOST_CANDIDATES)
    ]


def site_in_file(store: Store, addresses: Iterable[str | None]) -> Site:
    """Return what the pages with these addresses are made from so that they link to each other in one file."""
    anchors = {address: anchor_of(number) for number, address in enumerate(addresses) if address is not None}
    return Site(store=store, links=FileLinks(anchors), most_rows=MOST_ROWS)


def _part(address: str | None, page: Callable[[Site, Query], Page], **values: str | Sequence[str]) -> ReportPage:
    given = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    return ReportPage(address=address, page=page, query=Query(given))


def _decision(decision: Decision) -> ReportPage:
    return _part(Links().decision(decision.decision_id), decision_page, id=decision.decision_id)


def _experiment(identity: str) -> ReportPage:
    return _part(Links().experiment(identity), experiment_page, id=identity)


def _compare(baseline: str, candidates: Sequence[str]) -> ReportPage:
    address = Links().compare(baseline, *candidates)
    return _part(address, compare_page, baseline=baseline, candidate=candidates, words="1")
