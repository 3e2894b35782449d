"""Candidates against a baseline: figures, what else differs, and what changed example by example, in words, as
Markdown, and as the document of `evalflows diff --format json`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, groupby
from typing import Any, Literal

from rapidfuzz.distance import Indel

from evalflows.analysis.changes import (
    Change,
    ChangeCounts,
    ChangeFilter,
    ChangeList,
    ComparedFigures,
    ExampleChange,
    Note,
    SliceSearch,
    change_counts,
    change_lists,
)
from evalflows.analysis.figures import usd
from evalflows.reports.formats import MOST_CHARACTERS, escaped, markdown_table
from evalflows.reports.pages_as_text import Document, ExperimentOverview, metric_document, overviews_of, plain
from evalflows.reports.results import Result, differences_in, names_apart, on_chosen, results_of, sentences
from evalflows.reports.slices import SLICE_COLUMNS, search_text, slice_cells
from evalflows.reports.worst import plain_text, value_text
from evalflows.specs.errors import MEASURES, InputError, names_to_choose
from evalflows.store.queries.lookup import VERDICT_FIELDS
from evalflows.store.records import VerdictRow, from_json
from evalflows.store.store import Store

LISTED: tuple[Change, ...] = ("regressed", "improved", "flipped", "changed", "missing")
"""The changes of which examples are listed, in this order."""

METRICS_SHOWN = 5
"""Examples of each list, by default."""


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
    searches: Sequence[SliceSearch] = ()  # of slices, if asked for

    @property
    def run_groups(self) -> dict[str, str]:
        """The run group of each experiment, by its id."""
        return {one.experiment_id: one.run_group for one in (self.baseline, *self.candidates)}

    @property
    def sentences(self) -> list[str]:
        return sentences(self.results)

    def search_text(self, search: SliceSearch) -> str:
        """Return what was searched of a candidate and how many slices stand out, in a sentence."""
        names = (self.names[one] for one in (search.candidate_experiment_id, self.baseline.experiment_id))
        return search_text(search, *names)


def diff_of(
    store: Store,
    baseline: str,
    candidates: Sequence[str],
    *,
    where: str | None = None,
    metrics: Sequence[str] = (),
    limit: int = METRICS_SHOWN,
    slices: bool = False,
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

    Raise InputError as `figures_between` does, and for a metric that no experiment has.
    """
    from evalflows.analysis.diff import figures_between  # late: specs are slow to import

    figures = figures_between(store, baseline, candidates, where, searched=metrics if slices else None)
    return experiments_diff(store, figures, metrics=metrics, limit=limit)


def experiments_diff(
    store: Store, figures: ComparedFigures, *, metrics: Sequence[str] = (), limit: int = METRICS_SHOWN
) -> ExperimentsDiff:
    """Return the diff of candidates and their baseline, from the figures of `analysis.diff`.

    Args:
        store: The store.
        figures: What is compared, and how it came out.
        metrics: Only these. By default all; examples are then listed by the metrics of evaluators.
        limit: The most examples in each list.

    Raise InputError for a metric that no experiment has.
    """
    diff = diff_without_lists(store, figures, metrics)
    listed = metrics or [one.metric for one in diff.counts if one.metric not in MEASURES]
    wanted = ChangeFilter(metrics=listed, changes=LISTED)
    return replace(diff, lists=change_lists(store, figures.compared, wanted, limit=limit) if listed else [])


def diff_without_lists(store: Store, figures: ComparedFigures, metrics: Sequence[str] = ()) -> ExperimentsDiff:
    """Return the same without lists of examples, which take as long as all else."""
    compared = figures.compared
    baseline, *candidates = overviews_of(store, compared.experiment_ids)
    names = names_apart(store, {one.experiment_id: one.target for one in (baseline, *candidates)})
    results = compared_results(store, figures, names)
    check_metrics(metrics, [result.metric for result in results if result.has_rows])
    return ExperimentsDiff(
        baseline=baseline,
        candidates=candidates,
        names=names,
        where=figures.chosen.where if figures.chosen else None,
        n_compared=figures.n_compared,
        results=[result for result in results if not metrics or result.metric in metrics],
        notes=[note for note in figures.notes if not metrics or note.metric is None or note.metric in metrics],
        counts=[one for one in change_counts(store, compared) if not metrics or one.metric in metrics],
        lists=[],
        searches=figures.searches,
    )


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
    verdicts = {(one.candidate_experiment_id, one.metric): one for one in figures.verdicts}
    results = [
        replace(
            result,
            target=names[result.experiment_id],
            **_against(result, verdicts.get((result.experiment_id, result.metric)), baseline, names[baseline]),
        )
        for result in results_of(store, figures.compared.experiment_ids)
    ]
    return results if figures.chosen is None else on_chosen(store, results, figures.chosen)


def _against(result: Result, verdict: VerdictRow | None, baseline_id: str, baseline: str) -> dict[str, Any]:
    """The fields of a result about its difference from the baseline; None without a verdict.

    A result without one in its own run either has the reason why its mean has no interval, which stays.
    """
    if verdict is None:
        own = {"reason": result.reason, "reason_code": result.reason_code} if result.conclusion is None else {}
        return {**dict.fromkeys(("baseline_experiment_id", "baseline", *VERDICT_FIELDS)), **own}
    against = {name: getattr(verdict, field) for name, field in VERDICT_FIELDS.items()}
    return {"baseline_experiment_id": baseline_id, "baseline": baseline, **against}


_JSON = ("inputs", "reference_outputs", "outputs", "baseline_outputs")


def diff_document(diff: ExperimentsDiff) -> Document:
    """Return a diff as one object, with null for what is missing."""
    targets = {one.experiment_id: one.target for one in (diff.baseline, *diff.candidates)}
    content: Document = {
        "baseline": asdict(diff.baseline),
        "candidates": [asdict(one) for one in diff.candidates],
        "where": diff.where,
        "n_compared": diff.n_compared,
        "metrics": [metric_document(result, targets) for result in diff.results if result.has_rows],
        "notes": [asdict(note) for note in diff.notes],
        "changes": [asdict(count) for count in diff.counts],
        "examples": [_list(one) for one in diff.lists],
        "sentences": diff.sentences,
        "slices": [asdict(search) for search in diff.searches],
    }
    return plain(content)  # type: ignore[no-any-return]


def _list(changes: ChangeList) -> Document:
    fields = ("candidate_experiment_id", "change", "count")
    return {**{name: getattr(changes, name) for name in fields}, "examples": [example(one) for one in changes.examples]}


def example(change: ExampleChange) -> Document:
    """Return a change with its texts as the values that they are."""
    return {**asdict(change), **{name: from_json(getattr(change, name)) for name in _JSON}}


Part = Literal["same", "removed", "added", "cut"]

MAX_CHARACTERS = 20_000
"""Characters of each text that are compared. Of two texts of this length, all words different, it takes 0.1 s."""

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_SENTENCES = re.compile(r"(?:[^.!?\n]|[.!?](?=\S))*(?:[.!?]\s*|\n\s*|$)", re.DOTALL)
LEAST_SAME = 0.4
"""The least share of a text's characters that both have, for its words to be compared."""


WordDiff = list[tuple[Part, str]]


def word_diff(old: str, new: str, most: int = MAX_CHARACTERS) -> WordDiff:
    """Return the parts of two texts in order: `same` in both, `removed` from the old one, or `added` by the new one.

    Sentences are compared first, then within those that differ words, spaces and punctuation marks. Longer texts are
    compared up to `most` characters; a last part `cut` then says how many characters of each are not shown.
    """
    pieces = [
        piece
        for is_same, was, now in _aligned(_SENTENCES.findall(old[:most]), _SENTENCES.findall(new[:most]))
        for piece in ([(True, was, now)] if is_same else _aligned(_TOKENS.findall(was), _TOKENS.findall(now)))
    ]
    parts: WordDiff = []
    for is_same, group in groupby(_with_rewritten_phrases(pieces), key=lambda piece: piece[0]):
        removed, added = map("".join, zip(*((was, now) for _, was, now in group), strict=True))
        parts += [("same", removed)] if is_same else [("removed", removed), ("added", added)]
    cut = [f"{len(text) - most:,} of the {side}" for side, text in (("old", old), ("new", new)) if len(text) > most]
    ending: WordDiff = [("cut", f" … {' and '.join(cut)} text's characters are not compared")] if cut else []
    return [*(part for part in parts if part[1]), *ending]


def _aligned(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Yield runs of pieces that are the same in both lists, or differ, in turn."""
    for is_same, codes in groupby(Indel.opcodes(old, new), key=lambda code: code.tag == "equal"):
        pieces = [(old[one.src_start : one.src_end], new[one.dest_start : one.dest_end]) for one in codes]
        was, now = ("".join(chain.from_iterable(side)) for side in zip(*pieces, strict=True))
        yield is_same, was, now


def has_much_in_common(parts: WordDiff) -> bool:
    """Whether the words that differ are worth marking: of texts with little in common, nearly all would be."""
    sizes = {kind: sum(len(text) for part, text in parts if part == kind) for kind in ("same", "removed", "added")}
    return sizes["same"] >= LEAST_SAME * (sizes["same"] + max(sizes["removed"], sizes["added"]))


def _with_rewritten_phrases(pieces: Sequence[tuple[bool, str, str]]) -> Iterator[tuple[bool, str, str]]:
    """Count spaces between two changes as changed, so that a rewritten phrase is one change and not one a word."""
    for place, (is_same, old, new) in enumerate(pieces):
        yield is_same and not (old.isspace() and 0 < place < len(pieces) - 1), old, new


def with_context(parts: WordDiff, around: int = 60) -> WordDiff:
    """Shorten what is the same to `around` characters before and after each change; without a change, to the first."""
    out: WordDiff = []
    for place, (kind, text) in enumerate(parts):
        before, after = around * (place > 0), around * (place < len(parts) - 1)
        if kind == "same" and len(text) > before + after + 3 and (before or after):
            text = f"{text[:before]} … {text[len(text) - after :] if after else ''}"
        out.append((kind, text))
    return out


HEADINGS: dict[Change, str] = {
    "regressed": "regressed",
    "improved": "improved",
    "flipped": "flipped under the same version",
    "changed": "other labels",
    "missing": "missing on a side",
    "same": "the same",
    "not_applicable": "not applicable",
}

NO_ANSWER = "(no answer)"

MOST_SHOWN = 600
"""Characters of an answer that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersApart:
    """The answers of both sides, each in parts: what both have, and what only it has."""

    baseline: WordDiff
    candidate: WordDiff


def answers_apart(change: ExampleChange, most: int = MOST_SHOWN) -> AnswersApart:
    """Return both answers with the words that differ, around which at most `most` characters of each are kept."""
    if change.outputs is None or change.baseline_outputs is None:
        sides = (change.baseline_outputs, change.outputs)
        baseline, candidate = (NO_ANSWER if side is None else plain_text(side) for side in sides)
        return AnswersApart(
            baseline=_clipped([("same", baseline)], most), candidate=_clipped([("same", candidate)], most)
        )
    parts = with_context(word_diff(plain_text(change.baseline_outputs), plain_text(change.outputs)))
    return AnswersApart(
        baseline=_clipped([part for part in parts if part[0] != "added"], most),
        candidate=_clipped([part for part in parts if part[0] != "removed"], most),
    )


def _clipped(parts: WordDiff, most: int) -> WordDiff:
    out: WordDiff = []
    for kind, text in parts:
        if len(text) > most:
            return [*out, (kind, text[:most]), ("same", " …")]
        out.append((kind, text))
        most -= len(text)
    return out


def heading(diff: ExperimentsDiff, changes: ChangeList) -> str:
    """Return what the examples of a list have in common, and how many there are."""
    baseline = diff.names[diff.baseline.experiment_id]
    shown = f"{len(changes.examples)} of " if 0 < len(changes.examples) < changes.count else ""
    return (
        f"{HEADINGS[changes.change]}: {diff.names[changes.candidate_experiment_id]} against {baseline}, "
        f"{shown}{changes.count} example{'s' * (changes.count != 1)}"
    )


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


def remarks(change: ExampleChange) -> Iterator[tuple[str, str]]:
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
    names = {one.experiment_id: diff.names[one.experiment_id] for one in diff.candidates}
    if diff.where is not None:
        counts = ", ".join(f"{n} in {names[owner]}" for owner, n in diff.n_compared.items())
        total = counts if len({*diff.n_compared.values()}) > 1 else str(next(iter(diff.n_compared.values())))
        out.append(f"only the examples where {diff.where} are compared: {total}")
    by_text: dict[str, list[str]] = {}
    for note in diff.notes:
        by_text.setdefault(note.text, []).append(names[note.candidate_experiment_id])
    several = len(names) > 1
    out += [f"{', '.join(owners)}: {text}" if several else text for text, owners in by_text.items()]
    return out


def diff_markdown(diff: ExperimentsDiff) -> str:
    """Return the table, what else differs, cost and latency, and the examples that changed."""
    candidates = ", ".join(diff.names[one.experiment_id] for one in diff.candidates)
    header = ("metric", "system", "mean", "interval", "difference", "p adjusted", "verdict", "missing")
    differences = differences_in(diff.results)
    return "\n\n".join(
        part
        for part in (
            f"# {escaped(candidates)} against {escaped(diff.names[diff.baseline.experiment_id])}",
            _bullets([*diff.sentences, *notes_of(diff)]),
            markdown_table(header, [_cells(one, differences) for one in diff.results if one.is_worth_showing]),
            markdown_table(_OF_EXPERIMENTS, [_experiment(diff, one) for one in (diff.baseline, *diff.candidates)]),
            *(
                part
                for search in diff.searches
                for part in (
                    escaped(diff.search_text(search)),
                    markdown_table(SLICE_COLUMNS, [slice_cells(one) for one in search.found]) if search.found else "",
                )
            ),
            *([_markdown_list(diff, changes) for changes in diff.lists] or [no_examples(diff)]),
        )
        if part
    )


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _cells(result: Result, differences: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    difference = ", ".join(differences[result.experiment_id, result.metric])
    figures = [result.mean_text, result.interval_text, difference, result.p_adjusted_text]
    return [result.metric, result.target, *figures, result.verdict_text, str(result.missing)]


_OF_EXPERIMENTS = ("system", "experiment", "state", "answered", "mean latency (s)", "cost (USD)")


def _experiment(diff: ExperimentsDiff, one: ExperimentOverview) -> list[str]:
    latency = "" if one.mean_latency_s is None else f"{one.mean_latency_s:.2f}"
    cost = "unknown" if one.cost_usd is None or one.unrecorded else usd(one.cost_usd)
    name = diff.names[one.experiment_id]
    return [name, one.experiment_id, one.state, f"{one.answered} of {one.planned}", latency, cost]


def _markdown_list(diff: ExperimentsDiff, changes: ChangeList) -> str:
    return "\n\n".join([f"## {escaped(heading(diff, changes))}", *map(_example, changes.examples)])


def _example(change: ExampleChange) -> str:
    answers = answers_apart(change)
    lines = [
        f"**{escaped(change.example_id)}** {escaped(values_text(change))}",
        f"- question: {escaped(plain_text(change.inputs)[:MOST_CHARACTERS])}",
        f"- baseline: {_marked(answers.baseline)}",
        f"- answer: {_marked(answers.candidate)}",
        *(f"- {name}: {escaped(text[:MOST_CHARACTERS])}" for name, text in remarks(change)),
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _marked(parts: WordDiff) -> str:
    """Mark what was removed and added. Markdown's own marks would not hold between a word and a punctuation mark."""
    return "".join(_MARKS.get(kind, "{}").format(_spaced(text)) for kind, text in parts)


_MARKS = {"removed": "<del>{}</del>", "added": "<ins>{}</ins>"}


def _spaced(text: str) -> str:
    """Escape a part of a text, which drops the spaces at its ends, and put them back."""
    words = text.strip()
    begin, end = text[:1].isspace(), text[-1:].isspace() and bool(words)
    return f"{' ' * begin}{escaped(words)}{' ' * end}"
