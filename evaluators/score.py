"""What an evaluator may return, and the one shape that all of it becomes."""

import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from specs.errors import short
from store.records import DataType

WANTED = (
    "a bool, a number, a text (label), None (does not apply), Score, "
    '{"key" or "name", "score" or "value", "comment", "metadata"}, {"results": [...]}, '
    "an object with those attributes, or a list of these"
)
_DATA_TYPES: tuple[DataType, ...] = ("NUMERIC", "BOOLEAN", "CATEGORICAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score as an evaluator may return it. Without a key it bears the evaluator's name."""

    value: float | bool | str | None = None
    key: str | None = None
    label: str | None = None
    comment: str | None = None
    metadata: Mapping[str, Any] | None = None
    data_type: DataType | None = None
    config_id: str | None = None
    turn: int | None = None  # of a conversation: the number of the assistant's turn, from 1; None for the whole run
    prompt_hash: str | None = None  # of the prompt that a model was asked with, before it was filled
    repeats: int | None = None  # how often it was asked
    spread: float | None = None  # the sample's standard deviation over the repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A score as it is kept: a number or a label, or neither where the evaluator does not apply."""

    metric: str
    value: float | None = None
    label: str | None = None
    data_type: DataType | None = None
    comment: str | None = None
    metadata: Mapping[str, Any] | None = None
    config_id: str | None = None
    turn: int | None = None
    prompt_hash: str | None = None
    repeats: int | None = None
    spread: float | None = None

    @property
    def status(self) -> Literal["scored", "not_applicable"]:
        return "not_applicable" if self.value is None and self.label is None else "scored"


def normalise(returned: object, name: str) -> list[Judgement]:
    """What an evaluator called `name` returned, as judgements; at least one, each metric once a run and a turn.

    Raises TypeError for what is no score, ValueError for NaN and infinity, for what is not of the declared data type,
    and for a name given twice.
    """
    judgements = list(_each(returned, name))
    if all(judgement.turn is not None for judgement in judgements):
        judgements.insert(0, Judgement(metric=name))  # of the run as a whole it says nothing
    if len(judgements) == 1:
        return judgements
    counts = Counter((judgement.metric, judgement.turn) for judgement in judgements)
    for (metric, turn), count in counts.items():
        if count > 1:
            where = f" for turn {turn}" if turn is not None else ""
            raise ValueError(f"returned {count} scores called {metric!r}{where}, wanted a name of its own for each")
    return judgements


def _each(returned: object, name: str) -> Iterator[Judgement]:
    if isinstance(returned, bool):  # what most rules return, quickly
        yield Judgement(metric=name, value=float(returned), data_type="BOOLEAN")
        return
    if isinstance(returned, Judgement):
        yield returned
        return
    if isinstance(returned, Enum):
        returned = returned.value
    if isinstance(returned, Mapping):
        if "results" in returned:
            yield from _each(returned["results"], name)
        else:
            yield _from_fields(returned, name)
    elif isinstance(returned, list | tuple) and not hasattr(returned, "_fields"):
        for one in returned:
            yield from _each(one, name)
    elif returned is None or isinstance(returned, str) or as_number(returned) is not None:
        yield _from_fields({"value": returned}, name)
    elif hasattr(returned, "results"):
        yield from _each(returned.results, name)
    else:
        yield _from_fields(_attributes(returned), name)


def _from_fields(fields: Mapping[str, Any], name: str) -> Judgement:
    if not fields.keys() & {"score", "value", "label"}:
        raise TypeError(f"returned a mapping with {', '.join(map(str, fields)) or 'nothing'}, wanted {WANTED}")
    given = [fields[key] for key in ("score", "value", "label") if fields.get(key) is not None]
    texts = [value for value in given if isinstance(value, str)]
    values = [value for value in given if not isinstance(value, str)]
    value, label, kind = _typed(
        _checked(values[0]) if values else None, texts[0] if texts else None, _declared(fields.get("data_type"))
    )
    comment = fields.get("comment")
    return Judgement(
        metric=str(fields.get("key") or fields.get("name") or name),
        value=value,
        label=label,
        data_type=kind,
        comment=None if comment is None else str(comment),
        metadata=fields.get("metadata") or None,
        config_id=None if fields.get("config_id") is None else str(fields["config_id"]),
        **{name: _OWN[name](name, fields[name]) for name in _OWN if fields.get(name) is not None},
    )


def _typed(
    value: float | bool | None, label: str | None, declared: DataType | None
) -> tuple[float | None, str | None, DataType | None]:
    """A value, a label and their type: the declared one, which they must be of, or else what they are by themselves.

    A label stays a label: what is declared as one has no number, whatever its text.
    """
    given = label if value is None else value
    if given is None or declared is None:
        own: DataType = "BOOLEAN" if isinstance(value, bool) else "CATEGORICAL" if value is None else "NUMERIC"
        return None if value is None else float(value), label, None if given is None else own
    if declared == "CATEGORICAL":
        return None, str(_whole(value)) if label is None else label, declared
    if value is None or (declared == "BOOLEAN" and value not in (0, 1)):
        wanted = "true, false, 1 or 0" if declared == "BOOLEAN" else "a number"
        raise ValueError(f"returned {short(given)} as {declared}, wanted {wanted}")
    return float(value), label, declared


def _whole(value: float | bool | None) -> float | int | bool | None:
    """A number as it was written: 3, not 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _a_number_from_1(name: str, given: object) -> int:
    if not isinstance(given, numbers.Integral) or isinstance(given, bool) or not 1 <= int(given) < 1 << 31:
        raise ValueError(f"returned the {name} {short(given)}, wanted a whole number of at least 1")
    return int(given)


def _a_spread(name: str, given: object) -> float:
    number = as_number(given)
    if number is None or isinstance(number, bool) or not 0 <= number < math.inf:
        raise ValueError(f"returned the {name} {short(given)}, wanted a number of at least 0")
    return number


def _a_text(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"returned the {name} {short(given)}, wanted a text")
    return given


_OWN: dict[str, Callable[[str, object], Any]] = {
    "turn": _a_number_from_1,
    "prompt_hash": _a_text,
    "repeats": _a_number_from_1,
    "spread": _a_spread,
}
"""What only our own Score has, and a mapping may have too."""


def _attributes(returned: object) -> dict[str, Any]:
    names = ("key", "name", "score", "value", "label", "comment", "metadata", "data_type", "config_id")
    own = _OWN if isinstance(returned, Score) else ()
    found = {name: getattr(returned, name) for name in (*names, *own) if hasattr(returned, name)}
    if not found.keys() & {"score", "value", "label"}:
        raise TypeError(f"returned {type(returned).__name__}, wanted {WANTED}")
    return found


def _checked(value: object) -> float | bool:
    number = as_number(value)
    if number is None:
        raise TypeError(f"returned a score of type {type(value).__name__}, wanted a bool, a number or a text")
    if not math.isfinite(number):
        raise ValueError(f"returned {number}, wanted a finite number, or None where the evaluator does not apply")
    return number


def as_number(value: object) -> float | bool | None:
    """A bool or a float, also from numpy's scalars; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    item = getattr(value, "item", None)  # numpy.bool_ is no Real
    if callable(item) and getattr(value, "shape", None) == ():
        return as_number(item())
    return None


def _declared(data_type: object) -> DataType | None:
    text = str(getattr(data_type, "value", data_type)).upper()
    return next((known for known in _DATA_TYPES if known == text), None)
