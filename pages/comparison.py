"""One pairwise comparison: win rates, ratings, the judge's biases, and the judged pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evalflows.pages.page import Page, Site
from evalflows.pages.pairs import chosen_systems, listed_pairs, system_names
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.comparison import ComparisonReport, comparison_report
from evalflows.reports.comparison_rows import WinRate
from evalflows.store.queries.lookup import find_comparison

IN_MATRIX = 30
"""Systems in the matrix of win rates, at most; the highest ranks come first."""


def comparison_page(site: Site, query: Query) -> Page:
    """A comparison, and one page of its pairs."""
    return site.store.steady(lambda: _comparison_page(site, query))  # the store's files are listed once


def _comparison_page(site: Site, query: Query) -> Page:
    identity = find_comparison(site.store, query.wanted("id"))
    (row,) = site.store.read("comparison_sets", identity)
    report = comparison_report(site.store, identity)
    names = system_names(site.store, row)
    rates = _shown_rates(report, chosen_systems(query, names))
    body = render(
        "comparison.html",
        site,
        report=report,
        over=report.overview,
        row=row,
        names=names,
        rates=[rate for rate in rates if rate.slice == "all"],
        sliced_rates=[rate for rate in rates if rate.slice != "all"],
        matrices=_matrices(report, names),
        rating_ends=[end for one in report.ranking for end in (one.rating, one.ci_low, one.ci_high)],
        links_to=lambda system: None if row.n_votes is not None else site.links.experiment(system),
        **listed_pairs(site, query, row, names),
    )
    refresh_s = 5 if report.overview.state == "running" else None
    return Page(title=report.overview.name, section="pairwise", body=body, refresh_s=refresh_s)


def _shown_rates(report: ComparisonReport, systems: Sequence[str]) -> list[WinRate]:
    """Return the win rates that are listed: all, or those of the chosen systems; of many systems none by default."""
    if report.has_many_pairs and not systems:
        return []
    return [
        rate for rate in report.win_rates if {*systems} <= {rate.candidate_experiment_id, rate.baseline_experiment_id}
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The win rates of systems against each other, by one metric: of the row's against the column's."""

    metric: str
    systems: Sequence[str]  # ids, the best first
    n_left_out: int  # systems that are not shown
    rates: Mapping[tuple[str, str], WinRate]


def _matrices(report: ComparisonReport, names: Mapping[str, str]) -> list[Matrix]:
    if not report.has_ranking:
        return []
    rates: dict[str, dict[tuple[str, str], WinRate]] = {}
    for rate in report.win_rates:
        if rate.is_overall:
            cells = rates.setdefault(rate.metric, {})
            cells[rate.candidate_experiment_id, rate.baseline_experiment_id] = rate
            cells[rate.baseline_experiment_id, rate.candidate_experiment_id] = _from_other_side(rate)
    ranked = {metric: [row.experiment_id for row in report.ranking if row.metric == metric] for metric in rates}
    systems = {metric: list(dict.fromkeys([*ranked[metric], *names])) for metric in rates}
    return [
        Matrix(
            metric=metric,
            systems=systems[metric][:IN_MATRIX],
            n_left_out=len(systems[metric][IN_MATRIX:]),
            rates=cells,
        )
        for metric, cells in rates.items()
    ]


_OPPOSITE = {"better": "worse", "worse": "better"}


def _from_other_side(rate: WinRate) -> WinRate:
    """Return a win rate as that of the baseline against the candidate."""
    low, value, high = (
        None if share is None else 1 - share for share in (rate.win_rate_high, rate.win_rate, rate.win_rate_low)
    )
    return replace(
        rate,
        candidate_experiment_id=rate.baseline_experiment_id,
        candidate=rate.baseline,
        baseline_experiment_id=rate.candidate_experiment_id,
        baseline=rate.candidate,
        win_rate=value,
        win_rate_low=low,
        win_rate_high=high,
        wins=rate.losses,
        losses=rate.wins,
        conclusion=_OPPOSITE.get(rate.conclusion, rate.conclusion),
    )
