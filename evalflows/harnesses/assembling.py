"""Results, the answers of systems to examples with scores, from rows: whatever the format, its reader yields rows with
the columns that tables have."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from math import inf, isfinite, isinf, nan
from typing import Any

from evalflows.specs.errors import InputError, short
from evalflows.specs.escaping import joined, json_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.values import identifier, is_blank

COLUMNS: Mapping[str, Sequence[str]] = {
    "id": ("id", "example_id", "sample_id", "item_id", "case_id", "test_id", "question_id", "instance_id", "doc_id"),
    "system": ("system", "model", "provider", "experiment"),
    "repetition": ("repetition", "epoch", "repeat", "trial", "attempt"),
    "inputs": ("inputs", "input", "question", "user_input", "query", "prompt", "instruction", "messages"),
    "reference": ("reference_outputs", "reference", "expected_output", "expected", "target", "targets", "ground_truth"),
    "output": ("outputs", "output", "actual_output", "response", "answer", "prediction", "predictions", "completion"),
    "error": ("error", "error_message"),
}
"""Which columns hold a field of a result; the first that has a value does. `scores` and `metadata` are mappings."""

WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(("", "n/a", "na", "null", "none", "nan", "-"), nan)}
"""Scores that are texts; NaN if they are missing."""

LONGEST = 120  # in characters: of longer inputs, an id has the beginning and a hash

Row = Mapping[str, Any]


class Several(tuple[Any, ...]):
    """Scores of one name that an answer has, such as those of its steps. Their mean counts; if they differ, a note says
    so."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A system's answer to an example, one of its repetitions."""

    example_id: str
    number: int = 0  # its place in the file, from 1
    repetition: int = 0
    inputs: Any = None  # as the file has them; None if it does not
    reference: Any = None
    output: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)  # what clusters and slices can name
    scores: Mapping[str, float | None] = field(default_factory=dict)  # by metric; None if it is missing
    error: str | None = None  # why scores are missing
    reasons: Mapping[str, str] = field(default_factory=dict)  # the same of single metrics

    @property
    def has_failed(self) -> bool:
        """Whether an error is all that it has."""
        return self.error is not None and all(score is None for score in self.scores.values())

    def why_missing(self, metric: str) -> str:
        """Return why a score that is None is missing."""
        return self.reasons.get(metric) or self.error or "the file has no score"


@dataclass(frozen=True, kw_only=True)
class SystemResults:
    """What a file says of one system."""

    source: str  # the file, as it was given
    format: str  # its name for people, such as "promptfoo"
    system: str  # a provider, a model, a run; empty if the file does not say it
    rows: Sequence[ResultRow]
    broken_off: str | None = None  # why the run that wrote it did not finish
    pages: frozenset[int] = frozenset({1})  # which it has of those in which a platform answers
    n_pages: int = 1
    repeats: bool = False  # as of its format
    notes: Sequence[str] = ()  # what to say of its scores

    @property
    def unfinished(self) -> str | None:
        """Why these are not all results; None if they are."""
        lacks = len(self.pages) < self.n_pages
        return self.broken_off or (f"{len(self.pages)} of {self.n_pages} pages were given" if lacks else None)

    @cached_property
    def metrics(self) -> Sequence[str]:
        found: dict[str, object] = {}
        for row in self.rows:
            found.update(row.scores)
        return [*found]


class NoResultsError(InputError):
    """A file that is no file of results: in a folder, it is left out."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of result files."""

    title: str  # for people
    marks: str  # it is recognised by the fields of its first object, as `has` takes them
    read: Callable[[Any, str], Iterable[Row]]  # from the file's content and its name
    repeats: bool = False  # whether rows of one id are its repetitions, though nothing counts them
    is_sparse: bool = False  # whether a metric that a row does not name was not asked of it


def rows_in(content: Any) -> list[Row]:
    """Return the rows of a file, none if its content is anything else. An object is one line of JSON lines."""
    rows = content if isinstance(content, list) else [content]
    return rows if all(isinstance(row, Mapping) for row in rows) else []


def has(content: Any, marks: str) -> bool:
    """Return whether the first row of a file has all the columns between two bars, such as `a b | c d`."""
    rows = rows_in(content)
    return bool(rows) and any(rows[0].keys() >= {*names.split()} for names in marks.split("|"))


def at(value: Any, *names: str) -> Any:
    """Return what stands under names within each other; None if there is nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def first(row: Row, names: Iterable[str]) -> Any:
    """Return the first value of these columns that is not missing."""
    for name in names:
        if not is_blank(value := row.get(name)):
            return value
    return None


def flattened(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores in which one that is a mapping or a list is several, such as `style.tone`."""
    flat: dict[str, Any] = {}
    for name, value in scores.items():
        if value is None or isinstance(value, (str, float, int)):  # most are
            flat[name] = value
            continue
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        flat |= {f"{name}.{key}": each for key, each in inner.items()} if isinstance(inner, Mapping) else {name: value}
    return flat


def number(value: Any, *where: str) -> float | None:
    """Return a score as a number, None if it is missing: null, NaN or a word for it. True is 1, false 0, also as text.

    Raise InputError for other texts, and for what is not finite.
    """
    try:
        found = nan if value is None else float(value)
    except (ValueError, TypeError, OverflowError):
        found = WORDS.get(value.strip().lower(), inf) if isinstance(value, str) else inf
    if isfinite(found):
        return found
    if isinf(found):
        raise InputError(f"{': '.join(where)}: got {short(value)}, wanted a finite number, true, false or null")
    return None


def _reasons(given: Row, scores: Mapping[str, float | None]) -> dict[str, str]:
    """Return why scores are missing of which a file says it by a word in their place, such as `N/A`."""
    missing = [name for name, score in scores.items() if score is None and not is_blank(given[name])]
    return {name: f"the file has {short(given[name])}" for name in missing}


def with_columns(system: SystemResults, wanted: Collection[str]) -> SystemResults:
    """Return results in which those columns of the file that are wanted as metrics are.

    Raise InputError for a text in them.
    """
    known = {*system.metrics}
    names = [name for name in {name: 0 for row in system.rows for name in row.fields} if kept_apart(name) in wanted]
    if not (names := [name for name in names if name not in known]):
        return system
    rows = []
    for row in system.rows:
        where = f"{system.source}: result {row.number}"
        given = {name: row.fields.get(name) for name in names}
        scores = {name: None if row.error else number(value, where, name) for name, value in given.items()}
        reasons = row.reasons if row.error else {**row.reasons, **_reasons(given, scores)}
        rows.append(replace(row, scores={**row.scores, **scores}, reasons=reasons))
    return replace(system, rows=rows)


def assembled(rows: Sequence[Row], kind: Format, source: str) -> Iterator[SystemResults]:
    """Yield the results of each system. A row with an error has no scores, whatever harnesses write in their place.

    Raise InputError for an answer without an id, or with that of another.
    """
    systems: dict[str, dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    mixed: dict[str, Counter[str]] = defaultdict(Counter)  # by system and metric: answers with different scores
    known = {*chain.from_iterable(rows)}  # most files have few of the columns
    columns = {field: own for field, names in COLUMNS.items() if (own := [name for name in names if name in known])}
    nothing, others = dict.fromkeys(COLUMNS), columns.get("id", [])[1:]
    for index, row in enumerate(rows, start=1):
        where = f"{source}: result {index}"
        found = nothing | {field: first(row, names) for field, names in columns.items()}
        system, count = str(found.pop("system") or ""), found.pop("repetition")
        found["error"] = _error(found["error"])
        answers = systems[system]
        identity = identifier(found.pop("id"), f"{where}: id") or _of_inputs(found["inputs"], where)
        repetition = int(number(count, where, "repetition") or 0)
        while count is None and kind.repeats and (identity, repetition) in answers:
            repetition += 1
        new = {"scores": {}, "fields": {}, "reasons": {}, "number": index}
        answer = answers.setdefault((identity, repetition), new)
        scores, metadata = flattened(row.get("scores") or {}), row.get("metadata")
        if scores.keys() & answer["scores"].keys():
            of = "" if count is None else f" in repetition {count}"
            counted = ", or a column repetition" if count is None else ""
            raise InputError(f"{where}: got the id {short(identity)} twice{of}, wanted it once{counted}")
        for name, score in scores.items():
            if isinstance(score, Several):
                scores[name], are_different = _mean(score, where, name)
                mixed[system][name] += are_different
        numbers = {name: None if found["error"] else number(score, where, name) for name, score in scores.items()}
        answer["scores"] |= numbers
        answer["reasons"] |= row.get("reasons") or ({} if found["error"] else _reasons(scores, numbers))
        answer["fields"] |= metadata if isinstance(metadata, Mapping) else {}
        answer |= {field: value for field, value in found.items() if value is not None}
    lowest, broken_off = min(key[1] for answers in systems.values() for key in answers), at(rows[0], "unfinished")
    page, n_pages = rows[0].get("of_pages") or (1, 1)
    left_out = dict.fromkeys(name for row in rows for name in row.get("left_out") or ())
    said = [f"{source}: {', '.join(left_out)}: left out, having no numbers"] if left_out else []
    for system, answers in systems.items():
        missing = {} if kind.is_sparse else dict.fromkeys(name for each in answers.values() for name in each["scores"])
        complete = [
            ResultRow(example_id=identity, repetition=count - lowest, **each | {"scores": missing | each["scores"]})
            for (identity, count), each in answers.items()
        ]
        yield SystemResults(
            source=source,
            format=kind.title,
            system=system,
            rows=complete,
            broken_off=broken_off,
            pages=frozenset({page}),
            n_pages=n_pages,
            repeats=kind.repeats,
            notes=said + [f"{source}: {note}" for note in _notes(complete, +mixed[system], others)],
        )


def _notes(rows: Sequence[ResultRow], mixed: Mapping[str, int], other_ids: Iterable[str]) -> Iterator[str]:
    """Say of which metrics the mean of different scores counts, and which other ids examples share, as repetitions with
    ids of their own do."""
    for name, n in mixed.items():
        yield f"{name}: in {n} of {len(rows)} answers, scores of this name differ: their mean counts"
    for name in other_ids:
        by_example = {row.example_id: row.fields.get(name) for row in rows}
        values = [json_text(value) for value in by_example.values() if not is_blank(value)]
        if len({*values}) < len(values):
            yield (
                f"{name}: {len(values)} examples have {len({*values})} values: they count as independent without "
                f"--cluster {name}"
            )


def _error(value: Any) -> str | None:
    """Return why an answer failed, as a text; None for false, a number, or a word for nothing."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if value is None or is_number or WORDS.get(str(value).strip().lower(), 1.0) != 1.0 else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, sort_keys=True)


def _mean(scores: Several, *where: str) -> tuple[float | None, bool]:
    """Return the mean of scores that are not missing, None without one, and whether the scores differ."""
    numbers = [number(score, *where) for score in scores]
    given = [score for score in numbers if score is not None]
    return sum(given) / len(given) if given else None, len({*numbers}) > 1


def joined_systems(found: Iterable[SystemResults]) -> list[SystemResults]:
    """Return results with those of one system joined, whichever files they are in. An answer may have other metrics in
    another file. Raise InputError for an answer with the id of another, in formats where it is no repetition."""
    by_system = grouped((results.system, results) for results in found)
    return [first if not others else _joined(first, others) for first, *others in by_system.values()]


def _joined(first: SystemResults, others: Sequence[SystemResults]) -> SystemResults:
    answers = {(row.example_id, row.repetition): row for row in first.rows}
    sources = dict.fromkeys(answers, first.source)
    for results in others:
        for row in results.rows:
            key = row.example_id, row.repetition
            while results.repeats and key in answers:
                key = row.example_id, key[1] + 1
            known = answers.get(key)
            if known is None:
                answers[key], sources[key] = replace(row, repetition=key[1]), results.source
                continue
            if known.scores.keys() & row.scores.keys():
                got = f"the id {short(row.example_id)}, which {sources[key]} has too"
                raise InputError(f"{results.source}: got {got}, wanted it in one of them")
            answers[key] = replace(
                known,
                fields={**known.fields, **row.fields},
                scores={**known.scores, **row.scores},
                reasons={**known.reasons, **row.reasons},
                error=known.error or row.error,
            )
    every = first, *others
    return replace(
        first,
        source=os.path.commonpath([one.source for one in every]) or first.source,  # their folder
        rows=[*answers.values()],
        broken_off=next((one.broken_off for one in every if one.broken_off), None),
        pages=frozenset().union(*(one.pages for one in every)),
        n_pages=max(one.n_pages for one in every),
        notes=[note for one in every for note in one.notes],
    )


def _of_inputs(inputs: Any, where: str) -> str:
    """Return inputs as an id: the text, if there is only one. Raise InputError if there are none."""
    values = [*inputs.values()] if isinstance(inputs, Mapping) else [inputs]
    only = values[0] if len(values) == 1 else inputs
    text = joined(_text(only))
    if text in ("null", "{}", "[]", ""):
        raise InputError(f"{where}: got no id and no inputs, wanted an id")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… {sha256(text.encode()).hexdigest()[:8]}"
