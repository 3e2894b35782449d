"""One pairwise comparison: win rates, ratings, the judge's biases, and the judged pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.comparison import ComparisonReport, comparison_report
from evalflows.reports.comparison_rows import WinRate
from evalflows.reports.names_apart import names_apart
from evalflows.reports.pair_list import (
    KINDS,
    JudgedPair,
    Kind,
    PairChoice,
    judged_pair,
    pair_list,
    pair_metrics,
    pair_splits,
)
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_comparison
from evalflows.store.records import ComparisonSetRow

IN_PAGE = 20

IN_MATRIX = 30
"""Systems in the matrix of win rates, at most; the highest ranks come first."""

KIND_NAMES: Mapping[Kind, str] = {
    "left": "first better",
    "right": "second better",
    "tie": "tie",
    "half": "half tie",
    "flipped": "flipped",
    "missing": "missing",
    "not_applicable": "not applicable",
    "left_out": "left out",
}
"""What the outcomes of pairs are called."""


def comparison_page(site: Site, query: Query) -> Page:
    """A comparison, and one page of its pairs."""
    identity = find_comparison(site.store, query.wanted("id"))
    (row,) = site.store.read("comparison_sets", identity)
    report = comparison_report(site.store, identity)
    names = system_names(site.store, row, report)
    body = render(
        "comparison.html",
        site,
        report=report,
        over=report.overview,
        row=row,
        names=names,
        rates=_shown_rates(report, query),
        matrices=_matrices(report, names),
        links_to=lambda system: None if row.n_votes is not None else site.links.experiment(system),
        **_pairs(site, query, row, names),
    )
    refresh_s = 5 if report.overview.state == "running" else None
    return Page(title=report.overview.name, section="pairwise", body=body, refresh_s=refresh_s)


def pair_page(site: Site, query: Query) -> Page:
    """One pair of a comparison: both answers in full, and everything that is known of the judgement."""
    identity = find_comparison(site.store, query.wanted("id"))
    (row,) = site.store.read("comparison_sets", identity)
    pair = judged_pair(site.store, row, *(query.wanted(name) for name in ("metric", "left", "right")))
    names = system_names(site.store, row, None)
    body = render("pair.html", site, row=row, pair=pair, names=names, kind_names=kind_names(names))
    return Page(title=f"{row.name}: {pair.example_id}", section="pairwise", body=body)


def system_names(store: Store, row: ComparisonSetRow, report: ComparisonReport | None) -> dict[str, str]:
    """Return the name of each compared system, by its id; those of votes have only names."""
    if row.n_votes is not None:
        return {system: system for system in row.experiments}
    query = "select experiment_id, name from source.experiments where list_contains(?, experiment_id)"
    known = dict(store.query(query, [row.experiments]))
    return names_apart(store, {identity: known.get(identity, identity) for identity in row.experiments})


def kind_names(names: Mapping[str, str]) -> Mapping[Kind, str]:
    """Return what outcomes are called; of two systems, by the better one's name."""
    if len(names) != 2:
        return KIND_NAMES
    left, right = sorted(names)
    return {**KIND_NAMES, "left": f"{names[left]} better", "right": f"{names[right]} better"}
