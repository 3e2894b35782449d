"""Home: what got worse and since when, what runs now, and the newest experiments; of an empty store, how to fill it."""

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.rendering import Page, Query, Site, render
from evalflows.reports.decisions import newest_decisions
from evalflows.reports.experiments import ListFilter, listed_experiments
from evalflows.reports.fallen import fallen
from evalflows.reports.names import versions_of
from evalflows.store.queries.incidents import episodes, incidents

NEWEST, WORST = 10, 12
"""Experiments, and things that got worse, that are shown, at most."""

REFRESH_S = 5
"""Seconds between two looks at what is running."""


def home_page(site: Site, query: Query) -> Page:
    """Return the first page, which needs no choice; with a `dataset`, the experiments are those on it."""
    dataset = query.text("dataset")
    running = listed_experiments(site.store, ListFilter(state="running", dataset=dataset), limit=NEWEST).experiments
    newest = listed_experiments(site.store, ListFilter(dataset=dataset), limit=NEWEST)
    body = render(
        "home.html",
        site,
        running=running,
        newest=newest.experiments,
        versions=versions_of(experiment.versioned for experiment in newest.experiments),
        count=newest.count,
        dataset=dataset,
        incidents=[episode for episode in episodes(incidents(site.store)) if not episode.is_over],
        fallen=fallen(site.store),
        passed=newest_decisions(site.store, "PASS"),
        excluded=excluded_metrics(
            site.store, {experiment.experiment_id: experiment.run_group for experiment in newest.experiments}
        ),
        most=NEWEST,
        worst=WORST,
        root=site.store.layout.root,
    )
    return Page(title="Home", section="home", body=body, refresh_s=REFRESH_S if running else None)
