"""Return values of evaluators, also of pairwise ones, in their common form."""

import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, cast, get_args

from evalflows.specs.comparison import OrderStatus
from evalflows.specs.errors import describe, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import MAX_NUMBER
from evalflows.store.records import DataType, ScoreStatus

WANTED = (
    "a bool, a number, a text (label), None (does not apply), Score, "
    '{"key" or "name", "score" or "value", "comment", "metadata"}, {"results": [...]}, '
    "an object with those attributes, or a list of these"
)
_DATA_TYPES: tuple[DataType, ...] = ("NUMERIC", "BOOLEAN", "CATEGORICAL")

COMMENTS = ("comment", "reason", "reasoning", "explanation")
"""Fields that explain a score: ours, and those of other projects. The first one counts."""

Place = Literal["first", "second"]

PREFERENCE_WANTED = (
    'two scores in the order of `outputs`, "A", "B" or "tie", None (does not apply), Preference, '
    '{"key", "scores": {run id: score} or two scores, "comment"}, {"winner": "A", "comment"}, {"results": [...]}'
)

_WINNERS: Mapping[str, Place | Literal["tie"]] = {
    **dict.fromkeys(("a", "first"), "first"),
    **dict.fromkeys(("b", "second"), "second"),
    **dict.fromkeys(("c", "tie"), "tie"),
}


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
    """A score as it is stored: a number or a label, or neither if the evaluator does not apply or says an error.

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
    error: str | None = None  # that the evaluator says instead of a score

    @property
    def status(self) -> Literal["scored", "failed", "not_applicable"]:
        if self.error is not None:
            return "failed"
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
    comment = next((fields[name] for name in COMMENTS if fields.get(name) is not None), None)
    error = fields.get("error") if value is None and label is None else None
    return Judgement(
        metric=str(fields.get("key") or fields.get("name") or name),
        value=value,
        label=label,
        data_type=data_type,
        comment=None if comment is None else str(comment),
        metadata=fields.get("metadata") or None,
        config_id=None if fields.get("config_id") is None else str(fields["config_id"]),
        error=describe(error) if isinstance(error, BaseException) else str(error) if error else None,
        **{name: _SCORE_OWN[name](name, fields[name]) for name in _SCORE_OWN if fields.get(name) is not None},
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
    if declared == "NUMERIC" and value is None and label is not None:
        value, label = number_in(label), None
    if value is None or (declared == "BOOLEAN" and value not in (0, 1)):
        wanted = "true, false, 1 or 0" if declared == "BOOLEAN" else "a number"
        raise ValueError(f"returned {short(content)} as {declared}, wanted {wanted}")
    return float(value), label, declared


def number_in(text: str) -> float | None:
    """Return the number that a text is; None if it is none that can be a score."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) <= MAX_NUMBER else None


def _whole(value: float | bool | None) -> float | int | bool | None:
    """Return a whole float as an int, so that a label reads 3, not 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _checked_count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 1 <= int(value) < 1 << 31:
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


_SCORE_OWN: dict[str, Callable[[str, object], Any]] = {
    "turn": _checked_count,
    "prompt_hash": _checked_text,
    "repeats": _checked_count,
    "spread": _checked_spread,
}
"""Fields that only our Score has, and that a mapping can have too."""


def _attributes(returned: object) -> dict[str, Any]:
    names = ("key", "name", "score", "value", "label", *COMMENTS, "error", "metadata", "data_type", "config_id")
    own = _SCORE_OWN if isinstance(returned, Score) else ()
    fields = {name: getattr(returned, name) for name in (*names, *own) if hasattr(returned, name)}
    if not fields.keys() & {"score", "value", "label"} or isinstance(
        returned, date | timedelta
    ):  # pandas' have `value`
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
    if isinstance(value, numbers.Real | Decimal):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Which of two answers is better, as a pairwise evaluator can return it and as it is stored.

    `winner` and `scores` are in the order in which the answers were shown. The default key is the evaluator's name.
    """

    winner: Literal["first", "second", "tie"] | None = None  # None and no scores: it does not apply
    scores: tuple[float, float] | None = None  # the higher one wins
    key: str | None = None
    comment: str | None = None
    metadata: Mapping[str, Any] | None = None
    prompt_hash: str | None = None  # of the model's prompt before it was filled
    repeats: int | None = None  # number of calls
    agreement: float | None = None  # the share of pairs of repeats that agree
    shown_first: Place | None = None  # the answer shown first when a recorded preference was judged
    order_status: OrderStatus | None = None  # what is known of that order; None: the preference was not recorded

    @property
    def status(self) -> ScoreStatus:
        return "not_applicable" if self.winner is None else "scored"


def preferences(returned: object, name: str, run_ids: Sequence[str]) -> list[Preference]:
    """Convert the return value of the pairwise evaluator `name` on the value runs to preferences with unique keys.

    Raise TypeError for a value that is not a preference, ValueError for NaN and infinity, a run that was not shown,
    scores that contradict the winner, and duplicate keys.
    """
    converted = list(_preference_each(returned, name, run_ids))
    for key, count in Counter(preference.key for preference in converted).items():
        if count > 1:
            raise ValueError(f"returned {count} preferences called {key!r}, wanted a unique name for each")
    return converted


def _preference_each(returned: object, name: str, run_ids: Sequence[str]) -> Iterator[Preference]:
    if isinstance(returned, Enum):
        returned = returned.value
    if isinstance(returned, Mapping) and "results" in returned:
        returned = _listed(returned["results"])
    if isinstance(returned, list | tuple) and not hasattr(returned, "_fields") and not _are_scores(returned):
        for item in returned:
            yield from _preference_each(item, name, run_ids)
        if not returned:
            raise ValueError(f"returned nothing, wanted {PREFERENCE_WANTED}")
    elif returned is None or isinstance(returned, str):
        yield _preference_from_fields({"winner": returned}, name, run_ids)
    elif isinstance(returned, list | tuple) and _are_scores(returned):
        yield _preference_from_fields({"scores": returned}, name, run_ids)
    else:
        yield _preference_from_fields(_fields(returned), name, run_ids)


def _listed(results: object) -> object:
    return list(results) if isinstance(results, list | tuple) else [results]


def _are_scores(returned: Sequence[object]) -> bool:
    """Return whether these are scores: numbers or Nones, except a single None, which means "does not apply"."""
    are_numbers = all(item is None or as_number(item) is not None for item in returned)
    return are_numbers and list(returned) not in ([], [None])


def _fields(returned: object) -> dict[str, Any]:
    """Return the fields of a mapping or an object."""
    known = ("key", "name", "scores", "winner", "value", "score", "comment", "reasoning", "metadata")
    own = _PREFERENCE_OWN if isinstance(returned, Preference) else ()  # other objects may use these names differently
    if isinstance(returned, Mapping):
        fields = dict(returned)
    else:
        fields = {name: getattr(returned, name) for name in (*known, *own) if hasattr(returned, name)}
    if not fields.keys() & {"scores", "winner", "value"}:
        got = f"a mapping with {', '.join(map(str, fields)) or 'nothing'}"
        raise TypeError(
            f"returned {got if isinstance(returned, Mapping) else type(returned).__name__}, wanted {PREFERENCE_WANTED}"
        )
    return fields


def _preference_from_fields(fields: Mapping[str, Any], name: str, run_ids: Sequence[str]) -> Preference:
    scores = None if fields.get("scores") is None else _scores(fields["scores"], run_ids)
    stated = _winner(fields)
    comment = fields.get("comment")
    winner = stated if scores is None else _higher(scores)
    if stated is not None and stated != winner:
        raise ValueError(f"returned the winner {stated} with the scores {list(scores or ())}, wanted them to agree")
    return Preference(
        winner=winner,
        scores=scores,
        key=str(fields.get("key") or fields.get("name") or name),
        comment=_comment(fields.get("reasoning") if comment is None else comment, run_ids),
        metadata=fields.get("metadata") or None,
        **{name: check(name, fields[name]) for name, check in _PREFERENCE_OWN.items() if fields.get(name) is not None},
    )


def _scores(scores: object, run_ids: Sequence[str]) -> tuple[float, float] | None:
    """Return the two scores in the order shown; None if both are None."""
    if isinstance(scores, Mapping):
        by_run = {str(run): score for run, score in scores.items()}
        if by_run.keys() != {*run_ids}:
            wanted = ", ".join(run_ids)
            raise ValueError(f"returned scores for {short([*by_run])}, wanted one for each run shown: {wanted}")
        scores = [by_run[run] for run in run_ids]
    if not isinstance(scores, list | tuple) or len(scores) != len(run_ids):
        raise ValueError(f"returned the scores {short(scores)}, wanted {len(run_ids)}, in the order of `outputs`")
    if all(score is None for score in scores):
        return None
    first, second = (_score(score) for score in scores)
    return first, second


def _score(score: object) -> float:
    number = as_number(score)
    if number is None:
        raise TypeError(f"returned a score of type {type(score).__name__}, wanted a number")
    if not math.isfinite(number):
        raise ValueError(f"returned the score {number}, wanted a finite number")
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"returned the score {number:g}, wanted a number between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
    return float(number)


def _higher(scores: tuple[float, float]) -> Literal["first", "second", "tie"]:
    first, second = scores
    return "tie" if first == second else "first" if first > second else "second"


def _winner(fields: Mapping[str, Any]) -> Literal["first", "second", "tie"] | None:
    """Read `winner` or `value`; as in LangChain, a `value` of None with a score of 0.5 is a tie."""
    winner = fields.get("winner", fields.get("value"))
    if winner is None:
        return "tie" if "value" in fields and fields.get("score") == 0.5 else None
    text = str(getattr(winner, "value", winner)).strip().strip("[]").lower()
    if text not in _WINNERS:
        raise ValueError(f"returned {short(winner)}, wanted {PREFERENCE_WANTED}")
    return _WINNERS[text]


def _comment(comment: object, run_ids: Sequence[str]) -> str | None:
    """Return the comment as text; LangSmith's comments by run become lines in the order shown."""
    if isinstance(comment, Mapping):
        by_run = {str(run): text for run, text in comment.items()}
        return "\n".join(str(by_run[run]) for run in run_ids if by_run.get(run)) or None
    return None if comment is None else str(comment)


def _checked_share(_: str, value: object) -> float:
    number = as_number(value)
    if number is None or isinstance(number, bool) or not 0 <= number <= 1:
        raise ValueError(f"returned the agreement {short(value)}, wanted a number from 0 to 1")
    return number


def _checked_place(_: str, value: object) -> Place:
    if value not in get_args(Place):
        raise ValueError(f"returned {short(value)} as shown_first, wanted first or second")
    return cast("Place", value)


def _checked_order_status(_: str, value: object) -> OrderStatus:
    if value not in get_args(OrderStatus):
        raise ValueError(f"returned {short(value)} as order_status, wanted {', '.join(get_args(OrderStatus))}")
    return cast("OrderStatus", value)


_PREFERENCE_OWN: Mapping[str, Callable[[str, object], Any]] = {
    "prompt_hash": _checked_text,
    "repeats": _checked_count,
    "agreement": _checked_share,
    "shown_first": _checked_place,
    "order_status": _checked_order_status,
}
"""Fields that only our Preference has, and that a mapping can have too."""
