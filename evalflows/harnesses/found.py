"""What readers of formats find in a file, and the records that become of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import isfinite, isnan
from typing import Any, Literal

from evalflows.harnesses.results import ResultRow, SystemResults
from evalflows.specs.errors import InputError, short
from evalflows.specs.escaping import json_text
from evalflows.specs.values import identifier, is_blank

LONGEST_IDENTITY = 120
"""In characters: of longer inputs, an id has the beginning and a hash."""


class NoResultsError(InputError):
    """The content of a file that is no file of results: in a folder, it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A system's answer to an example, or a part of it, with values as the file has them."""

    scores: Mapping[str, Any]
    id: Any = None  # None if the inputs identify it
    place: str = ""  # where in the file, such as `:3`
    system: str = ""
    repetition: Any = None  # None if the file does not count them
    inputs: Any = None
    reference: Any = None
    output: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    error: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of result files."""

    name: str  # as `--format` has it
    title: str  # for people
    mark: str  # what identifies it, in words
    recognises: Callable[[Any], bool]
    read: Callable[[Any, str], Iterable[Found]]  # from the file's content and its name
    twice: Literal["refused", "repeated", "in parts"] = "refused"  # what rows of one id are, if nothing counts them
    is_sparse: bool = False  # whether a metric that a row does not name was not asked of it
    unfinished: Callable[[Any], str | None] = lambda content: None  # why the run did not finish


def rows_in(content: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a file: a JSON object is one line of JSON lines. None if its content is anything else."""
    rows = content if isinstance(content, list) else [content]
    return rows if all(isinstance(row, Mapping) for row in rows) else []


def has(content: Any, *names: str) -> bool:
    """Return whether a file has rows, and the first has all these columns."""
    return bool(rows := rows_in(content)) and rows[0].keys() >= {*names}


def at(value: Any, *names: str) -> Any:
    """Return what stands under names within each other; None if there is nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first value of these columns that is not missing."""
    return next((row[name] for name in names if not is_blank(row.get(name))), None)


def flattened(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores in which one that is a mapping or a list is several, such as `style.tone`."""
    flat: dict[str, Any] = {}
    for name, value in scores.items():
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        flat |= {f"{name}.{key}": each for key, each in inner.items()} if isinstance(inner, Mapping) else {name: value}
    return flat


def number(value: Any, where: str) -> float | None:
    """Return a score as a number, None if it is missing: null, blank or NaN. True is 1, false 0, also as text.

    Raise InputError for other texts, and for what is not finite.
    """
    if is_blank(value):
        return None
    try:
        if isinstance(value, str):
            found = {"true": 1.0, "false": 0.0}.get(value.strip().lower())
            found = float(value) if found is None else found
        elif isinstance(value, bool | int | float):
            found = float(value)
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(f"{where}: got {short(value)}, wanted a number, true or false, or null") from None
    if isnan(found):
        return None
    if not isfinite(found):
        raise InputError(f"{where}: got {found}, wanted a finite number")
    return found


def assembled(found: Sequence[Found], kind: Format, source: str, unfinished: str | None) -> list[SystemResults]:
    """Return the results of each system. Raise InputError for an answer without an id, or with that of another."""
    rows: dict[str, dict[tuple[str, int], ResultRow]] = defaultdict(dict)
    met: Counter[tuple[str, str]] = Counter()
    first_repetition = min((_whole(each, source) for each in found if each.repetition is not None), default=0)
    for each in found:
        where = source + each.place
        identity = _identity(each, where)
        repetition = 0 if each.repetition is None else _whole(each, source) - first_repetition
        if each.repetition is None and kind.twice == "repeated":
            repetition = met[each.system, identity]
            met[each.system, identity] += 1
        row = ResultRow(
            example_id=identity,
            repetition=repetition,
            inputs=each.inputs,
            reference=each.reference,
            output=each.output,
            fields=each.fields,
            scores={str(name): number(value, f"{where}: {name}") for name, value in each.scores.items()},
            error=None if is_blank(each.error) else one_line(each.error),
        )
        known = rows[each.system].get((identity, repetition))
        if known and (kind.twice != "in parts" or known.scores.keys() & row.scores.keys()):
            raise InputError(f"{where}: got the id {short(identity)} twice, wanted each once{_said(each, repetition)}")
        rows[each.system][identity, repetition] = _joined(known, row) if known else row
    return [
        SystemResults(
            source=source,
            format=kind.title,
            system=system,
            rows=[*answers.values()] if kind.is_sparse else _filled([*answers.values()]),
            unfinished=unfinished,
        )
        for system, answers in rows.items()
    ]


def one_line(error: Any) -> str:
    """Return an error as one line."""
    return " ".join((error if isinstance(error, str) else json_text(error)).split())


def _identity(each: Found, where: str) -> str:
    """Return the id of an answer, or what its inputs are if it has none. Raise InputError if it has neither."""
    if identity := identifier(each.id, f"{where}: id"):
        return identity
    if each.inputs is None or each.inputs in ("", {}, []):
        raise InputError(f"{where}: got no id and no inputs, wanted an id")
    inputs = [*each.inputs.values()] if isinstance(each.inputs, Mapping) else [each.inputs]
    only = inputs[0] if len(inputs) == 1 else None
    text = " ".join((only if isinstance(only, str) else json_text(each.inputs, sort_keys=True)).split())
    if len(text) <= LONGEST_IDENTITY:
        return text
    return f"{text[:LONGEST_IDENTITY]}… {sha256(text.encode()).hexdigest()[:8]}"


def _whole(each: Found, source: str) -> int:
    if re.fullmatch(r"\d+(\.0+)?", text := str(each.repetition)):
        return int(float(text))
    raise InputError(f"{source}{each.place}: repetition: got {short(each.repetition)}, wanted a whole number")


def _said(each: Found, repetition: int) -> str:
    return f" in repetition {repetition}" if each.repetition is not None else ""


def _joined(known: ResultRow, row: ResultRow) -> ResultRow:
    """Return an answer of which the file has the parts in several rows."""
    either = {
        name: getattr(known, name) if getattr(known, name) is not None else getattr(row, name)
        for name in ("inputs", "reference", "output", "error")
    }
    return replace(known, fields={**row.fields, **known.fields}, scores={**known.scores, **row.scores}, **either)


def _filled(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return rows in which a metric that one lacks and another has is missing."""
    names = dict.fromkeys(name for row in rows for name in row.scores)
    return [row if len(row.scores) == len(names) else replace(row, scores={**names, **row.scores}) for row in rows]
