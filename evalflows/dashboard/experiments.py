"""The pages of one experiment, of several, and of one example."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.compare import metric_table, with_baseline
from evalflows.dashboard.rendering import ON_PAGE, Page, Query, Site, render, steady
from evalflows.dashboard.steps import steps_of
from evalflows.reports.decisions import decisions_of
from evalflows.reports.example_detail import example_detail, labels_of, place_of, repeats_of
from evalflows.reports.examples import ItemFilter, Items, Shown, items_of
from evalflows.reports.experiment_page import (
    RelatedExperiment,
    costs_of,
    distributions,
    failure_kinds,
    related_experiments,
)
from evalflows.reports.experiment_report import experiments_report, overviews_of
from evalflows.reports.past_values import PastValue, past_values
from evalflows.reports.remarks import verdict_sentences
from evalflows.reports.results import drawing_scales, results_of_each
from evalflows.reports.slices import slice_means
from evalflows.reports.worst import is_higher_better
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import json_text
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, base_metric, is_pass_k
from evalflows.store.queries.approvals import approvals
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExperimentRow, from_json
from evalflows.store.store import Store

ITEMS_IN_PAGE = 25
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
    """Return one experiment, by its id, a prefix of it or its name; of a run group or a spec's name, the list of its
    own."""
    reference = query.wanted("id")

    def made() -> Page:
        found = experiments_meant(site.store, reference)
        if len(found) > 1:
            return _several(site, reference, found)
        row: ExperimentRow = site.store.read("experiments", found[0])[0]
        related = related_experiments(site.store, row.experiment_id, row.run_group)
        baselines = [other.experiment_id for other in related if other.relation == "run"]
        with site.store.reading(about=[*found, *baselines]):
            return _page(site, query, row, related, baselines)

    return site.store.steady(made)


def experiments_meant(store: Store, reference: str) -> list[str]:
    """Return the ids that a reference means, as `find_experiments`, which reads a file of each experiment."""
    try:
        is_id = bool(store.read("experiments", reference))
    except InputError:  # it cannot be in a file's name
        is_id = False
    return [reference] if is_id else find_experiments(store, reference)


def _several(site: Site, reference: str, found: Sequence[str]) -> Page:
    body = render("experiment_group.html", site, experiments=overviews_of(site.store, found))
    return Page(title=reference, section="experiments", body=body)


def _page(
    site: Site, query: Query, row: ExperimentRow, related: Sequence[RelatedExperiment], baselines: Sequence[str]
) -> Page:
    store, identity = site.store, row.experiment_id
    of_each, decisions = results_of_each(store, [identity, *baselines]), decisions_of(store, [identity])
    results = of_each.pop(identity)
    report = experiments_report(store, [identity], results, decisions, with_worst=False, with_fields=False)
    shown = [result for result in results if result.has_rows]
    metrics = [result.metric for result in shown if result.metric not in MEASURES and not is_pass_k(result.metric)]
    metrics = list(dict.fromkeys(metrics))
    examples = _examples(site, query, row, [result.metric for result in shown])
    chosen = {"q": examples.text, "metric": examples.metric, "show": examples.shown}
    compared = with_baseline(store, shown, [result for of_one in of_each.values() for result in of_one])
    body = render(
        "experiment.html",
        site,
        compared=compared,
        table=None if compared is None else metric_table(store, compared),
        row=row,
        overview=report.experiments[0],
        report=report,
        verdicts=verdict_sentences(results),
        results=shown,
        ranges=drawing_scales(store, shown),
        excluded=excluded_metrics(store, {identity: row.run_group} if compared is None else compared.run_groups),
        approvals=approvals(store, [identity]),
        related=related,
        distributions=[spread for spread in distributions(store, identity) if spread.counts or spread.missing],
        slices=grouped((found.field, found) for found in slice_means(store, identity, row.snapshot_id)),
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
    refresh_s = 5 if is_running else None
    return Page(
        title=row.name, section="experiments", body=body, refresh_s=refresh_s, is_shared=True, reported=identity
    )


def _with_anchor(address: str | None) -> str | None:
    return address and f"{address}#examples"


def _examples(site: Site, query: Query, row: ExperimentRow, metrics: Sequence[str]) -> _Examples:
    """Return the page of examples that the address asks for."""
    metric, number, text = query.text("metric"), query.number("page"), query.text("q")
    shown = query.choice("show", get_args(Shown), "all")
    if metric is not None and metric not in metrics:
        raise InputError(f"metric: got {metric!r}, wanted one of {', '.join(dict.fromkeys(metrics)) or 'none'}")
    store, in_page = site.store, site.in_page(ITEMS_IN_PAGE)
    higher = metric is None or is_higher_better(store, row.experiment_id, base_metric(metric))
    wanted = ItemFilter(metric=metric, higher_is_better=higher, shown=shown, text=text)
    offset = in_page * (number - 1)
    found = items_of(store, row.experiment_id, row.snapshot_id, wanted, limit=in_page, offset=offset)
    last = -(-found.count // in_page)
    return _Examples(found=found, metric=metric, shown=shown, text=text, number=number, last=last)


@steady
def example_page(site: Site, query: Query) -> Page:
    """Return one example (`example_id`, in the address `id`) of an experiment; with `repetition`, that one first."""
    store, example = site.store, query.wanted("id")
    identity = experiments_meant(store, query.wanted("experiment"))[0]
    row: ExperimentRow = store.read("experiments", identity)[0]
    detail = example_detail(store, [identity], example)
    chosen = query.text("repetition")
    runs = sorted(detail.runs, key=lambda run: (str(run.repetition) != chosen, run.repetition))
    metrics = {score.metric: None for run in runs for score in run.scores if score.metric not in MEASURES}
    body = render(
        "example.html",
        site,
        row=row,
        detail=detail,
        runs=runs,
        most=ON_PAGE,
        is_whole=query.text("fragment") is None,
        place=place_of(store, row.snapshot_id, example),
        steps={run.run_id: steps_of(run.steps) for run in runs},
        repeats=repeats_of(store, identity, example),
        labels=labels_of(store, identity, [run.run_id for run in runs]),
        metrics=[*metrics],
        past=_by_experiment(past_values(store, [identity], example, [*metrics])),
    )
    return Page(title=f"{example} in {row.name}", section="experiments", body=body)


def _by_experiment(values: Sequence[PastValue]) -> list[dict[str, PastValue]]:
    """Return an example's values by metric in each experiment, newest first."""
    found: dict[str, dict[str, PastValue]] = {}
    for value in reversed(values):
        found.setdefault(value.experiment_id, {})[value.metric] = value
    return [*found.values()]
