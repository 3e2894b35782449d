"""Pages of datasets: their list, the versions and examples of one, and what changed between two versions."""

from typing import Any

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.comparisons import chosen_comparisons
from evalflows.dashboard.rendering import Page, Query, Site, clipped, render
from evalflows.reports import datasets
from evalflows.reports.comparison import comparison_overviews
from evalflows.reports.experiments import ListFilter, listed_experiments
from evalflows.reports.word_diff import word_diff
from evalflows.specs import hints
from evalflows.specs.errors import NotFoundError
from evalflows.specs.escaping import json_text
from evalflows.store.dataset_versions import FieldChange
from evalflows.store.file_formats import READERS
from evalflows.store.ingest import find_snapshot

IN_PAGE = 50
NEWEST = 5
"""Versions, experiments and comparisons of a dataset that its page shows at first."""
MOST_CHANGES = 50
"""Examples of each kind of change that are shown."""
IN_CHANGE = 2_000
"""Characters of a changed value that are shown."""

_NEWEST_FIRST = "is_one_of(comparison_id, $1) order by started_at desc"


def datasets_page(site: Site, _: Query) -> Page:
    """Return the list of datasets, and where a file is added."""
    body = render(
        "datasets.html",
        site,
        datasets=datasets.listed_datasets(site.store),
        runs=datasets.runs_by_dataset(site.store),
        endings=[*READERS],
        how_to_add=hints.add_dataset().code,
    )
    return Page(title="Datasets", section="datasets", body=body)


def dataset_page(site: Site, query: Query) -> Page:
    """Return one dataset: its versions, what changed from one to another, examples, and what ran on it."""
    name, text, number = query.wanted("name"), query.text("q"), query.number("page")
    versions = datasets.dataset_versions(site.store, name)
    if not versions:
        find_snapshot(site.store, name)
        raise NotFoundError(f"dataset {name!r}: got a snapshot's id, wanted a dataset's name")
    snapshots = [version.snapshot_id for version in versions]
    shown = query.choice("version", snapshots, snapshots[0])
    old = query.choice("against", snapshots, "")
    examples, count = datasets.listed_examples(site.store, shown, text, limit=IN_PAGE, offset=IN_PAGE * (number - 1))
    compared, n_comparisons = chosen_comparisons(site.store, dataset=name, limit=NEWEST)
    ran = listed_experiments(site.store, ListFilter(dataset=name), limit=NEWEST)
    difference, changed = datasets.changed_examples(site.store, old, shown, MOST_CHANGES) if old else (None, [])
    chosen = None if shown == snapshots[0] else shown
    body = render(
        "dataset.html",
        site,
        name=name,
        versions=versions,
        shown=next(version for version in versions if version.snapshot_id == shown),
        newest=NEWEST,
        old=old,
        checks=datasets.snapshot_checks(site.store, shown),
        difference=difference,
        counts=difference and datasets.difference_text(difference),
        changed=changed,
        words=_words,
        most_changes=MOST_CHANGES,
        examples=examples,
        count=count,
        q=text,
        number=number,
        last=-(-count // IN_PAGE),
        version=chosen,
        address=lambda page: site.links.dataset(name, version=chosen, q=text, page=page),
        experiments=ran.experiments,
        n_experiments=ran.count,
        excluded=excluded_metrics(
            site.store, {experiment.experiment_id: experiment.run_group for experiment in ran.experiments}
        ),
        comparisons=comparison_overviews(site.store, _NEWEST_FIRST, [compared]) if compared else [],
        n_comparisons=n_comparisons,
        endings=[*READERS],
    )
    return Page(title=name, section="datasets", body=body)


def _words(change: FieldChange) -> Any:
    old, new = (
        "" if side is None else clipped(side if isinstance(side, str) else json_text(side), IN_CHANGE).text
        for side in (change.old, change.new)
    )
    return word_diff(old, new)
