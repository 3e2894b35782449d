"""Return values of evaluators, and their common form."""

import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from evalflows.specs.errors import short
from evalflows.specs.metric import MAX_NUMBER
from evalflows.store.records import DataType

WANTED = (
    "a bool, a number, a text (label), None (does not apply), Score, "
    '{"key" or "name", "score" or "value", "comment", "metadata"}, {"results": [...]}, '
    "an object with those attributes, or a list of these"
)
_DATA_TYPES: tuple[DataType, ...] = ("NUMERIC", "BOOLEAN", "CATEGORICAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score as an evaluator can return it. The default key is the evaluator's name."""

    value: float | bool | str | None = None
    key: str | None = None
    label: str | None = None
    comment: str | None = None
    metadata: Mapping[str, Any] | None = None
    data_type: DataType | None = None
    config_id: str | None = None
    turn: int | None = None  # the number of the assistant's turn in a conversation, from 1; None for the whole run
    prompt_hash: str | None = None  # of the model's prompt before it was filled
    repeats: int | None = None  # number of calls
    spread: float | None = None  # the sample standard deviation over the repeats


class Judgement(NamedTuple):
    """A score as it is stored: a number or a label, or neither if the evaluator does not apply.

    A tuple, as it takes a fifth of the time of a frozen dataclass to make, and rules make millions.
    """

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
    """Convert the return value of the evaluator `name` to judgements: at least one, each metric once per run and turn.

    Raise TypeError for a value that is not a score, ValueError for NaN and infinity, a value that does not fit the
    declared data type, and duplicate names.
    """
    if isinstance(returned, bool):  # a fast path, since most rules return a bool
        return [Judgement(metric=name, value=float(returned), data_type="BOOLEAN")]
    if isinstance(returned, Judgement) and returned.turn is None:
        return [returned]
    judgements = list(_each(returned, name))
    if all(judgement.turn is not None for judgement in judgements):
        judgements.insert(0, Judgement(metric=name))  # does not apply to the run as a whole
    if len(judgements) == 1:
        return judgements
    counts = Counter((judgement.metric, judgement.turn) for judgement in judgements)
    for (metric, turn), count in counts.items():
        if count > 1:
            where = f" for turn {turn}" if turn is not None else ""
            raise ValueError(f"returned {count} scores called {metric!r}{where}, wanted a unique name for each")
    return judgements


def _each(returned: object, name: str) -> Iterator[Judgement]:
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
        for item in returned:
            yield from _each(item, name)
    elif returned is None or isinstance(returned, str) or as_number(returned) is not None:
        yield _from_fields({"value": returned}, name)
    elif hasattr(returned, "results"):
        yield from _each(returned.results, name)
    else:
        yield _from_fields(_attributes(returned), name)


def _from_fields(fields: Mapping[str, Any], name: str) -> Judgement:
    if not fields.keys() & {"score", "value", "label"}:
        raise TypeError(f"returned a mapping with {', '.join(map(str, fields)) or 'nothing'}, wanted {WANTED}")
    candidates = [fields[key] for key in ("score", "value", "label") if fields.get(key) is not None]
    texts = [value for value in candidates if isinstance(value, str)]
    values = [value for value in candidates if not isinstance(value, str)]
    value, label, data_type = _typed(
        _checked(values[0]) if values else None, texts[0] if texts else None, _declared(fields.get("data_type"))
    )
    comment = fields.get("comment")
    return Judgement(
        metric=str(fields.get("key") or fields.get("name") or name),
        value=value,
        label=label,
        data_type=data_type,
        comment=None if comment is None else str(comment),
        metadata=fields.get("metadata") or None,
        config_id=None if fields.get("config_id") is None else str(fields["config_id"]),
        **{name: _OWN[name](name, fields[name]) for name in _OWN if fields.get(name) is not None},
    )


def _typed(
    value: float | bool | None, label: str | None, declared: DataType | None
) -> tuple[float | None, str | None, DataType | None]:
    """Return the value, the label and their data type: the declared type, which they must fit, or else the inferred.

    A value declared CATEGORICAL is a label and has no number, whatever its text.
    """
    content = label if value is None else value
    if content is None or declared is None:
        inferred: DataType = "BOOLEAN" if isinstance(value, bool) else "CATEGORICAL" if value is None else "NUMERIC"
        return None if value is None else float(value), label, None if content is None else inferred
    if declared == "CATEGORICAL":
        return None, str(_whole(value)) if label is None else label, declared
    if value is None or (declared == "BOOLEAN" and value not in (0, 1)):
        wanted = "true, false, 1 or 0" if declared == "BOOLEAN" else "a number"
        raise ValueError(f"returned {short(content)} as {declared}, wanted {wanted}")
    return float(value), label, declared


def _whole(value: float | bool | None) -> float | int | bool | None:
    """Return a whole float as an int, so that a label reads 3, not 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _checked_count(name: str, value: object) -> int:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not 1 <= int(value) < 1 << 31:
        raise ValueError(f"returned the {name} {short(value)}, wanted a whole number of at least 1")
    return int(value)


def _checked_spread(name: str, value: object) -> float:
    number = as_number(value)
    if number is None or isinstance(number, bool) or not 0 <= number < math.inf:
        raise ValueError(f"returned the {name} {short(value)}, wanted a number of at least 0")
    return number


def _checked_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"returned the {name} {short(value)}, wanted a text")
    return value


_OWN: dict[str, Callable[[str, object], Any]] = {
    "turn": _checked_count,
    "prompt_hash": _checked_text,
    "repeats": _checked_count,
    "spread": _checked_spread,
}
"""Fields that only our Score has, and that a mapping can have too."""


def _attributes(returned: object) -> dict[str, Any]:
    names = ("key", "name", "score", "value", "label", "comment", "metadata", "data_type", "config_id")
    own = _OWN if isinstance(returned, Score) else ()
    fields = {name: getattr(returned, name) for name in (*names, *own) if hasattr(returned, name)}
    if not fields.keys() & {"score", "value", "label"}:
        raise TypeError(f"returned {type(returned).__name__}, wanted {WANTED}")
    return fields


def _checked(value: object) -> float | bool:
    number = as_number(value)
    if number is None:
        raise TypeError(f"returned a score of type {type(value).__name__}, wanted a bool, a number or a text")
    if not math.isfinite(number):
        raise ValueError(f"returned {number}, wanted a finite number, or None if the evaluator does not apply")
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"returned {number:g}, wanted a number between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
    return number


def as_number(value: object) -> float | bool | None:
    """Return a bool or a float, also from a numpy scalar; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    item = getattr(value, "item", None)  # numpy.bool_ is not a Real
    if callable(item) and getattr(value, "shape", None) == ():
        return as_number(item())
    return None


def _declared(data_type: object) -> DataType | None:
    text = str(getattr(data_type, "value", data_type)).upper()
    return next((known for known in _DATA_TYPES if known == text), None)
