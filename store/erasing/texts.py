"""What is left of an erased value: a marker that says so, and when.

Equal values of one erasure get equal markers, so that what compares texts (the examples that experiments share, changed
answers) comes to the same result as before. The key that makes them is deleted with the erasure's plan, so nobody can
try out which text a marker stood for.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalflows.specs.attribute_aliases import Source
from evalflows.store.erased import FIELD, MARKER, is_erased
from evalflows.store.erasing.attributes import without_texts
from evalflows.store.records import Json, to_json

FIGURES = ("drawn", "unmet_requirement")
"""Fields of metadata whose texts are no one's words, and which figures need."""

QUOTED = ("observed_value", "partial_unexpected_list")
"""What the checks of Great Expectations observed that may quote values."""

Row = Mapping[str, Any]
Rule = Callable[["Eraser", Any, Row], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """One erasure: its day, and the key of its markers. `kept` are fields of examples' metadata that stay."""

    day: str
    key: bytes
    kept: tuple[str, ...] = ()

    def marker(self, value: str) -> str:
        return f"(erased {self.day} #{self.digest(value, 6)})"

    def digest(self, value: str, size: int) -> str:
        return hashlib.blake2b(value.encode(), key=self.key, digest_size=size).hexdigest()

    def pseudonym(self, name: str) -> str:
        return name if _PSEUDONYM.fullmatch(name) else f"person-{self.digest(name, 6)}"

    def strings(self, value: Any) -> Any:
        """Return a JSON value whose texts are erased; numbers and the names of fields stay."""
        if isinstance(value, str):
            return value if MARKER.fullmatch(value) else f"(erased {self.day})"
        if isinstance(value, list):
            return [self.strings(element) for element in value]
        if isinstance(value, dict):
            return {name: one if name in FIGURES else self.strings(one) for name, one in value.items()}
        return value


_PSEUDONYM = re.compile(r"person-[0-9a-f]{12}")


def _whole(eraser: Eraser, value: Json, row: Row) -> Json:
    return value if is_erased(value) else to_json({FIELD: eraser.marker(value)})


def _metadata(eraser: Eraser, value: Json, row: Row) -> Json:
    if is_erased(value):
        return value
    given = json.loads(value)
    kept = {name: given[name] for name in eraser.kept if name in given} if isinstance(given, dict) else {}
    return to_json({**kept, FIELD: eraser.marker(value)})


def _text(eraser: Eraser, value: str, row: Row) -> str:
    return value if MARKER.fullmatch(value) else f"(erased {eraser.day})"


def _strings(eraser: Eraser, value: Json, row: Row) -> Json:
    erased = eraser.strings(given := json.loads(value))
    return value if erased == given else to_json(erased)


def _quotes(eraser: Eraser, value: Json, row: Row) -> Json:
    """Return what a check observed without the values that it quotes, which may be numbers."""
    given = json.loads(value)
    if not isinstance(given, dict):
        return value
    quoted = {name: _as_texts(given[name]) for name in QUOTED if name in given}
    return to_json({**given, **erased}) if (erased := eraser.strings(quoted)) != quoted else value


def _as_texts(value: Any) -> Any:
    return [str(one) for one in value] if isinstance(value, list) else value


def _quoting(eraser: Eraser, value: str, row: Row) -> str:
    """Return the message of a check, erased if the check quotes values."""
    quotes = row["observed"] is not None and _quotes(eraser, row["observed"], row) != row["observed"]
    return _text(eraser, value, row) if quotes else value


def _nothing(eraser: Eraser, value: object, row: Row) -> None:
    return None


def _call_key(eraser: Eraser, value: str, row: Row) -> str:
    """Return another key for a call: its own is a hash of the request."""
    return value if is_erased(row["request"]) else eraser.digest(value, 32)


def _not_reusable(eraser: Eraser, value: bool, row: Row) -> bool:
    return False


def _pseudonym(eraser: Eraser, value: str, row: Row) -> str:
    return eraser.pseudonym(value)


def _of_observation(column: str) -> Rule:
    def rule(eraser: Eraser, value: Json, row: Row) -> Json | None:
        texts = (row[name] for name in ("source", "attributes", "contents", "resource", "links"))
        return _observation(eraser, *texts)[column]

    return rule


@lru_cache(maxsize=1)  # for the four columns of one row
def _observation(
    eraser: Eraser, source: Source, attributes: Json, contents: Json | None, resource: Json | None, links: Json | None
) -> Mapping[str, Json | None]:
    given = {"attributes": attributes, "contents": contents, "resource": resource, "links": links}
    return without_texts(source, given, eraser.day, eraser.marker)


_ERRORS: Mapping[str, Rule] = {"error": _text, "error_trace": _text}

OF_SUBJECTS: Mapping[str, Mapping[str, Rule]] = {
    "examples": {"inputs": _whole, "reference_outputs": _whole, "metadata": _metadata, "attachments": _whole},
    "outputs": {"outputs": _whole, "steps": _whole, **_ERRORS},
    "scores": {"comment": _text, "metadata": _strings, **_ERRORS},
    "comparisons": {"comment": _text, "metadata": _strings, **_ERRORS},
    "calls": {
        "request": _whole,
        "response": _whole,
        "error": _text,
        "call_key": _call_key,
        "reusable": _not_reusable,
    },
    "labels": {"comment": _text, "metadata": _strings},
    "experiments": {"reason": _text},  # if it quotes an error
    "comparison_sets": {"reason": _text},
    "checks": {"observed": _quotes, "message": _quoting},
    "observations": {
        "status_message": _text,
        "resource": _of_observation("resource"),
        "attributes": _of_observation("attributes"),
        "contents": _of_observation("contents"),
        "events": _nothing,
        "links": _of_observation("links"),
    },
}
"""What becomes of the columns of rows about what is erased. All others are figures, statuses, ids and versions."""

OF_PEOPLE: Mapping[str, Mapping[str, Rule]] = {
    "labels": {"labeller": _pseudonym, "comment": _text},
    "alerts": {"acknowledged_by": _pseudonym, "note": _text},
    "baselines": {"approved_by": _pseudonym, "reason": _text},
}
"""The same for rows that the erased person wrote."""

READ_TOO: Mapping[str, tuple[str, ...]] = {"observations": ("source",)}
"""Columns that the rules of a table read beside their own."""
