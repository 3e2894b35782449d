"""Return values of pairwise evaluators, and their common form."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Any, Literal, cast, get_args

from evalflows.evaluators.score import as_number
from evalflows.specs.errors import short
from evalflows.specs.metric import MAX_NUMBER
from evalflows.specs.votes import OrderStatus
from evalflows.store.records import ScoreStatus

Place = Literal["first", "second"]

WANTED = (
    'two scores in the order of `outputs`, "A", "B" or "tie", None (does not apply), Preference, '
    '{"key", "scores": {run id: score} or two scores, "comment"}, {"winner": "A", "comment"}, {"results": [...]}'
)

_WINNERS: Mapping[str, Place | Literal["tie"]] = {
    **dict.fromkeys(("a", "first"), "first"),
    **dict.fromkeys(("b", "second"), "second"),
    **dict.fromkeys(("c", "tie"), "tie"),
}


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
    converted = list(_each(returned, name, run_ids))
    for key, count in Counter(preference.key for preference in converted).items():
        if count > 1:
            raise ValueError(f"returned {count} preferences called {key!r}, wanted a unique name for each")
    return converted


def _each(returned: object, name: str, run_ids: Sequence[str]) -> Iterator[Preference]:
    if isinstance(returned, Enum):
        returned = returned.value
    if isinstance(returned, Mapping) and "results" in returned:
        returned = _listed(returned["results"])
    if isinstance(returned, list | tuple) and not hasattr(returned, "_fields") and not _are_scores(returned):
        for item in returned:
            yield from _each(item, name, run_ids)
        if not returned:
            raise ValueError(f"returned nothing, wanted {WANTED}")
    elif returned is None or isinstance(returned, str):
        yield _from_fields({"winner": returned}, name, run_ids)
    elif isinstance(returned, list | tuple) and _are_scores(returned):
        yield _from_fields({"scores": returned}, name, run_ids)
    else:
        yield _from_fields(_fields(returned), name, run_ids)


def _listed(results: object) -> object:
    return list(results) if isinstance(results, list | tuple) else [results]


def _are_scores(returned: Sequence[object]) -> bool:
    """Return whether these are scores: numbers or Nones, except a single None, which means "does not apply"."""
    are_numbers = all(item is None or as_number(item) is not None for item in returned)
    return are_numbers and list(returned) not in ([], [None])


def _fields(returned: object) -> dict[str, Any]:
    """Return the fields of a mapping or an object."""
    known = ("key", "name", "scores", "winner", "value", "score", "comment", "reasoning", "metadata")
    own = _OWN if isinstance(returned, Preference) else ()  # other objects may use these names differently
    if isinstance(returned, Mapping):
        fields = dict(returned)
    else:
        fields = {name: getattr(returned, name) for name in (*known, *own) if hasattr(returned, name)}
    if not fields.keys() & {"scores", "winner", "value"}:
        got = f"a mapping with {', '.join(map(str, fields)) or 'nothing'}"
        raise TypeError(
            f"returned {got if isinstance(returned, Mapping) else type(returned).__name__}, wanted {WANTED}"
        )
    return fields


def _from_fields(fields: Mapping[str, Any], name: str, run_ids: Sequence[str]) -> Preference:
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
        **{name: check(fields[name]) for name, check in _OWN.items() if fields.get(name) is not None},
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
        raise ValueError(f"returned {short(winner)}, wanted {WANTED}")
    return _WINNERS[text]


def _comment(comment: object, run_ids: Sequence[str]) -> str | None:
    """Return the comment as text; LangSmith's comments by run become lines in the order shown."""
    if isinstance(comment, Mapping):
        by_run = {str(run): text for run, text in comment.items()}
        return "\n".join(str(by_run[run]) for run in run_ids if by_run.get(run)) or None
    return None if comment is None else str(comment)


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"returned the prompt_hash {short(value)}, wanted a text")
    return value


def _checked_count(value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) < 1 << 31:
        raise ValueError(f"returned the repeats {short(value)}, wanted a whole number of at least 1")
    return int(value)


def _checked_share(value: object) -> float:
    number = as_number(value)
    if number is None or isinstance(number, bool) or not 0 <= number <= 1:
        raise ValueError(f"returned the agreement {short(value)}, wanted a number from 0 to 1")
    return number


def _checked_place(value: object) -> Place:
    if value not in get_args(Place):
        raise ValueError(f"returned {short(value)} as shown_first, wanted first or second")
    return cast("Place", value)


def _checked_order_status(value: object) -> OrderStatus:
    if value not in get_args(OrderStatus):
        raise ValueError(f"returned {short(value)} as order_status, wanted {', '.join(get_args(OrderStatus))}")
    return cast("OrderStatus", value)


_OWN: Mapping[str, Callable[[object], Any]] = {
    "prompt_hash": _checked_text,
    "repeats": _checked_count,
    "agreement": _checked_share,
    "shown_first": _checked_place,
    "order_status": _checked_order_status,
}
"""Fields that only our Preference has, and that a mapping can have too."""
