"""The pages of experiments: their list, one, several, and one example."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.charts import domain
from evalflows.dashboard.compare import metric_table, with_baseline
from evalflows.dashboard.grids import grids_part
from evalflows.dashboard.links import Value
from evalflows.dashboard.rendering import ON_PAGE, Page, Query, Site, render, steady
from evalflows.dashboard.steps import steps_of
from evalflows.dashboard.two_judges import two_judges_address
from evalflows.reports.confusion import Confusion
from evalflows.reports.decisions import decisions_of
from evalflows.reports.example_detail import PastValue, example_detail, labels_of, past_values, place_of, repeats_of
from evalflows.reports.experiment_page import (
    ItemFilter,
    Items,
    RelatedExperiment,
    Shown,
    costs_of,
    distributions,
    failure_kinds,
    items_of,
    related_experiments,
)
from evalflows.reports.experiment_report import experiments_report, overviews_of, spent_so_far
from evalflows.reports.experiments import (
    NEWEST_FIRST,
    ListedExperiment,
    ListFilter,
    choices,
    listed_experiments,
    trends,
)
from evalflows.reports.markdown_pages import MOST_CANDIDATES
from evalflows.reports.names import versions_of
from evalflows.reports.results import drawing_scales, results_of_each
from evalflows.reports.slices import slice_means
from evalflows.reports.worst import is_higher_better
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import json_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, base_metric, is_pass_k
from evalflows.specs.moments import moment_in
from evalflows.store.queries.conclusions import approvals
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.progress import INTERRUPTED
from evalflows.store.records import DecisionConclusion, ExperimentRow, ExperimentState, from_json
from evalflows.store.store import Store, no_experiments

ITEMS_IN_PAGE = 25
"""Examples in the table."""

MOST_COLUMNS = 6
"""Metrics with a column in the tables of examples and slices."""

IN_PAGE = 50
SHARED_COLUMNS = 4
"""Metrics with a column in the list, if none is chosen."""

MOST_TAGS = 24
"""Tags that are shown as chips."""

STATES = (*get_args(ExperimentState), INTERRUPTED)
CONCLUSIONS = get_args(DecisionConclusion)


CELL = ("judge", "expected", "got")
"""The parameters that choose the examples in one cell of a confusion matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examples:
    """The table of examples, and what is chosen in it."""

    found: Items
    metric: str | None
    shown: Shown
    text: str | None
    classified: tuple[str, str, str] | None
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
        baselines = [other.experiment_id for other in related if other.relation in ("run", "gate")]
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
    grids, can_compare = grids_part(site, found), len(found) <= 1 + MOST_CANDIDATES
    shown = overviews_of(site.store, found)
    body = render("experiment_group.html", site, experiments=shown, grids=grids, can_compare=can_compare)
    return Page(title=reference, section="experiments", body=body)


def _page(
    site: Site, query: Query, row: ExperimentRow, related: Sequence[RelatedExperiment], baselines: Sequence[str]
) -> Page:
    store, identity = site.store, row.experiment_id
    of_each, decisions = results_of_each(store, [identity, *baselines]), decisions_of(store, [identity])
    results = of_each.pop(identity)
    report = experiments_report(store, [identity], results, decisions, with_worst=False, with_fields=False)
    shown = [result for result in results if result.has_rows]
    of_runs = [result for result in shown if not result.is_of_experiment]
    metrics = [result.metric for result in of_runs if result.metric not in MEASURES and not is_pass_k(result.metric)]
    metrics = list(dict.fromkeys(metrics))
    examples = _examples(site, query, row, [result.metric for result in of_runs])
    chosen = {"q": examples.text, "metric": examples.metric, "show": examples.shown}
    if examples.classified is not None:
        chosen |= dict(zip(CELL, examples.classified, strict=True))
    compared = with_baseline(store, shown, [result for of_one in of_each.values() for result in of_one])
    body = render(
        "experiment.html",
        site,
        compared=compared,
        table=None if compared is None else metric_table(store, compared),
        row=row,
        overview=report.experiments[0],
        report=report,
        results=shown,
        name_of=Confusion.name_of,
        sortable=dict.fromkeys(result.metric for result in of_runs),
        ranges=drawing_scales(store, shown),
        excluded=excluded_metrics(store, {identity: row.run_group} if compared is None else compared.run_groups),
        approvals=approvals(store, [identity]),
        related=related,
        two_judges=two_judges_address(site, identity),
        distributions=[spread for spread in distributions(store, identity) if spread.counts or spread.missing],
        slices=grouped((found.field, found) for found in slice_means(store, identity, row.snapshot_id)),
        columns=metrics[:MOST_COLUMNS],
        failures=failure_kinds(store, identity, report.failures),
        costs=costs_of(store, identity),
        examples=examples,
        spec=json_text(from_json(row.spec), indent=2),
        versions=from_json(row.evaluators),
        address=site.links.experiment(identity),
        factors=next(
            (each.get("factors") for each in from_json(row.spec).get("targets", []) if each.get("name") == row.target),
            None,
        ),
        paged=lambda page: _with_anchor(site.links.page("experiments", identity, **chosen, page=page)),
        cell=lambda *cell: _with_anchor(
            site.links.page("experiments", identity, **dict(zip(CELL, (*cell[:2], cell[2] or ""), strict=True)))
        ),
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
    judge, expected, got = (query.text(name) for name in CELL)
    classified = None if judge is None or expected is None else (judge, expected, got or "")
    wanted = ItemFilter(metric=metric, higher_is_better=higher, shown=shown, text=text, classified=classified)
    offset = in_page * (number - 1)
    found = items_of(store, row.experiment_id, row.snapshot_id, wanted, limit=in_page, offset=offset)
    last = -(-found.count // in_page)
    return _Examples(
        found=found, metric=metric, shown=shown, text=text, classified=classified, number=number, last=last
    )


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


@dataclass(frozen=True, slots=True)
class _Address:
    """The parameters of this page's address, and addresses that differ from it."""

    site: Site
    values: Mapping[str, Value]

    def __call__(self, **changes: Value) -> str | None:
        return self.site.links.page("experiments", **{**self.values, "page": None, **changes})


def experiments_page(site: Site, query: Query) -> Page:
    """Return the list of experiments."""
    wanted, number, chosen = _filter(query), query.number("page"), query.all("metric")
    sort = query.text("sort") or NEWEST_FIRST
    found = listed_experiments(site.store, wanted, limit=IN_PAGE, offset=IN_PAGE * (number - 1), sort=sort)
    known = choices(site.store)
    if unknown := [metric for metric in chosen if metric not in known.metrics]:
        raise InputError(f"metric: got {unknown[0]!r}, wanted one of {', '.join(known.metrics) or 'none'}")
    values = {name: query.text(name) for name in ("q", "dataset", "state", "conclusion", "since")}
    address = _Address(site, {**values, "metric": chosen, "tag": wanted.tags, "sort": query.text("sort")})
    columns = chosen or _shared(found.experiments)
    metric = chosen[0] if len(chosen) == 1 else None
    ids = [experiment.experiment_id for experiment in found.experiments]
    body = render(
        "experiments.html",
        site,
        found=found,
        known=known,
        values=values,
        tags=_tags(known.tags, wanted.tags),
        wanted=wanted,
        metric=metric,
        trends={} if metric is None else trends(site.store, ids, metric),
        chosen=chosen,
        columns=columns,
        scales={metric: _experiments_scale(found.experiments, metric) for metric in columns},
        spent=spent_so_far(site.store, [one.experiment_id for one in found.experiments if one.cost_usd is None]),
        groups=_groups(found.experiments, sort),
        sort=sort,
        means_of=_means_of,
        states=STATES,
        conclusions=CONCLUSIONS,
        address=address,
        paged=lambda page: address(page=page),
        number=number,
        last=-(-found.count // IN_PAGE),
        excluded=excluded_metrics(
            site.store, {experiment.experiment_id: experiment.run_group for experiment in found.experiments}
        ),
        versions=versions_of(experiment.versioned for experiment in found.experiments),
        how_to_begin=no_experiments(site.store.layout),
    )
    is_running = any(experiment.state == "running" for experiment in found.experiments)
    return Page(title="Experiments", section="experiments", body=body, refresh_s=5 if is_running else None)


def _filter(query: Query) -> ListFilter:
    return ListFilter(
        text=query.text("q"),
        dataset=query.text("dataset"),
        tags=query.all("tag"),
        state=query.choice("state", STATES, "") or None,
        conclusion=query.choice("conclusion", CONCLUSIONS, "") or None,
        since=moment_in("since", query.text("since"), "a date such as 2026-01-31"),
    )


def _tags(known: Sequence[tuple[str, int]], chosen: Sequence[str]) -> list[tuple[str, int | None, list[str]]]:
    """Return each tag to show, how many experiments have it, and the tags chosen after a click on it."""
    counts: dict[str, int | None] = {**dict.fromkeys(chosen), **dict(known[:MOST_TAGS])}
    return [
        (tag, count, [other for other in chosen if other != tag] if tag in chosen else [*chosen, tag])
        for tag, count in counts.items()
    ]


def _shared(experiments: Sequence[ListedExperiment]) -> list[str]:
    """Return the metrics of evaluators that most of the experiments have, by name."""
    counts = Counter(metric.metric for experiment in experiments for metric in experiment.main_metrics)
    return sorted(metric for metric, _ in counts.most_common(SHARED_COLUMNS))


def _groups(experiments: Sequence[ListedExperiment], sort: str) -> list[list[ListedExperiment]]:
    """Return the experiments by run, the newest first; in another order, each by itself."""
    by_run = grouped((one.run_group if sort == NEWEST_FIRST else one.experiment_id, one) for one in experiments)
    return [*by_run.values()]


def _means_of(experiments: Sequence[ListedExperiment], metric: str) -> list[float]:
    found = (experiment.metric(metric) for experiment in experiments)
    return [each.mean for each in found if each is not None and each.mean is not None]


def _experiments_scale(experiments: Sequence[ListedExperiment], metric: str) -> tuple[float, float]:
    """Return the range of a metric's intervals; 0 to 1 if they are within it."""
    shown = [found for experiment in experiments if (found := experiment.metric(metric))]
    ends = [end for result in shown for end in (result.mean, result.ci_low, result.ci_high) if end is not None]
    return (0.0, 1.0) if ends and 0 <= min(ends) <= max(ends) <= 1 else domain([0.0, *ends])
