"""The page of one example of an experiment: everything that was asked, answered and said about it."""

from collections.abc import Sequence

from evalflows.pages.experiment import experiments_meant
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.pages.steps import steps_of
from evalflows.pages.texts import ON_PAGE
from evalflows.reports.example_detail import example_detail
from evalflows.reports.example_past import PastValue, past_values
from evalflows.reports.example_place import labels_of, place_of, repeats_of
from evalflows.specs.metric_names import MEASURES
from evalflows.store.records import ExperimentRow


def example_page(site: Site, query: Query) -> Page:
    """One example (`example_id`, in the address `id`) of an experiment; with `repetition`, that one first."""
    return site.store.steady(lambda: _page(site, query))


def _page(site: Site, query: Query) -> Page:
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
    for one in reversed(values):
        found.setdefault(one.experiment_id, {})[one.metric] = one
    return [*found.values()]
