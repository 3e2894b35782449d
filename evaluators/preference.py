"""What a pairwise evaluator may return, and the one shape that all of it becomes."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Any, Literal, cast, get_args

from evaluators.score import as_number
from specs.errors import short
from store.records import ScoreStatus

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
    """Which of two answers is better, as a pairwise evaluator may return it, and as it is kept.

    `winner` and `scores` are in the order in which the answers were shown. Without a key it bears the evaluator's name.
    """

    winner: Literal["first", "second", "tie"] | None = None  # None without scores: the evaluator does not apply
    scores: tuple[float, float] | None = None  # the higher one wins
    key: str | None = None
    comment: str | None = None
    metadata: Mapping[str, Any] | None = None
    prompt_hash: str | None = None  # of the prompt that a model was asked with, before it was filled
    repeats: int | None = None  # how often it was asked
    agreement: float | None = None  # the share of all two repeats that say the same
    shown_first: Place | None = None  # of these two, what came first when it was judged, where that was before

    @property
    def status(self) -> ScoreStatus:
        return "not_applicable" if self.winner is None else "scored"


def preferences(returned: object, name: str, run_ids: Sequence[str]) -> list[Preference]:
    """What a pairwise evaluator called `name` returned on the runs that it was shown, as preferences; each key once.

    Raises TypeError for what is no preference, ValueError for NaN and infinity, for a run that was not shown, for
    scores that disagree with the winner, and for a key given twice.
    """
    found = list(_each(returned, name, run_ids))
    for key, count in Counter(one.key for one in found).items():
        if count > 1:
            raise ValueError(f"returned {count} preferences called {key!r}, wanted a name of its own for each")
    return found


def _each(returned: object, name: str, run_ids: Sequence[str]) -> Iterator[Preference]:
    if isinstance(returned, Enum):
        returned = returned.value
    if isinstance(returned, Mapping) and "results" in returned:
        returned = _listed(returned["results"])
    if isinstance(returned, list | tuple) and not hasattr(returned, "_fields") and not _are_scores(returned):
        for one in returned:
            yield from _each(one, name, run_ids)
        if not returned:
            raise ValueError(f"returned nothing, wanted {WANTED}")
    elif returned is None or isinstance(returned, str):
        yield _made({"winner": returned}, name, run_ids)
    elif isinstance(returned, list | tuple) and _are_scores(returned):
        yield _made({"scores": returned}, name, run_ids)
    else:
        yield _made(_fields(returned), name, run_ids)


def _listed(results: object) -> object:
    return list(results) if isinstance(results, list | tuple) else [results]


def _are_scores(returned: Sequence[object]) -> bool:
    """Whether they are numbers, or None for each of several; one None is a result that does not apply."""
    are = all(one is None or as_number(one) is not None for one in returned)
    return are and list(returned) not in ([], [None])


def _fields(returned: object) -> dict[str, Any]:
    """The fields of a mapping or of an object, by our names."""
    known = ("key", "name", "scores", "winner", "value", "score", "comment", "reasoning", "metadata")
    own = _OWN if isinstance(returned, Preference) else ()  # an object of others may mean something else by them
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


def _made(fields: Mapping[str, Any], name: str, run_ids: Sequence[str]) -> Preference:
    scores = None if fields.get("scores") is None else _scores(fields["scores"], run_ids)
    said = _winner(fields)
    comment = fields.get("comment")
    won = said if scores is None else _higher(scores)
    if said is not None and said != won:
        raise ValueError(f"returned the winner {said} with the scores {list(scores or ())}, wanted them to agree")
    return Preference(
        winner=won,
        scores=scores,
        key=str(fields.get("key") or fields.get("name") or name),
        comment=_comment(fields.get("reasoning") if comment is None else comment, run_ids),
        metadata=fields.get("metadata") or None,
        **{name: check(fields[name]) for name, check in _OWN.items() if fields.get(name) is not None},
    )


def _scores(given: object, run_ids: Sequence[str]) -> tuple[float, float] | None:
    """Two scores by the order shown; None where neither is given."""
    if isinstance(given, Mapping):
        by_run = {str(run): score for run, score in given.items()}
        if by_run.keys() != {*run_ids}:
            wanted = ", ".join(run_ids)
            raise ValueError(f"returned scores of {short([*by_run])}, wanted one of each run shown: {wanted}")
        given = [by_run[run] for run in run_ids]
    if not isinstance(given, list | tuple) or len(given) != len(run_ids):
        raise ValueError(f"returned the scores {short(given)}, wanted {len(run_ids)}, in the order of `outputs`")
    if all(score is None for score in given):
        return None
    first, second = (_score(score) for score in given)
    return first, second


def _score(given: object) -> float:
    number = as_number(given)
    if number is None:
        raise TypeError(f"returned a score of type {type(given).__name__}, wanted a number")
    if not math.isfinite(number):
        raise ValueError(f"returned the score {number}, wanted a finite number")
    return float(number)


def _higher(scores: tuple[float, float]) -> Literal["first", "second", "tie"]:
    first, second = scores
    return "tie" if first == second else "first" if first > second else "second"


def _winner(fields: Mapping[str, Any]) -> Literal["first", "second", "tie"] | None:
    """What is said by `winner`, or by `value`; as LangChain has it, None with a score of 0.5 is a tie."""
    said = fields.get("winner", fields.get("value"))
    if said is None:
        return "tie" if "value" in fields and fields.get("score") == 0.5 else None
    text = str(getattr(said, "value", said)).strip().strip("[]").lower()
    if text not in _WINNERS:
        raise ValueError(f"returned {short(said)}, wanted {WANTED}")
    return _WINNERS[text]


def _comment(given: object, run_ids: Sequence[str]) -> str | None:
    """A text; of LangSmith's comments by run, each on its line, in the order shown."""
    if isinstance(given, Mapping):
        by_run = {str(run): text for run, text in given.items()}
        return "\n".join(str(by_run[run]) for run in run_ids if by_run.get(run)) or None
    return None if given is None else str(given)


def _a_text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"returned the prompt_hash {short(given)}, wanted a text")
    return given


def _a_count(given: object) -> int:
    if not isinstance(given, Integral) or isinstance(given, bool) or not 1 <= int(given) < 1 << 31:
        raise ValueError(f"returned the repeats {short(given)}, wanted a whole number of at least 1")
    return int(given)


def _a_share(given: object) -> float:
    number = as_number(given)
    if number is None or isinstance(number, bool) or not 0 <= number <= 1:
        raise ValueError(f"returned the agreement {short(given)}, wanted a number from 0 to 1")
    return number


def _a_place(given: object) -> Place:
    if given not in get_args(Place):
        raise ValueError(f"returned {short(given)} as shown_first, wanted first or second")
    return cast("Place", given)


_OWN: Mapping[str, Callable[[object], Any]] = {
    "prompt_hash": _a_text,
    "repeats": _a_count,
    "agreement": _a_share,
    "shown_first": _a_place,
}
"""What only our own Preference has, and a mapping may have too."""
