"""Any experiments against a baseline: figures and verdicts, then the examples with all answers side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.analysis.differences.kept_comparisons import KeptComparison, kept_comparisons
from evalflows.pages.comparable import beside, by_dataset
from evalflows.pages.compare_query import MOST_CANDIDATES, WORSE_IN_ANY, CompareQuery, chosen_sides
from evalflows.pages.compare_tables import change_totals, counted, metric_tables
from evalflows.pages.marked_words import marked
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.change_queries import CHANGES
from evalflows.reports.example_changes import ExampleChange
from evalflows.reports.failed_judges import failed_metrics
from evalflows.reports.side_by_side import found_examples, side_by_side, wanted_examples
from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import MEASURES

IN_PAGE = 50
"""Examples of a page."""

MOST_METRICS = 5
"""Metrics whose values stand beside an answer."""

REFRESH_S = 10
"""Seconds after which a comparison of a running experiment is shown anew: it costs statistics."""


def compare_page(site: Site, query: Query) -> Page:
    """A comparison; without baseline or candidates, experiments to choose from."""
    asked = CompareQuery.of_query(site.store, query)
    return _picker(site, query) if asked is None else _comparison(site, asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A comparison and the examples of it that are wanted, in order."""

    asked: CompareQuery
    kept: KeptComparison
    examples: Sequence[str]

    @property
    def metrics(self) -> list[str]:
        """The metric that the examples are about, then others whose values are shown too."""
        others = [one for one in self.kept.metrics if one not in MEASURES and one != self.asked.metric]
        return [*filter(None, [self.asked.metric]), *others][:MOST_METRICS]

    @property
    def changes(self) -> list[Mapping[str, Sequence[ExampleChange]]]:
        return self.kept.changes(self.metrics)


def wanted_of(site: Site, asked: CompareQuery) -> Wanted:
    """Return the wanted examples. Raise InputError for a metric or a split that none of them has."""
    kept = kept_comparisons.get(site.store, asked.baseline, asked.candidates, site.now.date())
    metric = asked.metric or most_regressed(kept)
    if metric is not None and metric not in kept.metrics:
        raise InputError(f"metric: got {metric!r}, wanted one of {', '.join(kept.metrics) or 'none'}")
    asked = asked.with_metric(metric)
    (changes,) = kept.changes([metric]) if metric else [{}]
    found = found_examples(site.store, kept.compared, asked.q) if asked.q else None
    if asked.change == WORSE_IN_ANY:
        worse = worse_in_any(kept, asked.of)
        found = worse if found is None else found & worse
    return Wanted(asked=asked, kept=kept, examples=wanted_examples(kept.examples, changes, asked.filter, found))


def most_regressed(kept: KeptComparison) -> str | None:
    """Return the evaluators' metric in which most examples got worse, or flipped: what one looks at first.

    None if the systems share no metric of an evaluator.
    """
    moved = {metric: 0 for metric in kept.metrics if metric not in MEASURES}
    for one in kept.diff.counts:
        if one.metric in moved:
            moved[one.metric] += one.regressed + one.flipped
    return max(moved, key=lambda metric: moved[metric], default=None)


def worse_in_any(kept: KeptComparison, candidate: str | None) -> set[str]:
    """Return the examples that got worse in any metric of an evaluator, in a candidate or in any."""
    return {
        example
        for changes in kept.changes([metric for metric in kept.metrics if metric not in MEASURES])
        for example, some in changes.items()
        if any(one.change == "regressed" and candidate in (None, one.candidate_experiment_id) for one in some)
    }


def _comparison(site: Site, asked: CompareQuery) -> Page:
    wanted = wanted_of(site, asked)
    kept, asked = wanted.kept, wanted.asked
    in_page = site.in_page(IN_PAGE)
    last = max(1, -(-len(wanted.examples) // in_page))
    if asked.page > last:
        raise InputError(f"page: got {asked.page}, wanted at most {last}")
    ids = wanted.examples[(asked.page - 1) * in_page : asked.page * in_page]
    rows = side_by_side(site.store, kept.compared, ids, wanted.changes, repetitions=kept.repetitions)
    body = render(
        "compare.html",
        site,
        diff=kept.diff,
        tables=metric_tables(kept.diff),
        failed=failed_metrics(site.store, kept.diff.run_groups),
        totals=change_totals(kept.diff, asked.metric),
        asked=asked,
        choices=beside(site, asked.baseline),
        most_candidates=MOST_CANDIDATES,
        rows=rows,
        marked=marked(rows, asked.baseline) if asked.words else {},
        wanted=wanted,
        last=last,
        splits=sorted({one.split for one in kept.examples if one.split}),
        changes=[(WORSE_IN_ANY, "worse in any metric"), *((one, one.replace("_", " ")) for one in CHANGES)],
        counted=counted,
        examples=len(kept.examples),
        shared={one.example_id: one.candidates for one in kept.examples if one.example_id in {*ids}},
        is_alone=site.links.page("compare") is None,
    )
    return Page(title=title(kept), section="compare", body=body, refresh_s=REFRESH_S if kept.is_running else None)


def title(kept: KeptComparison) -> str:
    names = kept.diff.names
    candidates = ", ".join(names[one.experiment_id] for one in kept.diff.candidates)
    return f"{candidates} against {names[kept.diff.baseline.experiment_id]}"


def _picker(site: Site, query: Query) -> Page:
    baseline, candidates = chosen_sides(site.store, query)
    given = next(iter([*filter(None, [baseline]), *candidates]), None)
    groups = by_dataset(site, query.text("q"), given)
    body = render(
        "compare_picker.html",
        site,
        groups=groups,
        baseline=baseline,
        candidates=candidates,
        given=given,
        q=query.text("q"),
        most_candidates=MOST_CANDIDATES,
    )
    return Page(title="Compare experiments", section="compare", body=body)
