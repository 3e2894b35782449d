"""The page that lists experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.charts import domain
from evalflows.dashboard.links import Value
from evalflows.dashboard.rendering import Page, Query, Site, render
from evalflows.reports.experiments import ExperimentList, ListedExperiment, ListFilter, listed_experiments
from evalflows.reports.versions import versions_of
from evalflows.specs.errors import InputError
from evalflows.store.queries.progress import INTERRUPTED
from evalflows.store.records import DecisionConclusion, ExperimentState
from evalflows.store.sql import no_experiments

IN_PAGE = 50
MOST_TAGS = 24
"""Tags that are shown as chips."""

STATES = (*get_args(ExperimentState), INTERRUPTED)
CONCLUSIONS = get_args(DecisionConclusion)


@dataclass(frozen=True, slots=True)
class _Address:
    """The parameters of this page's address, and addresses that differ from it."""

    site: Site
    values: Mapping[str, Value]

    def __call__(self, **changes: Value) -> str | None:
        return self.site.links.page("experiments", **{**self.values, "page": None, **changes})


def experiments_page(site: Site, query: Query) -> Page:
    """Return the list of experiments."""
    wanted, number, metric = _filter(query), query.number("page"), query.text("metric")
    found = listed_experiments(site.store, wanted, limit=IN_PAGE, offset=IN_PAGE * (number - 1))
    if metric is not None and metric not in found.choices.metrics:
        raise InputError(f"metric: got {metric!r}, wanted one of {', '.join(found.choices.metrics) or 'none'}")
    values = {name: query.text(name) for name in ("q", "dataset", "state", "conclusion", "since", "metric")}
    address = _Address(site, {**values, "tag": wanted.tags})
    body = render(
        "experiments.html",
        site,
        found=found,
        values=values,
        tags=_tags(found, wanted.tags),
        wanted=wanted,
        metric=metric,
        states=STATES,
        conclusions=CONCLUSIONS,
        address=address,
        paged=lambda page: address(page=page),
        number=number,
        last=-(-found.count // IN_PAGE),
        scale=_experiments_scale(found.experiments, metric),
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
        since=_since(query.text("since")),
    )


def _since(text: str | None) -> datetime | None:
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"since: got {text!r}, wanted a date such as 2026-01-31") from None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _tags(found: ExperimentList, chosen: Sequence[str]) -> list[tuple[str, int | None, list[str]]]:
    """Return each tag to show, how many experiments have it, and the tags chosen after a click on it."""
    counts: dict[str, int | None] = {**dict.fromkeys(chosen), **dict(found.choices.tags[:MOST_TAGS])}
    return [
        (tag, count, [other for other in chosen if other != tag] if tag in chosen else [*chosen, tag])
        for tag, count in counts.items()
    ]


def _experiments_scale(experiments: Sequence[ListedExperiment], metric: str | None) -> tuple[float, float]:
    """Return the range of the chosen metric's intervals."""
    shown = [found for experiment in experiments if metric is not None and (found := experiment.metric(metric))]
    return domain(value for result in shown for value in (result.mean, result.ci_low, result.ci_high))
