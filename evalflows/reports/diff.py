"""Candidates against a baseline: figures, what else differs, and what changed example by example, in words, as the
document of `evalflows diff --format json`, and as Markdown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from evalflows.analysis.changes import (
    Change,
    ChangeCounts,
    ChangeFilter,
    ChangeList,
    ComparedExperiments,
    ComparedFigures,
    ExampleChange,
    Note,
    SliceSearch,
    change_counts,
    change_lists,
)
from evalflows.analysis.run_together import stored_figures
from evalflows.reports.decisions import Decision, decisions_of
from evalflows.reports.documents import Document, metric_document, plain
from evalflows.reports.experiment_report import ExperimentOverview, overviews_of
from evalflows.reports.formats import MOST_CHARACTERS, escaped, markdown_table
from evalflows.reports.headlines import verdict_sentences
from evalflows.reports.names import names_apart
from evalflows.reports.results import Result, differences_in, on_chosen, remarks_on, results_of
from evalflows.reports.slices import MOST_NAMED, SLICE_COLUMNS, search_text, slice_cells
from evalflows.reports.word_diff import WordDiff, answers_apart, changed_words
from evalflows.reports.worst import HIDDEN, plain_text, value_text
from evalflows.specs.errors import InputError, names_to_choose
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.conclusions import VERDICT_FIELDS, ComparedVerdict
from evalflows.store.queries.looks import final_ids
from evalflows.store.records import from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

LISTED: tuple[Change, ...] = ("regressed", "improved", "flipped", "changed", "missing")
"""The changes of which examples are listed, in this order."""

EXAMPLES_LISTED = 5
"""Examples of each list, by default."""

_JSON = ("inputs", "reference_outputs", "outputs", "baseline_outputs")

HEADINGS: dict[Change, str] = {
    "regressed": "regressed",
    "improved": "improved",
    "flipped": "flipped under the same version",
    "changed": "other labels",
    "missing": "missing on a side",
    "same": "the same",
    "not_applicable": "not applicable",
}

_OF_EXPERIMENTS = ("system", "experiment", "state", "answered", "mean latency (s)", "cost (USD)")

_MARKS = {"removed": "<del>{}</del>", "added": "<ins>{}</ins>"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsDiff:
    """Candidates against a baseline."""

    baseline: ExperimentOverview
    candidates: Sequence[ExperimentOverview]
    names: Mapping[str, str]  # of the experiments by id, apart from each other
    where: str | None  # the condition on the examples
    n_compared: Mapping[str, int]  # examples that are compared, by candidate
    results: Sequence[Result]
    notes: Sequence[Note]
    counts: Sequence[ChangeCounts]
    lists: Sequence[ChangeList]
    listed: Sequence[str] = ()  # the metrics by which examples are listed
    searches: Sequence[SliceSearch] = ()  # of slices, if asked for
    hides_final: bool = False  # whether there are final examples, which are not listed
    decisions: Sequence[Decision] = ()  # the newest of each gate on the candidates; none if only some examples count

    @property
    def run_groups(self) -> dict[str, str]:
        """The run group of each experiment, by its id."""
        return {side.experiment_id: side.run_group for side in (self.baseline, *self.candidates)}

    @property
    def sentences(self) -> list[str]:
        """One per candidate, and the remarks on the results."""
        return [*verdict_sentences(self.results, self.decisions), *(one.text for one in remarks_on(self.results))]

    def search_text(self, search: SliceSearch) -> str:
        """Return what was searched of a candidate and how many slices stand out, in a sentence."""
        names = (self.names[identity] for identity in (search.candidate_experiment_id, self.baseline.experiment_id))
        return search_text(search, *names)


def diff_of(
    store: Store,
    baseline: str,
    candidates: Sequence[str],
    *,
    where: str | None = None,
    metrics: Sequence[str] = (),
    limit: int = EXAMPLES_LISTED,
    slices: bool = False,
    with_final: bool = False,
    rows_of: Callable[[str], list[tuple[Any, ...]]] | None = None,
) -> ExperimentsDiff:
    """Return the diff of experiments, given by id; nothing is stored.

    Args:
        store: The store.
        baseline: Its id.
        candidates: Their ids.
        where: A SQL condition: only the examples for which it holds count.
        metrics: Show only these. The verdicts are the same: p-values are adjusted over all metrics.
        limit: The most examples in each list.
        slices: Search the slices of the examples for those that depart from the overall difference.
        with_final: List final examples too.
        rows_of: Runs the condition of somebody else, in the process for such SQL.

    Raise InputError as `figures_between` does, and for a metric that no experiment has.
    """
    figures = None if where is not None or slices else stored_figures(store, baseline, candidates)
    if figures is None:
        from evalflows.analysis.diff import figures_between  # late: specs are slow to import

        searched = metrics if slices else None
        figures = figures_between(store, baseline, candidates, where, searched=searched, rows_of=rows_of)
    return experiments_diff(store, figures, metrics=metrics, limit=limit, with_final=with_final)


def experiments_diff(
    store: Store,
    figures: ComparedFigures,
    *,
    metrics: Sequence[str] = (),
    limit: int = EXAMPLES_LISTED,
    with_final: bool = False,
) -> ExperimentsDiff:
    """Return the diff of candidates and their baseline, from the figures of `analysis.diff`.

    Args:
        store: The store.
        figures: What is compared, and how it came out.
        metrics: Only these. By default all; examples are then listed by the metrics of evaluators.
        limit: The most examples in each list.
        with_final: List final examples too.

    Raise InputError for a metric that no experiment has.
    """
    diff = diff_without_lists(store, figures, metrics)
    listed = metrics or [count.metric for count in diff.counts if count.is_listed]
    wanted = ChangeFilter(metrics=listed, changes=LISTED)
    lists = change_lists(store, figures.compared, wanted, limit=limit) if listed else []
    hidden = frozenset() if with_final else final_ids(store, figures.compared.experiment_ids)
    if hidden:
        lists = [
            replace(one, examples=[example for example in one.examples if example.example_id not in hidden])
            for one in lists
        ]
    return replace(diff, lists=lists, listed=listed, hides_final=bool(hidden))


def diff_without_lists(store: Store, figures: ComparedFigures, metrics: Sequence[str] = ()) -> ExperimentsDiff:
    """Return the same without lists of examples, which take as long as all else."""
    compared = figures.compared
    baseline, *candidates = overviews_of(store, compared.experiment_ids)
    sides = (baseline, *candidates)
    targets = {side.experiment_id: side.target for side in sides}
    given = {side.experiment_id: side.name for side in sides}
    are_told_by_names = len({*targets.values()}) < len({*given.values()}) == len(given)
    names = names_apart(store, given if are_told_by_names else targets)
    results = compared_results(store, figures, names)
    check_metrics(metrics, [result.metric for result in results if result.has_rows])
    return ExperimentsDiff(
        baseline=baseline,
        candidates=candidates,
        names=names,
        where=figures.chosen.where if figures.chosen else None,
        n_compared=figures.n_compared,
        results=[result for result in results if not metrics or result.metric in metrics],
        notes=[
            *(note for note in figures.notes if not metrics or note.metric is None or note.metric in metrics),
            *_changed_prompts(store, compared),
        ],
        counts=[count for count in change_counts(store, compared) if not metrics or count.metric in metrics],
        lists=[],
        searches=figures.searches,
        decisions=[] if figures.chosen else decisions_of(store, [side.experiment_id for side in candidates]),
    )


_PROMPTS = """
select experiment_id, target.system, target.user, target.messages from (
    select experiment_id, target as name, unnest(from_json(spec -> '$.targets', '[{
               "name": "VARCHAR", "kind": "VARCHAR", "system": "VARCHAR", "user": "VARCHAR", "messages": "JSON"
           }]')) as target
    from experiments where is_one_of(experiment_id, $1)
) where target.name = name and target.kind = 'chat'
"""


def _changed_prompts(store: Store, compared: ComparedExperiments) -> Iterator[Note]:
    """Yield what differs between the prompts of chat targets, word by word."""
    (rows,) = ask(store, (_PROMPTS, [compared.experiment_ids]))
    prompts = {owner: dict(zip(("system", "user", "messages"), texts, strict=True)) for owner, *texts in rows}
    baseline = prompts.get(compared.baseline_experiment_id, {})
    for candidate in compared.experiment_ids:
        for name, text in prompts.get(candidate, {}).items():
            was = baseline.get(name, text)
            if was != text:
                said = f"prompt, {name}: {changed_words(was or '', text or '')}"
                yield Note(candidate_experiment_id=candidate, what="prompt", metric=None, text=said, refuses=False)


def check_metrics(metrics: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError for a metric that is not among the known ones."""
    for metric in metrics:
        if metric not in known:
            raise InputError(f"metric: got {metric!r}, wanted {names_to_choose(metric, known)}")


def compared_results(store: Store, figures: ComparedFigures, names: Mapping[str, str]) -> list[Result]:
    """Return each metric's results, the baseline's first, with the differences and verdicts of `figures`.

    If only some examples count, means and counts are those of these examples. `names` are those of the experiments.
    """
    baseline = figures.compared.baseline_experiment_id
    verdicts = {(verdict.candidate_experiment_id, verdict.metric): verdict for verdict in figures.verdicts}
    results = [
        replace(
            result,
            target=names[result.experiment_id],
            **_against(result, verdicts.get((result.experiment_id, result.metric)), baseline, names[baseline]),
        )
        for result in results_of(store, figures.compared.experiment_ids)
    ]
    return results if figures.chosen is None else on_chosen(store, results, figures.chosen)


def _against(result: Result, verdict: ComparedVerdict | None, baseline_id: str, baseline: str) -> dict[str, Any]:
    """Return the fields of a result about its difference from the baseline; None without a verdict.

    A result without one in its own run either has the reason why its mean has no interval, which stays.
    """
    if verdict is None:
        own = {"reason": result.reason, "reason_code": result.reason_code} if result.conclusion is None else {}
        return {**dict.fromkeys(("baseline_experiment_id", "baseline", *VERDICT_FIELDS)), **own}
    against = {name: getattr(verdict, field) for name, field in VERDICT_FIELDS.items()}
    return {"baseline_experiment_id": baseline_id, "baseline": baseline, **against}


def diff_document(diff: ExperimentsDiff) -> Document:
    """Return a diff as one object, with null for what is missing."""
    targets = {side.experiment_id: side.target for side in (diff.baseline, *diff.candidates)}
    content: Document = {
        "baseline": asdict(diff.baseline),
        "candidates": [asdict(candidate) for candidate in diff.candidates],
        "where": diff.where,
        "n_compared": diff.n_compared,
        "metrics": [metric_document(result, targets) for result in diff.results if result.has_rows],
        "notes": [asdict(note) for note in diff.notes],
        "changes": [asdict(count) for count in diff.counts],
        "examples": [_list(example_list) for example_list in diff.lists],
        "sentences": diff.sentences,
        "slices": [asdict(search) for search in diff.searches],
    }
    return plain(content)  # type: ignore[no-any-return]


def _list(changes: ChangeList) -> Document:
    fields = ("candidate_experiment_id", "change", "count")
    return {**{name: getattr(changes, name) for name in fields}, "examples": [example(row) for row in changes.examples]}


def example(change: ExampleChange) -> Document:
    """Return a change with its texts as the values that they are."""
    return {**asdict(change), **{name: from_json(getattr(change, name)) for name in _JSON}}


def heading(diff: ExperimentsDiff, changes: ChangeList) -> str:
    """Return what the examples of a list have in common, in any of which metrics, and how many there are."""
    baseline = diff.names[diff.baseline.experiment_id]
    shown = f"{len(changes.examples)} of " if 0 < len(changes.examples) < changes.count else ""
    metrics = [
        count.metric
        for count in diff.counts
        if count.candidate_experiment_id == changes.candidate_experiment_id
        and count.metric in diff.listed
        and getattr(count, changes.change)
    ]
    by = f" in {_or(metrics)}" if len(diff.listed) > 1 else ""
    return (
        f"{HEADINGS[changes.change]}{by}: {diff.names[changes.candidate_experiment_id]} against {baseline}, "
        f"{shown}{changes.count} example{'s' * (changes.count != 1)}"
    )


def _or(names: Sequence[str]) -> str:
    """Return names, of which one holds at least: up to MOST_NAMED, then how many others."""
    more = len(names) - MOST_NAMED
    shown = [*names[:MOST_NAMED], *([f"{more} other{'s' * (more != 1)}"] if more > 0 else [])]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def no_examples(diff: ExperimentsDiff) -> str:
    """Return why no example is listed."""
    is_compared = any(count.metric not in MEASURES for count in diff.counts)
    return "no example changed" if is_compared else "no example is listed: no metric of an evaluator is shared"


def values_text(change: ExampleChange) -> str:
    """Return a metric's values on both sides: `contains: was 1, now 0`."""
    was, now = values_of(change)
    return f"{change.metric}: was {was}, now {now}"


def values_of(change: ExampleChange) -> tuple[str, str]:
    """Return a metric's value or label in the baseline and in the candidate."""
    was = change.baseline_label or value_text(change.baseline_value, change.baseline_missing, change.metric)
    return was, change.label or value_text(change.value, change.missing, change.metric)


def comments_of(change: ExampleChange) -> Iterator[tuple[str, str]]:
    """Yield what the evaluator said of both answers, and the errors; once if it is the same."""
    for name in ("comment", "error"):
        text, baseline = getattr(change, name), getattr(change, f"baseline_{name}")
        if baseline and baseline != text:
            yield f"baseline's {name}", baseline
        if text:
            yield name, text


def notes_of(diff: ExperimentsDiff) -> list[str]:
    """Return which examples are compared, and what else differs, one sentence each."""
    out = []
    names = {candidate.experiment_id: diff.names[candidate.experiment_id] for candidate in diff.candidates}
    if diff.where is not None:
        counts = ", ".join(f"{n} in {names[owner]}" for owner, n in diff.n_compared.items())
        total = counts if len({*diff.n_compared.values()}) > 1 else str(next(iter(diff.n_compared.values())))
        out.append(f"only the examples where {diff.where} are compared: {total}")
    by_text = grouped((note.text, names[note.candidate_experiment_id]) for note in diff.notes)
    several = len(names) > 1
    out += [f"{', '.join(owners)}: {text}" if several else text for text, owners in by_text.items()]
    return [*out, HIDDEN] if diff.hides_final else out


def diff_markdown(diff: ExperimentsDiff) -> str:
    """Return the table, what else differs, cost and latency, and the examples that changed."""
    candidates = ", ".join(diff.names[candidate.experiment_id] for candidate in diff.candidates)
    header = ("metric", "system", "mean", "interval", "difference", "p adjusted", "verdict", "missing")
    differences = differences_in(diff.results)
    return "\n\n".join(
        section
        for section in (
            f"# {escaped(candidates)} against {escaped(diff.names[diff.baseline.experiment_id])}",
            "\n".join(f"- {escaped(line)}" for line in (*diff.sentences, *notes_of(diff))),
            markdown_table(header, [_cells(result, differences) for result in diff.results if result.is_worth_showing]),
            markdown_table(_OF_EXPERIMENTS, [_experiment(diff, side) for side in (diff.baseline, *diff.candidates)]),
            *(
                section
                for search in diff.searches
                for section in (
                    escaped(diff.search_text(search)),
                    markdown_table(SLICE_COLUMNS, [slice_cells(s) for s in search.found]) if search.found else "",
                )
            ),
            *([_markdown_list(diff, changes) for changes in diff.lists] or [no_examples(diff)]),
        )
        if section
    )


def _cells(result: Result, differences: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    difference = ", ".join(differences[result.experiment_id, result.metric])
    figures = [result.mean_text, result.interval_text, difference, result.p_adjusted_text]
    return [result.metric, result.target, *figures, result.verdict_text, str(result.missing)]


def _experiment(diff: ExperimentsDiff, overview: ExperimentOverview) -> list[str]:
    latency = "" if overview.mean_latency_s is None else f"{overview.mean_latency_s:.2f}"
    cost = overview.spent_figure or "unknown"
    name = diff.names[overview.experiment_id]
    return [name, overview.experiment_id, overview.state, f"{overview.answered} of {overview.planned}", latency, cost]


def _markdown_list(diff: ExperimentsDiff, changes: ChangeList) -> str:
    return "\n\n".join([f"## {escaped(heading(diff, changes))}", *map(_example, changes.examples)])


def _example(change: ExampleChange) -> str:
    answers = answers_apart(change)
    lines = [
        f"**{escaped(change.example_id)}** {escaped(values_text(change))}",
        f"- question: {escaped(plain_text(change.inputs)[:MOST_CHARACTERS])}",
        f"- baseline: {_marked(answers.baseline)}",
        f"- answer: {_marked(answers.candidate)}",
        *(f"- {name}: {escaped(text[:MOST_CHARACTERS])}" for name, text in comments_of(change)),
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _marked(parts: WordDiff) -> str:
    """Mark what was removed and added. Markdown's own marks would not hold between a word and a punctuation mark."""
    return "".join(_MARKS.get(kind, "{}").format(_spaced(text)) for kind, text in parts)


def _spaced(text: str) -> str:
    """Escape a part of a text, which drops the spaces at its ends, and put them back."""
    words = text.strip()
    begin, end = text[:1].isspace(), text[-1:].isspace() and bool(words)
    return f"{' ' * begin}{escaped(words)}{' ' * end}"
