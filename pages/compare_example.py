"""Everything of one example in a comparison: all answers, scores, steps, and what became of it before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.pages.charts import Point
from evalflows.pages.compare import IN_PAGE, Wanted, title, wanted_of
from evalflows.pages.compare_query import CompareQuery
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.pages.steps import steps_of
from evalflows.pages.texts import shown_text
from evalflows.reports.example_changes import ExampleChange
from evalflows.reports.example_detail import RunDetail, example_detail
from evalflows.reports.example_past import PastValue, past_values
from evalflows.reports.figures import figure
from evalflows.reports.word_diff import WordDiff, word_diff
from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import MEASURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """An example's place among the wanted ones, from 1; None if it is not among them."""

    place: int | None
    before: str | None
    after: str | None


def compare_example_page(site: Site, query: Query) -> Page:
    """One example of a comparison, with links to the next and the previous one in the same filter and order."""
    asked, example = CompareQuery.of_query(site.store, query), query.wanted("id")
    if asked is None:
        raise InputError("baseline, candidate: got too few, wanted a baseline and a candidate at least")
    wanted = wanted_of(site, asked)
    kept, metrics = wanted.kept, _metrics(wanted)
    ids = kept.compared.experiment_ids
    detail = example_detail(site.store, ids, example)
    body = render(
        "compare_example.html",
        site,
        detail=detail,
        diff=kept.diff,
        asked=wanted.asked,
        wanted=wanted,
        in_page=IN_PAGE,
        is_whole=query.text("fragment") is None,
        neighbours=neighbours(wanted.examples, example),
        runs={one: [run for run in detail.runs if run.experiment_id == one] for one in ids},
        changes=_by_system(kept.changes(kept.metrics), example),
        words=answers_in_words(detail.runs, asked.baseline),
        steps={run.run_id: steps_of(run.steps) for run in detail.runs},
        past=past_lines(site, past_values(site.store, ids, example, metrics), ids),
    )
    return Page(title=f"{example}: {title(kept)}", section="compare", body=body)


def neighbours(examples: Sequence[str], example: str) -> Neighbours:
    """Return an example's place among others, and those beside it."""
    if example not in examples:
        return Neighbours(place=None, before=None, after=None)
    place = examples.index(example)
    after = examples[place + 1] if place + 1 < len(examples) else None
    return Neighbours(place=place + 1, before=examples[place - 1] if place else None, after=after)


def answers_in_words(runs: Sequence[RunDetail], baseline: str) -> dict[str, WordDiff]:
    """Return the words in which each run's answer differs from the baseline's in the same repetition, else the first.

    Runs without an answer, and those of the baseline, are not among them.
    """
    old = {run.repetition: run.outputs for run in runs if run.experiment_id == baseline and run.outputs is not None}
    first = next(iter(old.values()), None)
    return {
        run.run_id: word_diff(shown_text(before), shown_text(run.outputs))
        for run in runs
        if run.experiment_id != baseline
        and run.outputs is not None
        and (before := old.get(run.repetition, first)) is not None
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLine:
    """One metric of the example over experiments, as points of a chart and as values."""

    metric: str
    points: Sequence[Point]
    values: Sequence[PastValue]


def past_lines(site: Site, values: Sequence[PastValue], compared: Sequence[str]) -> list[PastLine]:
    """Return a line for each metric, if the example was in other experiments than the compared ones."""
    if not {value.experiment_id for value in values} - {*compared}:
        return []
    metrics: dict[str, list[PastValue]] = {}
    for value in values:
        metrics.setdefault(value.metric, []).append(value)
    return [
        PastLine(metric=metric, points=[_point(site, one) for one in some], values=some)
        for metric, some in metrics.items()
    ]


def _point(site: Site, one: PastValue) -> Point:
    said = figure(one.value, one.metric) if one.value is not None else one.labels or "missing"
    return Point(
        at=one.started_at,
        value=one.value,
        title=f"{one.name} ({one.started_at:%Y-%m-%d %H:%M}): {said}",
        href=site.links.experiment(one.experiment_id),
    )


def _metrics(wanted: Wanted) -> list[str]:
    """The metrics of which the past is shown: those beside the answers, without measures."""
    return [metric for metric in wanted.metrics if metric not in MEASURES]


def _by_system(
    changes: Sequence[Mapping[str, Sequence[ExampleChange]]], example: str
) -> dict[str, list[ExampleChange]]:
    """Return an example's changes by candidate."""
    found: dict[str, list[ExampleChange]] = {}
    for metric in changes:
        for one in metric.get(example, ()):
            found.setdefault(one.candidate_experiment_id, []).append(one)
    return found
