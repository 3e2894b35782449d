"""The page of one experiment: results, distributions, slices, failures, cost, and its examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from evalflows.pages.charts import domain
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.decisions import decisions_of
from evalflows.reports.experiment_facts import costs_of, failure_kinds, related_experiments
from evalflows.reports.experiment_items import ItemFilter, Items, Shown, items_of
from evalflows.reports.experiments_report import experiments_report, overviews
from evalflows.reports.failed_judges import failed_metrics
from evalflows.reports.results import Result, results_of
from evalflows.reports.slice_means import Slice, slice_means
from evalflows.reports.value_distributions import distributions
from evalflows.reports.worst_items import is_higher_better
from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import MEASURES, base_metric, is_pass_k
from evalflows.specs.safe_text import json_text
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import approvals
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExperimentRow, from_json

IN_PAGE = 25
"""Examples in the table."""

MOST_COLUMNS = 6
"""Metrics with a column in the tables of examples and slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examples:
    """The table of examples, and what is chosen in it."""

    found: Items
    metric: str | None
    shown: Shown
    text: str | None
    number: int
    last: int


def experiment_page(site: Site, query: Query) -> Page:
    """One experiment, by its id, a prefix of it or its name; of a run group or a spec's name, the list of its own."""
    reference = query.wanted("id")

    def made() -> Page:
        found = experiments_meant(site.store, reference)
        return _page(site, query, found[0]) if len(found) == 1 else _several(site, reference, found)

    return site.store.steady(made)


def experiments_meant(store: Store, reference: str) -> list[str]:
    """Return the ids that a reference means, as `find_experiments`, which reads a file of each experiment."""
    try:
        is_id = bool(store.read("experiments", reference))
    except InputError:  # it cannot be in a file's name
        is_id = False
    return [reference] if is_id else find_experiments(store, reference)


def _several(site: Site, reference: str, found: Sequence[str]) -> Page:
    where = "is_one_of(experiment_id, $1) order by list_position($1, experiment_id)"
    body = render("experiment_group.html", site, experiments=overviews(site.store, where, [list(found)]))
    return Page(title=reference, section="experiments", body=body)


def _page(site: Site, query: Query, identity: str) -> Page:
    store = site.store
    row: ExperimentRow = store.read("experiments", identity)[0]
    results, decisions = results_of(store, [identity]), decisions_of(store, [identity])
    report = experiments_report(store, [identity], results, decisions, with_worst=False)
    shown = [result for result in results if result.has_rows]
    metrics = [one.metric for one in shown if one.metric not in MEASURES and not is_pass_k(one.metric)]
    metrics = list(dict.fromkeys(metrics))
    examples = _examples(site, query, row, [result.metric for result in shown])
    chosen = {"q": examples.text, "metric": examples.metric, "show": examples.shown}
    body = render(
        "experiment.html",
        site,
        row=row,
        overview=report.experiments[0],
        report=report,
        results=shown,
        scale=_scale(shown),
        difference_scales=_difference_scales(shown),
        failed=failed_metrics(store, {identity: row.run_group}),
        approvals=approvals(store, [identity]),
        related=related_experiments(store, identity, row.run_group),
        distributions=[one for one in distributions(store, identity) if one.counts or one.missing],
        slices=_by_field(slice_means(store, identity, row.snapshot_id)),
        columns=metrics[:MOST_COLUMNS],
        failures=failure_kinds(store, identity, report.failures),
        costs=costs_of(store, identity),
        examples=examples,
        spec=json_text(from_json(row.spec), indent=2),
        versions=from_json(row.evaluators),
        address=site.links.experiment(identity),
        paged=lambda page: _with_anchor(site.links.page("experiments", identity, **chosen, page=page)),
    )
    is_running = report.experiments[0].state == "running"
    return Page(title=row.name, section="experiments", body=body, refresh_s=5 if is_running else None)


def _with_anchor(address: str | None) -> str | None:
    return address and f"{address}#examples"


def _examples(site: Site, query: Query, row: ExperimentRow, metrics: Sequence[str]) -> _Examples:
    """The page of examples that the address asks for."""
    metric, number, text = query.text("metric"), query.number("page"), query.text("q")
    shown = query.choice("show", get_args(Shown), "all")
    if metric is not None and metric not in metrics:
        raise InputError(f"metric: got {metric!r}, wanted one of {', '.join(dict.fromkeys(metrics)) or 'none'}")
    store, in_page = site.store, site.in_page(IN_PAGE)
    higher = metric is None or is_higher_better(store, row.experiment_id, base_metric(metric))
    wanted = ItemFilter(metric=metric, higher_is_better=higher, shown=shown, text=text)
    offset = in_page * (number - 1)
    found = items_of(store, row.experiment_id, row.snapshot_id, wanted, limit=in_page, offset=offset)
    last = -(-found.count // in_page)
    return _Examples(found=found, metric=metric, shown=shown, text=text, number=number, last=last)


def _scale(results: Sequence[Result]) -> tuple[float, float]:
    """The range of the means of evaluators' metrics and their intervals."""
    of_evaluators = [one for one in results if one.metric not in MEASURES]
    return domain(value for one in of_evaluators for value in (one.mean, one.ci_low, one.ci_high))


def _difference_scales(results: Sequence[Result]) -> dict[str, tuple[float, float]]:
    """The range of each metric's difference and its interval, with 0 in the middle."""
    scales = {}
    for one in results:
        ends = [abs(end) for end in (one.difference, one.difference_low, one.difference_high) if end is not None]
        widest = max(ends, default=0.0) or 1.0
        scales[one.metric] = (-1.1 * widest, 1.1 * widest)
    return scales


def _by_field(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    fields: dict[str, list[Slice]] = {}
    for one in slices:
        fields.setdefault(one.field, []).append(one)
    return fields
