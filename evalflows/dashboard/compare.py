"""Any experiments against a baseline: figures and verdicts, then the examples with all answers side by side, and
everything of one example."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, get_args

from markupsafe import Markup

from evalflows.analysis.changes import CHANGES, Change, ChangeCounts, ExampleChange
from evalflows.analysis.figures import figure
from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.charts import Point
from evalflows.dashboard.grids import grids_part
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Page, Query, Site, marked, render, shown_text
from evalflows.dashboard.steps import steps_of
from evalflows.reports.decisions import with_slices
from evalflows.reports.diff import ExperimentsDiff, comments_of, heading, no_examples, values_text
from evalflows.reports.example_detail import ExampleDetail, PastValue, RunDetail, example_detail, past_values
from evalflows.reports.experiment_report import overviews_of
from evalflows.reports.headlines import Headline, headline, verdict_sentences
from evalflows.reports.kept_comparisons import KeptComparison
from evalflows.reports.markdown_pages import MOST_CANDIDATES
from evalflows.reports.names import names_apart
from evalflows.reports.partings import partings_of
from evalflows.reports.picture import Card, card_of_results
from evalflows.reports.results import (
    WHO,
    WITHIN_MARGIN,
    Means,
    Result,
    drawing_scales,
    means_of,
    without_verdict,
)
from evalflows.reports.side_by_side import RowFilter, RowSort, found_examples, inputs_of, side_by_side, wanted_examples
from evalflows.reports.slices import SLICE_COLUMNS, slice_cells
from evalflows.reports.word_diff import WordDiff, answers_apart, has_much_in_common, word_diff
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import joined
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import LENGTH, MEASURES
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

IN_LIST = 200
"""Experiments in a list to choose from, at most: the newest."""

SORTS: tuple[RowSort, ...] = get_args(RowSort)

LINKED: tuple[Change, ...] = ("improved", "regressed", "flipped", "changed", "missing")
"""The changes that are counted, in the order of columns."""

MINOR = ("tokens", LENGTH)
"""Measures that are shown below the others."""

CALM = ("no_significant_difference", "too_brief")
"""Reasons for a verdict without a difference that are no lack of evidence."""

LEAST_AXIS = 0.1
"""The end of the axis of differences, at least: a tenth of the range."""

IN_PAGE = 50
"""Examples of a page."""

MOST_METRICS = 5
"""Metrics whose values stand beside an answer."""

REFRESH_S = 10
"""Seconds after which a comparison of a running experiment is shown anew: it costs statistics."""

MOST_EXTREMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """An experiment, as a list to choose from shows it."""

    experiment_id: str
    name: str
    target: str
    dataset: str  # its name, else the snapshot's id
    state: str
    n_examples: int
    started_at: datetime
    approved: str | None  # the names as whose baseline it is approved


@dataclass(frozen=True, slots=True, kw_only=True)
class OfDataset:
    dataset: str
    experiments: Sequence[Comparable]


def by_dataset(site: Site, search: str | None, beside: str | None) -> list[OfDataset]:
    """Return the newest experiments by dataset, that with the newest first.

    Args:
        site: The site.
        search: A text that their name or dataset has; None for any.
        beside: The id of an experiment: only those on the same dataset are wanted.
    """
    found = ask_records(site.store, Comparable, _LISTED, [search, beside, IN_LIST])
    order = {dataset: index for index, dataset in enumerate(dict.fromkeys(row.dataset for row in found))}
    ordered = sorted(found, key=lambda row: order[row.dataset])
    return [
        OfDataset(dataset=dataset, experiments=list(some))
        for dataset, some in groupby(ordered, key=lambda row: row.dataset)
    ]


def beside(site: Site, experiment: str) -> list[Comparable]:
    """Return the experiments on the same dataset: approved baselines first, then the newest."""
    found = ask_records(site.store, Comparable, _LISTED, [None, experiment, IN_LIST])
    return sorted(found, key=lambda row: row.approved is None)


_LISTED = """
with approved as (
    select experiment_id, string_agg(name, ', ' order by name) as names from approvals where holds group by all
), like_it as (
    select dataset_name, snapshot_id from experiments where experiment_id = $2
)
select e.experiment_id, e.name, e.target, coalesce(e.dataset_name, e.snapshot_id), e.state, e.n_examples, e.started_at,
       a.names
from experiments e left join approved a using (experiment_id)
where ($1 is null or contains(lower(e.name), lower($1)) or contains(lower(coalesce(e.dataset_name, '')), lower($1)))
      and ($2 is null or exists (select 1 from like_it l
                                 where e.dataset_name = l.dataset_name or e.snapshot_id = l.snapshot_id))
order by e.started_at desc, e.experiment_id limit $3
"""

WORSE_IN_ANY: Literal["worse_in_any"] = "worse_in_any"
"""Instead of a change in the metric: the examples that got worse in any metric of an evaluator."""

WantedChange = Change | Literal["worse_in_any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareQuery:
    """The parameters of the pages of a comparison; experiments are ids."""

    baseline: str
    candidates: Sequence[str]
    metric: str | None = None  # by which examples are filtered, sorted and coloured; None: the page chooses
    change: WantedChange | None = None
    of: str | None = None  # the candidate whose changes count; None: any
    split: str | None = None
    q: str | None = None
    sort: RowSort = "worst"
    words: bool = False  # whether words that differ are marked
    page: int = 1
    shown: str | None = None  # the example that is open beside the list; None: the first

    @classmethod
    def of_query(cls, store: Store, query: Query) -> "CompareQuery | None":
        """Return the parameters; None if a side is missing. Raise InputError for wrong ones."""
        baseline, candidates = chosen_sides(store, query)
        if baseline is None or not candidates:
            return None
        of = query.text("of")
        if of is not None and of not in candidates:
            raise InputError(f"of: got {of!r}, wanted one of the candidates {', '.join(candidates)}")
        return cls(
            baseline=baseline,
            candidates=candidates,
            metric=query.text("metric"),
            change=query.choice("change", (*CHANGES, WORSE_IN_ANY), CHANGES[0]) if query.text("change") else None,
            of=of,
            split=query.text("split"),
            q=query.text("q"),
            sort=query.choice("sort", SORTS, "worst"),
            words=query.text("words") is not None,
            page=query.number("page"),
            shown=query.text("example"),
        )

    @property
    def filter(self) -> RowFilter:
        change = None if self.change == WORSE_IN_ANY else self.change
        return RowFilter(change=change, candidate=self.of, split=self.split, search=self.q, sort=self.sort)

    @property
    def is_filtered(self) -> bool:
        return any((self.change, self.of, self.split, self.q))

    @property
    def kept(self) -> list[tuple[str, str]]:
        """The fields that a form which changes the experiments keeps."""
        return [(name, str(value)) for name, value in self._fields().items() if name in ("metric", "sort", "words")]

    def address(self, links: Links, **changes: Any) -> str | None:
        """Return the address of the comparison with some other values; of its first page, unless `page` is given."""
        changed = replace(self, **{"page": 1, "shown": None, **changes})
        return links.compare(changed.baseline, *changed.candidates, **changed._fields())

    def examples(self, links: Links, **changes: Any) -> str | None:
        """Return the address of the page's table of examples."""
        address = self.address(links, **changes)
        return address and f"{address}#examples"

    def without(self, links: Links, candidate: str) -> str | None:
        """Return the address without a candidate."""
        rest = [other for other in self.candidates if other != candidate]
        return self.address(links, candidates=rest, of=None if self.of == candidate else self.of)

    def swapped(self, links: Links, candidate: str) -> str | None:
        """Return the address with a candidate as the baseline, and the baseline in its place."""
        others = [self.baseline if other == candidate else other for other in self.candidates]
        return self.address(links, baseline=candidate, candidates=others, change=None, of=None)

    def slices(self, links: Links, **further: Any) -> str | None:
        """Return the address of the search of slices."""
        return links.page("compare", "slices", baseline=self.baseline, candidate=self.candidates, **further)

    def example(self, links: Links, example: str, **further: Any) -> str | None:
        """Return the address of one example, in this filter and order."""
        fields = {**self._fields(), "page": None, "example": None, **further}
        sides = {"baseline": self.baseline, "candidate": self.candidates}
        return links.page("compare", "example", **sides, **fields, id=example)

    def _fields(self) -> dict[str, str | int | None]:
        return {
            "metric": self.metric,
            "change": self.change,
            "of": self.of,
            "split": self.split,
            "q": self.q,
            "sort": None if self.sort == "worst" else self.sort,
            "words": 1 if self.words else None,
            "page": None if self.page == 1 else self.page,
            "example": self.shown,
        }


def chosen_sides(store: Store, query: Query) -> tuple[str | None, list[str]]:
    """Return the ids of baseline and candidates. Raise InputError for an unknown one, and for too many.

    If a candidate was made the baseline, the former baseline, which a form sends as `was`, takes its place.
    """
    baseline, was = query.text("baseline"), query.text("was")
    references = query.all("candidate")
    ids = resolved(store, [*filter(None, (baseline, was)), *references])
    base, former = ids.get(baseline or ""), ids.get(was or "")
    candidates = [ids[reference] for reference in references]
    if base in candidates:
        swapped = [former if candidate == base else candidate for candidate in candidates]
        candidates = [candidate for candidate in swapped if candidate is not None]
    candidates = [candidate for candidate in dict.fromkeys(candidates) if candidate != base]
    if len(candidates) > MOST_CANDIDATES:
        raise InputError(f"candidate: got {len(candidates)}, wanted at most {MOST_CANDIDATES}")
    return base, candidates


def resolved(store: Store, references: Sequence[str]) -> dict[str, str]:
    """Return the id that each reference means. Raise InputError for one that means none, or several."""
    query = "select experiment_id from experiments where is_one_of(experiment_id, $1)"
    known = {identity for (identity,) in ask(store, (query, [list(references)]))[0]}
    return {
        reference: reference if reference in known else find_experiments(store, reference, just_one=True)[0]
        for reference in dict.fromkeys(references)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRows:
    """One metric: the baseline's result, if it has the metric, and those of the candidates."""

    metric: str
    baseline: Result | None
    candidates: Sequence[Result]
    counts: Mapping[str, ChangeCounts]  # by candidate
    span: float  # the width of its range; of a measure the baseline's mean, of which differences are a share
    span_text: str

    @property
    def is_minor(self) -> bool:
        return self.metric in MINOR

    @property
    def is_unchanged(self) -> bool:
        """Whether no candidate has a significant difference, and no value or evidence lacks for saying so."""
        sides = [self.baseline, *self.candidates]
        return (
            bool(self.candidates)
            and all(side and not side.missing for side in sides)
            and all(one.reason_code in CALM or _is_within_margin(one) for one in self.candidates)
        )

    @property
    def verdict_text(self) -> str:
        """The verdicts of the candidates, each once."""
        return ", ".join(dict.fromkeys(one.verdict_text for one in self.candidates))

    def means(self, result: Result) -> Means | None:
        """Return the means of a candidate and the baseline that stand beside their difference."""
        return means_of(result, self.baseline)

    def share(self, difference: float | None) -> float | None:
        """Return a difference as a share of the range."""
        return None if difference is None else difference / self.span


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """All metrics that are worth showing, measures last, with differences on one axis."""

    metrics: Sequence[MetricRows]
    axis: tuple[float, float]  # of the differences, as shares
    adjusted_over: str  # how many tests the p-values of evaluators' metrics are adjusted over; empty without any


def metric_table(store: Store, diff: ExperimentsDiff) -> MetricTable:
    """Return the metrics of a comparison, one row for each candidate."""
    metrics = grouped((result.metric, result) for result in diff.results if result.has_rows)
    ranges = drawing_scales(store, diff.results)
    rows = [_rows_of(diff, metric, results, ranges.get(metric)) for metric, results in metrics.items()]
    ends = (
        abs(each.share(end) or 0.0)
        for each in rows
        for candidate in each.candidates
        for end in (candidate.difference, candidate.difference_low, candidate.difference_high)
    )
    most = min(1.0, max([LEAST_AXIS, *ends]))
    return MetricTable(metrics=rows, axis=(-most, most), adjusted_over=_adjusted_over(diff.results))


def _is_within_margin(result: Result) -> bool:
    return result.conclusion in WITHIN_MARGIN and result.reason_code != "worse_within_margin"


def _adjusted_over(results: Sequence[Result]) -> str:
    tested = [result for result in results if result.p_adjusted is not None and result.metric not in MEASURES]
    families = {result.family: str(result.n_in_family) for result in tested}
    if len(families) == 1:
        return "".join(families.values())
    counts = sorted({count for family, count in families.items() if family in WHO}, key=int)
    return ", or ".join([*counts, *["a gate's"] * (not families.keys() <= WHO.keys())])


def with_baseline(store: Store, results: Sequence[Result], baselines: Sequence[Result]) -> ExperimentsDiff | None:
    """Return the results of an experiment against the baseline of its run or gate, as that tested them; None without.

    `baselines` are the results of experiments that may be it.
    """
    tested = [result for result in results if result.baseline_experiment_id is not None]
    if not tested:
        return None
    both = [tested[0].baseline_experiment_id or "", tested[0].experiment_id]
    old, new = overviews_of(store, both)
    return ExperimentsDiff(
        baseline=old,
        candidates=[new],
        names=names_apart(store, {old.experiment_id: old.name, new.experiment_id: new.name}),
        where=None,
        n_compared={new.experiment_id: max(result.n_pairs or 0 for result in tested)},
        results=[*(without_verdict(one) for one in baselines if one.experiment_id == old.experiment_id), *results],
        notes=[],
        counts=[],
        lists=[],
    )


def _rows_of(
    diff: ExperimentsDiff, metric: str, results: Sequence[Result], limits: tuple[float, float] | None
) -> MetricRows:
    baseline = next((result for result in results if result.experiment_id == diff.baseline.experiment_id), None)
    if limits is not None:
        span, text = limits[1] - limits[0], f"{limits[0]:g} to {limits[1]:g}"
    else:
        ends = [
            abs(end) for result in results for end in (result.mean, result.ci_low, result.ci_high) if end is not None
        ]
        known = baseline.mean if baseline is not None else None
        span, text = abs(known or 0.0) or max(ends, default=0.0) or 1.0, ""
    return MetricRows(
        metric=metric,
        baseline=baseline,
        candidates=[result for result in results if result is not baseline],
        counts={count.candidate_experiment_id: count for count in diff.counts if count.metric == metric},
        span=span,
        span_text=text,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The headline of one candidate in a comparison, and what gates said of it."""

    candidate: str
    headline: Headline
    gates: Mapping[str, str]  # conclusions of the newest decisions on it, by gate
    why: str  # why a gate failed it; empty if none did
    where: Sequence[str]  # in which slices it got worse, as a gate found against the same baseline


def summaries(store: Store, diff: ExperimentsDiff) -> list[Summary]:
    """Return the headline of each candidate."""
    out = []
    for candidate in diff.candidates:
        new = candidate.experiment_id
        decided = [decision for decision in diff.decisions if decision.candidate_experiment_id == new]
        own = [each for each in decided if each.baseline_experiment_id == diff.baseline.experiment_id]
        found = headline([result for result in diff.results if result.experiment_id == new], decided)
        out.append(
            Summary(
                candidate=new,
                headline=found,
                gates={decision.gate: decision.conclusion for decision in decided},
                why=next((decision.summary for decision in decided if decision.conclusion == found.word == "FAIL"), ""),
                where=next((with_slices(store, decision).where for decision in reversed(own)), ()),
            )
        )
    return out


def change_totals(diff: ExperimentsDiff, metric: str | None) -> dict[str, list[tuple[Change, int]]]:
    """Return how many examples changed in which way by a metric, for each candidate; without counts of 0."""
    return {
        counts.candidate_experiment_id: [(change, count) for change in LINKED if (count := getattr(counts, change))]
        for counts in diff.counts
        if counts.metric == metric
    }


def compare_page(site: Site, query: Query) -> Page:
    """Return a comparison; without baseline or candidates, experiments to choose from."""
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
        others = [metric for metric in self.kept.metrics if metric not in MEASURES and metric != self.asked.metric]
        return [*filter(None, [self.asked.metric]), *others][:MOST_METRICS]

    @property
    def changes(self) -> list[Mapping[str, Sequence[ExampleChange]]]:
        return self.kept.changes(self.metrics)


def wanted_of(site: Site, asked: CompareQuery) -> Wanted:
    """Return the wanted examples. Raise InputError for a metric or a split that none of them has."""
    kept = site.compared.get(site.store, asked.baseline, asked.candidates)
    metric = asked.metric or most_regressed(kept)
    if metric is not None and metric not in kept.metrics:
        raise InputError(f"metric: got {metric!r}, wanted one of {', '.join(kept.metrics) or 'none'}")
    asked = replace(asked, metric=metric)
    read = dict(zip(kept.metrics, kept.changes(kept.metrics), strict=True))  # an example is shown by all: one query
    changes = read[metric] if metric else {}
    found = found_examples(site.store, kept.compared, asked.q) if asked.q else None
    if asked.change == WORSE_IN_ANY:
        worse = worse_in_any(kept, asked.of)
        found = worse if found is None else found & worse
    return Wanted(asked=asked, kept=kept, examples=wanted_examples(kept.examples, changes, asked.filter, found))


def most_regressed(kept: KeptComparison) -> str | None:
    """Return the evaluators' metric in which most examples got worse, or flipped, else better: what one looks at first.
    Those with a significant difference come before others, in which examples change by chance.

    None if the systems share no metric of an evaluator.
    """
    differ = {result.metric for result in kept.diff.results if result.conclusion in ("better", "worse")}
    moved = {metric: (metric in differ, 0, 0) for metric in kept.listed_metrics}
    for count in kept.diff.counts:
        if count.metric in moved:
            differs, worse, better = moved[count.metric]
            moved[count.metric] = differs, worse + count.regressed + count.flipped, better + count.improved
    return max(moved, key=lambda metric: moved[metric], default=None)


def worse_in_any(kept: KeptComparison, candidate: str | None) -> set[str]:
    """Return the examples that got worse in any metric of an evaluator, in a candidate or in any."""
    return {
        example
        for changes in kept.changes(kept.listed_metrics)
        for example, some in changes.items()
        if any(change.change == "regressed" and candidate in (None, change.candidate_experiment_id) for change in some)
    }


def _comparison(site: Site, asked: CompareQuery) -> Page:
    wanted = wanted_of(site, asked)
    kept, asked = wanted.kept, wanted.asked
    in_page = site.in_page(IN_PAGE)
    last = max(1, -(-len(wanted.examples) // in_page))
    if asked.page > last:
        raise InputError(f"page: got {asked.page}, wanted at most {last}")
    ids = wanted.examples[(asked.page - 1) * in_page : asked.page * in_page]
    is_alone = site.links.page("compare") is None
    shown = None if is_alone else asked.shown or next(iter(ids), None)
    of_file = ids if is_alone else []
    rows = side_by_side(site.store, kept.compared, of_file, wanted.changes, repetitions=kept.repetitions)
    headlines = summaries(site.store, kept.diff)
    figures = {
        "diff": kept.diff,
        "table": metric_table(site.store, kept.diff),
        "summaries": headlines,
        "excluded": excluded_metrics(site.store, kept.diff.run_groups),
        "grids": Markup() if is_alone else grids_part(site, [asked.baseline, *asked.candidates]),
    }
    body = render(
        "compare.html",
        site,
        **figures,
        listed=[] if is_alone else _listed(site.store, wanted, ids),
        shown=shown,
        reading=None if shown is None else _reading(site, wanted, shown, is_whole=False),
        totals=change_totals(kept.diff, asked.metric),
        asked=asked,
        choices=beside(site, asked.baseline),
        most_candidates=MOST_CANDIDATES,
        rows=rows,
        marked=marked(rows, asked.baseline) if asked.words else {},
        wanted=wanted,
        last=last,
        splits=sorted({example.split for example in kept.examples if example.split}),
        changes=[(WORSE_IN_ANY, "worse in any metric"), *((change, change.replace("_", " ")) for change in CHANGES)],
        examples=len(kept.examples),
        shared={example.example_id: example.candidates for example in kept.examples if example.example_id in {*ids}},
        is_alone=is_alone,
    )
    worst, best = (_extremes(site, wanted, change) if is_alone else [] for change in ("regressed", "improved"))
    extremes = {"metric": asked.metric, "worst": worst, "best": best}
    return Page(
        title=title(kept.diff),
        summary=render("compare_summary.html", site, **figures, **extremes) if is_alone else None,
        section="compare",
        body=body,
        refresh_s=REFRESH_S if kept.is_running else None,
        is_shared=True,
        card=lambda: _card(title(kept.diff), kept.diff, headlines),
    )


def _card(title: str, diff: ExperimentsDiff, summaries: Sequence[Summary]) -> Card:
    """Return what a picture of the page shows; of one candidate, with its headline, and why a gate failed it."""
    said = verdict_sentences(diff.results, diff.decisions)
    if len(summaries) > 1:
        return card_of_results(title, diff.results, said)
    (one,) = summaries
    return card_of_results(title, diff.results, [*filter(None, [one.why]), *said], one.headline.word)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extreme:
    """An example that changed most, with what the evaluator said of the candidate's answer."""

    change: ExampleChange
    inputs: str
    reason: str | None
    reading: Markup


def _extremes(site: Site, wanted: Wanted, change: Change) -> list[_Extreme]:
    """Return the examples that changed most in the metric, one way."""
    metric, compared = wanted.asked.metric, wanted.kept.compared
    by_example = wanted.kept.changes([metric])[0] if metric else {}
    changed = [row for some in by_example.values() for row in some if row.change == change and row.gain is not None]
    most = sorted(changed, key=lambda row: (-abs(row.gain or 0.0), row.position))[:MOST_EXTREMES]
    inputs = inputs_of(site.store, compared, [row.example_id for row in most])
    details = [example_detail(site.store, compared.experiment_ids, row.example_id) for row in most]
    return [
        _Extreme(
            change=row,
            inputs=joined(shown_text(inputs[row.example_id])),
            reason=_reason(row, detail),
            reading=_reading(site, wanted, row.example_id, is_whole=False),
        )
        for row, detail in zip(most, details, strict=True)
    ]


def _reason(change: ExampleChange, detail: ExampleDetail) -> str | None:
    of_candidate = (run for run in detail.runs if run.experiment_id == change.candidate_experiment_id)
    scores = (score for run in of_candidate for score in run.scores if score.metric == change.metric)
    return next((joined(score.comment) for score in scores if score.comment), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """An example in the list: the begin of its inputs, and how it changed in the metric, by candidate."""

    example_id: str
    inputs: str
    changes: Sequence[ExampleChange]


def _listed(store: Store, wanted: Wanted, examples: Sequence[str]) -> list[_Listed]:
    (changes,) = wanted.kept.changes([wanted.asked.metric]) if wanted.asked.metric else [{}]
    inputs = inputs_of(store, wanted.kept.compared, examples)
    of = wanted.asked.of
    return [
        _Listed(
            example_id=example,
            inputs=joined(shown_text(inputs[example])),
            changes=[each for each in changes.get(example, ()) if of in (None, each.candidate_experiment_id)],
        )
        for example in examples
    ]


def title(diff: ExperimentsDiff) -> str:
    candidates = ", ".join(diff.names[candidate.experiment_id] for candidate in diff.candidates)
    return f"{candidates} against {diff.names[diff.baseline.experiment_id]}"


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


def compare_slices_page(site: Site, query: Query) -> Page:
    """Return the slices of the examples in which candidates depart from their overall difference; searched when asked
    for."""
    asked = CompareQuery.of_query(site.store, query)
    if asked is None:
        raise InputError("baseline, candidate: got too few, wanted at least a baseline and a candidate")
    kept = site.compared.get(site.store, asked.baseline, asked.candidates)
    searches = [(kept.diff.search_text(s), [slice_cells(each) for each in s.found]) for s in kept.searches]
    body = render("compare_slices.html", site, searches=searches, columns=SLICE_COLUMNS)
    return Page(title=f"Slices: {title(kept.diff)}", section="compare", body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """An example's place among the wanted ones, from 1; None if it is not among them."""

    place: int | None
    before: str | None
    after: str | None


def compare_example_page(site: Site, query: Query) -> Page:
    """Return one example of a comparison, with links to the next and the previous one in the same filter and order."""
    asked, example = CompareQuery.of_query(site.store, query), query.wanted("id")
    if asked is None:
        raise InputError("baseline, candidate: got too few, wanted at least a baseline and a candidate")
    wanted = wanted_of(site, asked)
    body = _reading(site, wanted, example, is_whole=query.text("fragment") is None)
    return Page(title=f"{example}: {title(wanted.kept.diff)}", section="compare", body=body)


def _reading(site: Site, wanted: Wanted, example: str, *, is_whole: bool) -> Markup:
    """Return everything of one example; beside the list, without its past in other experiments."""
    kept, asked = wanted.kept, wanted.asked
    ids = kept.compared.experiment_ids
    detail = example_detail(site.store, ids, example)
    changes = [change for metric in kept.changes(kept.metrics) for change in metric.get(example, ())]
    past = past_lines(site, past_values(site.store, ids, example, _metrics(wanted)), ids) if is_whole else []
    return render(
        "compare_example.html",
        site,
        detail=detail,
        diff=kept.diff,
        asked=asked,
        wanted=wanted,
        in_page=IN_PAGE,
        is_whole=is_whole,
        neighbours=neighbours(wanted.examples, example),
        runs={identity: [run for run in detail.runs if run.experiment_id == identity] for identity in ids},
        changes=grouped((change.candidate_experiment_id, change) for change in changes),
        words=answers_in_words(detail.runs, asked.baseline) if asked.words else {},
        steps={run.run_id: steps_of(run.steps) for run in detail.runs},
        partings=partings_of(detail.runs, asked.baseline),
        past=past,
    )


def neighbours(examples: Sequence[str], example: str) -> Neighbours:
    """Return an example's place among others, and those beside it."""
    if example not in examples:
        return Neighbours(place=None, before=None, after=None)
    index = examples.index(example)
    after = examples[index + 1] if index + 1 < len(examples) else None
    return Neighbours(place=index + 1, before=examples[index - 1] if index else None, after=after)


def answers_in_words(runs: Sequence[RunDetail], baseline: str) -> dict[str, WordDiff]:
    """Return the words in which each run's answer differs from the baseline's in the same repetition, else the first;
    of a single candidate, also the baseline's.

    Runs without an answer, and answers that have little in common with the baseline's, are not among them.
    """
    old = {run.repetition: run for run in runs if run.experiment_id == baseline and run.outputs is not None}
    first = next(iter(old.values()), None)
    others = [run for run in runs if run.experiment_id != baseline and run.outputs is not None]
    found: dict[str, WordDiff] = {}
    for run in others:
        before = old.get(run.repetition, first)
        if before is None:
            continue
        parts = word_diff(shown_text(before.outputs), shown_text(run.outputs))
        if has_much_in_common(parts):
            is_alone = len({other.experiment_id for other in others}) == 1
            found[run.run_id] = [part for part in parts if part[0] != "removed"] if is_alone else parts
            if is_alone and before.repetition == run.repetition:
                found[before.run_id] = [part for part in parts if part[0] != "added"]
    return found


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
    metrics = grouped((value.metric, value) for value in values)
    return [
        PastLine(metric=metric, points=[_point(site, past) for past in some], values=some)
        for metric, some in metrics.items()
    ]


def _point(site: Site, past: PastValue) -> Point:
    said = figure(past.value, past.metric) if past.value is not None else past.labels or "missing"
    return Point(
        at=past.started_at,
        value=past.value,
        title=f"{past.name} ({past.started_at:%Y-%m-%d %H:%M}): {said}",
        href=site.links.experiment(past.experiment_id),
    )


def _metrics(wanted: Wanted) -> list[str]:
    """Return the metrics of which the past is shown: those beside the answers, without measures."""
    return [metric for metric in wanted.metrics if metric not in MEASURES]


def diff_page(site: Site, diff: ExperimentsDiff) -> Page:
    """Return the page of a diff with the examples of its lists."""
    body = render(
        "diff.html",
        site,
        diff=diff,
        table=metric_table(site.store, diff),
        summaries=summaries(site.store, diff),
        excluded=excluded_metrics(site.store, diff.run_groups),
        heading=heading,
        no_examples=no_examples,
        values_text=values_text,
        answers_apart=answers_apart,
        remarks=comments_of,
    )
    return Page(title=title(diff), section="compare", body=body)
