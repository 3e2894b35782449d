"""Candidates against a baseline: figures, what else differs, and what changed example by example, in words, as
Markdown, and as the document of `evalflows diff --format json`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeVar, get_args

from rapidfuzz.distance import Indel

from evalflows.reports.formats import MOST_CHARACTERS, escaped, markdown_table
from evalflows.reports.pages_as_text import Document, ExperimentOverview, metric_document, overviews, plain
from evalflows.reports.results import (
    VERDICT_FIELDS,
    ChosenExamples,
    Result,
    names_apart,
    on_chosen,
    results_of,
    sentences,
)
from evalflows.reports.worst import plain_text, value_text
from evalflows.specs.errors import MEASURES, InputError, names_to_choose
from evalflows.store.layout import quoted
from evalflows.store.records import VerdictRow, from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

Change = Literal["improved", "regressed", "same", "flipped", "changed", "missing", "not_applicable"]
"""How a candidate's value of an example differs from the baseline's.

`flipped`: it differs although target, application and evaluator have the same version on both sides. `changed`: the
labels differ, of which none is better. `missing`: a repetition of a side failed or was not attempted.
`not_applicable`: a side has no score because it needs none, or was not sampled.
"""

CHANGES: tuple[Change, ...] = get_args(Change)

Sort = Literal["worst", "best", "position"]
ORDERS: Mapping[Sort, str] = {
    "worst": "relative_gain nulls last, position, metric, candidate_experiment_id",
    "best": "relative_gain desc nulls last, position, metric, candidate_experiment_id",
    "position": "position, example_id, metric, candidate_experiment_id",
}

WITHOUT_TEXTS = (
    *("candidate_experiment_id", "metric", "example_id", "position", "change", "gain", "value", "baseline_value"),
    *("label", "baseline_label", "missing", "baseline_missing"),
)
"""The columns of a change that are read for all examples; texts are read for those that are shown."""

OF_RUN = ("outputs", "comment", "error")

SELECTED = """
select {columns} from changes_between({candidate}, {baseline})
where is_one_of(candidate_experiment_id, $1)
      and ($2 is null or (candidate_experiment_id, example_id) in (select (unnest($2), unnest($3))))
"""
"""$1: all experiments; $2 and $3: candidates and examples that count, pair by pair, or null."""


def all_changes(baseline: str, candidates: Sequence[str]) -> str:
    """Return the query of all changes. DuckDB opens only the files of experiments whose ids are constants."""
    parts = (
        SELECTED.format(columns=", ".join(WITHOUT_TEXTS), candidate=quoted(one), baseline=quoted(baseline))
        for one in candidates
    )
    return "union all".join(parts)


def counts_query(changes: str) -> str:
    """Return the query of counts by metric and candidate, of a query of changes."""
    counts = ", ".join(f"count(*) filter (change = '{one}')" for one in CHANGES)
    return f"""
select candidate_experiment_id, metric, {counts} from ({changes}) group by candidate_experiment_id, metric
order by metric, list_position($1, candidate_experiment_id)
"""


def wanted_query(changes: str) -> str:
    """Return the query of some changes. $4: metrics, $5: changes, $6: candidates, each empty for all; $7: whether each
    example that changed in one way is wanted only once."""
    return f"""
select * from (
    select *, gain / nullif(max(abs(gain)) over (partition by metric), 0) as relative_gain from ({changes})
)
where (len($4) = 0 or list_contains($4, metric)) and (len($5) = 0 or list_contains($5, change))
      and (len($6) = 0 or list_contains($6, candidate_experiment_id))
qualify not $7 or row_number() over (partition by candidate_experiment_id, change, example_id
                                     order by abs(relative_gain) desc nulls last, metric) = 1
"""


def page_query(changes: str, sort: Sort) -> str:
    """Return the query of one page of some changes, each after how many there are. $8: limit, $9: offset."""
    columns = ", ".join(WITHOUT_TEXTS)
    return (
        f"select count(*) over (), {columns} from ({wanted_query(changes)}) order by {ORDERS[sort]} limit $8 offset $9"
    )


def lists_query(changes: str) -> str:
    """Return the query of the first $8 changes of each candidate and kind, each after how many there are."""
    order = "case change when 'improved' then -relative_gain else relative_gain end nulls last, position"
    of_list = "partition by candidate_experiment_id, change"
    return f"""
select count(*) over ({of_list}), {", ".join(WITHOUT_TEXTS)} from ({wanted_query(changes)})
qualify row_number() over ({of_list} order by {order}) <= $8
order by list_position($1, candidate_experiment_id), list_position($5, change), {order}
"""


EXAMPLES_SHOWN = """
with wanted as (
    select unnest($1) as experiment_id, unnest($2) as metric, unnest($3) as example_id, unnest($4) as sign,
           unnest(range(len($1))) as place
), sides as (
    select place, false as is_baseline, experiment_id, metric, example_id, sign from wanted
    union all select place, true, $5, metric, example_id, -sign from wanted
), shown as (
    select s.place, s.is_baseline,
           first({'run_id': v.run_id, 'comment': v.comment, 'error': v.error} order by
               v.status in ('failed', 'not_attempted') desc, s.sign * v.value desc nulls last, v.repetition) as run
    from sides s join run_values v using (experiment_id, metric, example_id)
    group by s.place, s.is_baseline
)
select place, is_baseline, o.outputs::varchar, run.comment, coalesce(run.error, o.error)
from shown left join outputs o on o.run_id = run.run_id
    and (o.experiment_id = $5 or list_contains($1, o.experiment_id))
"""

TEXTS = """
select distinct e.experiment_id, x.example_id, x.inputs::varchar, x.reference_outputs::varchar
from experiments e join examples x using (snapshot_id)
where is_one_of(e.experiment_id, $1) and list_contains($2, x.example_id)
"""


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedExperiments:
    """Which experiments are compared, by id, and on which examples."""

    baseline_experiment_id: str
    candidate_experiment_ids: Sequence[str]
    chosen: Mapping[str, Sequence[str]] | None = None  # the examples that count, by candidate; None: all shared ones

    @property
    def experiment_ids(self) -> list[str]:
        """The baseline's, then the candidates'."""
        return [self.baseline_experiment_id, *self.candidate_experiment_ids]

    @property
    def query(self) -> str:
        """The query of all changes."""
        return all_changes(self.baseline_experiment_id, self.candidate_experiment_ids)

    @property
    def parameters(self) -> list[object]:
        """The values of $1 to $3 in it."""
        pairs = [(one, example) for one, examples in (self.chosen or {}).items() for example in examples]
        chosen = [[pair[place] for pair in pairs] for place in (0, 1)] if self.chosen is not None else [None, None]
        return [self.experiment_ids, *chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """How many shared examples changed in which way, by one metric of one candidate."""

    candidate_experiment_id: str
    metric: str
    improved: int
    regressed: int
    same: int
    flipped: int
    changed: int
    missing: int
    not_applicable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleChange:
    """One metric of one example in a candidate and the baseline. Values are means over repetitions.

    Of several repetitions, the texts are those of the candidate's worst run and the baseline's best if it got worse, of
    the candidate's best and the baseline's worst if it got better; of a missing run first.
    """

    candidate_experiment_id: str
    metric: str
    example_id: str
    position: int  # in the candidate's dataset
    change: Change
    gain: float | None  # in the metric's unit; positive is better. None without two numbers
    value: float | None
    baseline_value: float | None
    label: str | None
    baseline_label: str | None
    missing: int  # repetitions that failed or were not attempted
    baseline_missing: int
    inputs: str = "{}"  # JSON, as are references and outputs
    reference_outputs: str | None = None
    outputs: str | None = None
    baseline_outputs: str | None = None
    comment: str | None = None
    baseline_comment: str | None = None
    error: str | None = None
    baseline_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeList:
    """The examples of a candidate that changed in one way, those that changed most first, each once."""

    candidate_experiment_id: str
    change: Change
    count: int  # of all such examples
    examples: Sequence[ExampleChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Which changes are wanted. Empty: all."""

    metrics: Sequence[str] = ()
    changes: Sequence[Change] = ()
    candidates: Sequence[str] = ()
    once: bool = False  # each example that changed in one way only by the metric that changed most

    @property
    def parameters(self) -> list[object]:
        """The values of $4 to $7 in `wanted_query`."""
        return [list(self.metrics), list(self.changes), list(self.candidates), self.once]


def change_counts(store: Store, compared: ComparedExperiments) -> list[ChangeCounts]:
    """Return the counts of each metric that both sides have, by metric, then in the candidates' order."""
    (rows,) = ask(store, (counts_query(compared.query), compared.parameters))
    return _rows(ChangeCounts, rows)


def changed_examples(
    store: Store,
    compared: ComparedExperiments,
    wanted: ChangeFilter,
    *,
    sort: Sort = "worst",
    limit: int | None = None,
    offset: int = 0,
) -> list[ExampleChange]:
    """Return one page of the changes, with texts. Across metrics, gains are relative to the metric's largest."""
    query = page_query(compared.query, sort)
    rows = _read(store, compared, query, [*compared.parameters, *wanted.parameters, limit, offset])
    return [one for _, one in rows]


def count_changes(store: Store, compared: ComparedExperiments, wanted: ChangeFilter) -> int:
    """Return how many rows all pages of these changes have."""
    query = f"select count(*) from ({wanted_query(compared.query)})"
    (rows,) = ask(store, (query, [*compared.parameters, *wanted.parameters]))
    return int(rows[0][0])


def change_lists(store: Store, compared: ComparedExperiments, wanted: ChangeFilter, *, limit: int) -> list[ChangeList]:
    """Return the changed examples of each candidate by kind, in the order of `wanted.changes`, at most `limit` each."""
    counts: dict[tuple[str, Change], int] = {}
    lists: dict[tuple[str, Change], list[ExampleChange]] = {}
    values = [*compared.parameters, *replace(wanted, once=True).parameters, max(limit, 1)]
    for count, one in _read(store, compared, lists_query(compared.query), values):
        counts[one.candidate_experiment_id, one.change] = count
        lists.setdefault((one.candidate_experiment_id, one.change), []).append(one)
    return [
        ChangeList(candidate_experiment_id=owner, change=change, count=count, examples=lists[owner, change][:limit])
        for (owner, change), count in counts.items()
    ]


def _read(
    store: Store, compared: ComparedExperiments, query: str, values: Sequence[object]
) -> list[tuple[int, ExampleChange]]:
    """Return rows of `(count, change)`, with texts, from one state of the store."""

    def read() -> list[tuple[int, ExampleChange]]:
        (rows,) = ask(store, (query, values))
        page = [ExampleChange(**dict(zip(WITHOUT_TEXTS, row[1:], strict=True))) for row in rows]
        changes = _with_texts(store, compared.baseline_experiment_id, page) if page else []
        return [(row[0], one) for row, one in zip(rows, changes, strict=True)]

    return store.steady(read)


def _with_texts(store: Store, baseline: str, page: Sequence[ExampleChange]) -> list[ExampleChange]:
    """Add the question, and what both sides answered and were told."""
    ids, metrics, examples = (
        [getattr(one, name) for one in page] for name in ("candidate_experiment_id", "metric", "example_id")
    )
    signs = [1.0 if (one.value or 0) > (one.baseline_value or 0) else -1.0 for one in page]  # as it moved
    rows, texts = ask(store, (EXAMPLES_SHOWN, [ids, metrics, examples, signs, baseline]), (TEXTS, [ids, examples]))
    shown = {(place, is_baseline): dict(zip(OF_RUN, row, strict=True)) for place, is_baseline, *row in rows}
    of_example: dict[tuple[str, str], Any] = {(owner, example): row for owner, example, *row in texts}
    out = []
    for place, one in enumerate(page):
        inputs, reference = of_example[one.candidate_experiment_id, one.example_id]
        baselines = {f"baseline_{name}": text for name, text in shown.get((place, True), {}).items()}
        sides = {**shown.get((place, False), {}), **baselines}
        out.append(replace(one, inputs=inputs, reference_outputs=reference, **sides))
    return out


def _rows(record: type[Row], rows: Sequence[Sequence[Any]]) -> list[Row]:
    names: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined]  # each is a dataclass with slots
    return [record(**dict(zip(names, row, strict=True))) for row in rows]


LISTED: tuple[Change, ...] = ("regressed", "improved", "flipped", "changed", "missing")
"""The changes of which examples are listed, in this order."""

METRICS_SHOWN = 5
"""Examples of each list, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something else that differs between a candidate and the baseline."""

    candidate_experiment_id: str
    what: str  # examples, repetitions, target, state, evaluator, sample, judge, commit
    metric: str | None  # None: it concerns all metrics
    text: str
    refuses: bool  # whether it makes the metric incomparable


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigures:
    """What the analysis says of candidates and their baseline."""

    compared: ComparedExperiments
    verdicts: Sequence[VerdictRow]
    notes: Sequence[Note]
    n_compared: Mapping[str, int]  # examples that both sides have, and that count, by candidate
    chosen: ChosenExamples | None = None  # None: all examples count


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

    @property
    def run_groups(self) -> dict[str, str]:
        """The run group of each experiment, by its id."""
        return {one.experiment_id: one.run_group for one in (self.baseline, *self.candidates)}

    @property
    def sentences(self) -> list[str]:
        return sentences(self.results)


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
    baseline, *candidates = overviews(store, _IN_ORDER, [compared.experiment_ids])
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


_IN_ORDER = "is_one_of(experiment_id, $1) order by list_position($1, experiment_id)"


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

WordDiff = list[tuple[Part, str]]


def word_diff(old: str, new: str, most: int = MAX_CHARACTERS) -> WordDiff:
    """Return the parts of two texts in order: `same` in both, `removed` from the old one, or `added` by the new one.

    Words, spaces and punctuation marks are compared whole. Longer texts are compared up to `most` characters; a last
    part `cut` then says how many characters of each are not shown.
    """
    before, after = _TOKENS.findall(old[:most]), _TOKENS.findall(new[:most])
    pieces = [
        (
            code.tag == "equal",
            "".join(before[code.src_start : code.src_end]),
            "".join(after[code.dest_start : code.dest_end]),
        )
        for code in Indel.opcodes(before, after)
    ]
    parts: WordDiff = []
    for is_same, group in groupby(_with_rewritten_phrases(pieces), key=lambda piece: piece[0]):
        removed, added = map("".join, zip(*((was, now) for _, was, now in group), strict=True))
        parts += [("same", removed)] if is_same else [("removed", removed), ("added", added)]
    cut = [f"{len(text) - most:,} of the {side}" for side, text in (("old", old), ("new", new)) if len(text) > most]
    ending: WordDiff = [("cut", f" … {' and '.join(cut)} text's characters are not compared")] if cut else []
    return [*(part for part in parts if part[1]), *ending]


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
    was = change.baseline_label or value_text(change.baseline_value, change.baseline_missing, change.metric)
    now = change.label or value_text(change.value, change.missing, change.metric)
    return f"{change.metric}: was {was}, now {now}"


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
    return "\n\n".join(
        part
        for part in (
            f"# {escaped(candidates)} against {escaped(diff.names[diff.baseline.experiment_id])}",
            _bullets([*diff.sentences, *notes_of(diff)]),
            markdown_table(header, [_cells(result) for result in diff.results if result.is_worth_showing]),
            markdown_table(_OF_EXPERIMENTS, [_experiment(diff, one) for one in (diff.baseline, *diff.candidates)]),
            *([_markdown_list(diff, changes) for changes in diff.lists] or [no_examples(diff)]),
        )
        if part
    )


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _cells(result: Result) -> list[str]:
    figures = [result.mean_text, result.interval_text, result.difference_text, result.p_adjusted_text]
    return [result.metric, result.target, *figures, result.verdict_text, str(result.missing)]


_OF_EXPERIMENTS = ("system", "experiment", "state", "answered", "mean latency (s)", "cost (USD)")


def _experiment(diff: ExperimentsDiff, one: ExperimentOverview) -> list[str]:
    latency = "" if one.mean_latency_s is None else f"{one.mean_latency_s:.2f}"
    cost = "unknown" if one.cost_usd is None else f"{one.cost_usd:.4f}"
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
