"""An object of plain fields as text: a line `[[name: value]]` for each, and one text that is free."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specs.errors import short

_MARK = re.compile(r"\[\[([^\[\]:\n]+):([^\[\]\n]*)\]\]")
_AFTER = re.compile(r"[\s*_`.]*")  # what may stand after the last mark: no quotation mark, since that closes a quote
_LABEL = re.compile(r"\W*(?:\w[\w ]{0,39}:\W*)?")  # what may stand before a mark: `Verdict:`, `- **Overall score:** `
_FIRST_MARKS = re.compile(rf"(?:{_LABEL.pattern}{_MARK.pattern})+")
_NUMBER = re.compile(r"[+-]?\d{1,100}(\.\d{1,100})?([eE][+-]?\d{1,5})?", re.ASCII)
_BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The form of one schema."""

    marked: Mapping[str, Mapping[str, Any]]
    free: str | None
    free_description: str
    marks_first: bool  # the schema names a mark before the free text

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "Marks":
        """Raises ValueError for a schema that is no flat object of booleans, numbers, enums and one free text."""
        fields = schema.get("properties") or {} if schema.get("type") == "object" else {}
        free = [name for name, field in fields.items() if _is_free(field)]
        if problem := _problem(fields, free):
            raise ValueError(f"wanted an object of booleans, numbers and enums, with one free text at most; {problem}")
        about = fields[free[0]].get("description") if free else None
        return cls(
            marked={name: field for name, field in fields.items() if name not in free},
            free=free[0] if free else None,
            free_description=f" ({about})" if about else "",
            marks_first=bool(free) and next(iter(fields)) != free[0],
        )

    def instruction(self) -> str:
        lines = "\n".join(f"[[{name}: …]]" for name in self.marked)
        many = len(self.marked) > 1
        these, it = ("these lines", "them") if many else ("this line", "it")
        block = f"{these}, with {'values' if many else 'the value'} in place of the dots"
        values = " ".join(f"{name} is {_allowed(field)}." for name, field in self.marked.items())
        if self.free is None:
            return f"Answer with {block}, and nothing else:\n{lines}\n{values}"
        text = f"the {self.free}{self.free_description}, as plain text"
        if self.marks_first:
            # What comes last counts, since the free text may quote marks: so the marks are wanted once more.
            order = f"Begin your answer with {block}. Then write {text}. Then repeat {these}, with nothing after {it}"
        else:
            order = f"First write {text}. Then end your answer with {block}, and with nothing after {it}"
        return f"{order}:\n{lines}\n{values}"

    def read(self, text: str) -> dict[str, Any]:
        """The fields that a text gives. The last mark of each name counts: those before it may be quoted.

        Raises ValueError unless the text ends with a mark for each field, whether the schema requires it or not.
        """
        found = self._at_the_end(text)
        if missing := [name for name in self.marked if name not in found]:
            raise ValueError(f"wanted a line [[{missing[0]}: …]] at the end of the answer")
        answer = {name: _value(name, found[name][2].strip(), field) for name, field in self.marked.items()}
        start = min(mark.start() for mark in found.values())
        return answer if self.free is None else answer | {self.free: self._free_text(text, start)}

    def _at_the_end(self, text: str) -> dict[str, re.Match[str]]:
        """The last mark of each name, where a text ends with them, and with no more than a label between them.

        They begin a line, or follow a sentence: a text that ends in `it says "[[correct: true]]".` has no mark.
        """
        found: dict[str, re.Match[str]] = {}
        end, between = len(text), _AFTER
        for mark in reversed([*_MARK.finditer(text)]):
            name = self._name(mark)
            if len(found) == len(self.marked) or not name or not between.fullmatch(text, mark.end(), end):
                break
            found.setdefault(name, mark)
            end, between = mark.start(), _LABEL
        return found if _begins_anew(text[:end]) else {}

    def _name(self, mark: re.Match[str]) -> str | None:
        said = mark[1].strip().casefold()
        return next((name for name in self.marked if name.casefold() == said), None)

    def _free_text(self, text: str, end: int) -> str:
        first = _FIRST_MARKS.match(text, 0, end) if self.marks_first else None
        before, newline, label = text[first.end() if first else 0 : end].rpartition("\n")
        return (before if _LABEL.fullmatch(label) else before + newline + label).strip()


def _begins_anew(before: str) -> bool:
    line = before.rpartition("\n")[2]
    return bool(_LABEL.fullmatch(line)) or line.rstrip(" \t*_").endswith((".", "!", "?", "。"))


def _problem(fields: Mapping[str, Any], free: list[str]) -> str | None:
    """Why the fields of an object cannot be written as marks and one free text; None if they can."""
    marked = {name: field for name, field in fields.items() if name not in free}
    if not marked:
        return "got none that can be a mark"
    if strange := [name for name, field in marked.items() if not _is_plain(field)]:
        return f"{strange[0]} is none of these"
    if unwritable := [name for name in marked if not _is_writable(name)]:
        return f"the name {unwritable[0]!r} cannot stand in a mark"
    if len({name.casefold() for name in fields}) < len(fields):
        return "two names differ in case only"
    return f"{' and '.join(free)} would share one text" if len(free) > 1 else None


def _is_free(field: Any) -> bool:
    return isinstance(field, dict) and field.get("type") == "string" and not {"enum", "const"} & field.keys()


def _is_plain(field: Any) -> bool:
    """Whether a value of it can stand in a mark, and be known again there."""
    if not isinstance(field, dict):
        return False
    if (choices := _choices(field)) is None:
        return field.get("type") in ("boolean", "number", "integer")
    return all(isinstance(one, bool | int | float) or (isinstance(one, str) and _is_writable(one)) for one in choices)


def _is_writable(text: str) -> bool:
    return bool(text) and text == text.strip() and not {*text} & {*"[]\n\r"}


def _choices(field: Mapping[str, Any]) -> list[Any] | None:
    return [field["const"]] if "const" in field else field.get("enum")


def _allowed(field: Mapping[str, Any]) -> str:
    """Which values a field may have, in words."""
    about = f" ({field['description']})" if field.get("description") else ""
    if (choices := _choices(field)) is not None:
        return f"one of {', '.join(json.dumps(one, ensure_ascii=False) for one in choices)}, without quotes{about}"
    if field["type"] == "boolean":
        return f"true or false{about}"
    bounds = [f", {word} {field[name]}" for name, word in _BOUNDS.items() if name in field]
    return f"{'a whole number' if field['type'] == 'integer' else 'a number'}{''.join(bounds)}{about}"


def _value(name: str, said: str, field: Mapping[str, Any]) -> Any:
    """What a mark says, as a value. Raises ValueError for what is none of that kind."""
    if (choices := _choices(field)) is not None:
        texts = {_as_said(one): one for one in choices}
        folded = [one for text, one in texts.items() if text.casefold() == said.strip('"').casefold()]
        if said in texts or len(folded) == 1:
            return texts[said] if said in texts else folded[0]
    elif field["type"] == "boolean":
        if said.casefold() in ("true", "false"):
            return said.casefold() == "true"
    elif _NUMBER.fullmatch(said) and math.isfinite(number := float(said)):
        return int(said) if said.lstrip("+-").isdigit() else number
    raise ValueError(f"{name}: got {short(said)}, wanted {_allowed(field)}")


def _as_said(choice: Any) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)
