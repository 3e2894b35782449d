"""What a pairwise evaluator may return, and what becomes of it."""

import math
import uuid
from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

import numpy as np
import pytest
from langsmith.evaluation.evaluator import ComparisonEvaluationResult

from evalflows.evaluators.score import Preference, preferences

ONE, TWO = "run-1", "run-2"
RUNS = (ONE, TWO)
UUIDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def kept(returned: object, runs: Any = RUNS) -> Preference:
    (one,) = preferences(returned, "better", runs)
    return one


def said(returned: object) -> tuple[str | None, tuple[float, float] | None]:
    one = kept(returned)
    return one.winner, one.scores


class Verdict(Enum):
    FIRST = "A"
    EVEN = "C"


class Place(StrEnum):
    SECOND = "second"


@dataclass
class Own:
    """An object of a user's own."""

    winner: Any = None
    scores: Any = None
    comment: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)


Named = namedtuple("Named", ["key", "scores", "comment"])
Two = namedtuple("Two", ["mine", "theirs"])
Odd = namedtuple("Odd", ["mine", "note"])

SCORES: list[tuple[Any, str, tuple[float, float]]] = [
    ([1, 0], "first", (1, 0)),  # these three are those of LangSmith's guide
    ([0, 0], "tie", (0, 0)),
    ([True, False], "first", (1, 0)),
    ([np.int64(2), np.float32(2)], "tie", (2, 2)),
    (Two(mine=3, theirs=4), "second", (3, 4)),
    ({"scores": [1, 0]}, "first", (1, 0)),
    ({"scores": {ONE: 1, TWO: 0}}, "first", (1, 0)),
    ({"scores": [1, 0], "winner": "A"}, "first", (1, 0)),
    ({"scores": [2, 2], "winner": "tie"}, "tie", (2, 2)),
    (Own(scores=[1, 0]), "first", (1, 0)),
    (Preference(scores=(0, 1)), "second", (0, 1)),
]


@pytest.mark.parametrize(("returned", "winner", "scores"), SCORES)
def test_of_two_scores_the_higher_wins(returned: Any, winner: str, scores: tuple[float, float]) -> None:
    one = kept(returned)
    assert (one.winner, one.scores, one.key, one.status) == (winner, scores, "better", "scored")
    assert one.scores is not None and [type(score) for score in one.scores] == [float, float]


WINNERS: list[tuple[Any, str]] = [
    ("A", "first"),
    ("B", "second"),
    ("tie", "tie"),
    (" Tie\n", "tie"),
    ("[[B]]", "second"),
    (Verdict.FIRST, "first"),
    (Place.SECOND, "second"),
    ({"winner": "A", "comment": "short"}, "first"),
    ({"winner": Verdict.FIRST}, "first"),
    ({"winner": "B", "scores": [None, None]}, "second"),
    (Own(winner="B"), "second"),
    ({"results": {"winner": "B"}}, "second"),
    ({"results": [{"winner": "B"}]}, "second"),
]


@pytest.mark.parametrize(("returned", "winner"), WINNERS)
def test_a_winner_needs_no_scores(returned: Any, winner: str) -> None:
    assert said(returned) == (winner, None)


@pytest.mark.parametrize(
    "returned",
    [
        None,
        [None, None],
        {"scores": [None, None]},
        {"scores": {ONE: None, TWO: None}},
        {"value": None, "score": 0},
        Preference(),
        {"results": [None]},
    ],
)
def test_none_does_not_apply_and_is_no_tie(returned: Any) -> None:
    one = kept(returned)
    assert (one.winner, one.scores, one.status) == (None, None, "not_applicable")


def test_what_langsmith_returns_is_read_by_run_whatever_the_type_of_its_id() -> None:
    first, second = UUIDS
    result = ComparisonEvaluationResult(
        key="ranked", scores={second: 1, first: 0.5}, comment={second: "to the point", first: "long"}
    )
    (one,) = preferences(result, "better", [str(first), str(second)])
    assert (one.key, one.winner, one.scores, one.comment) == ("ranked", "second", (0.5, 1.0), "long\nto the point")
    turned = kept(result, [str(second), str(first)])
    assert (turned.winner, turned.scores, turned.comment) == ("first", (1.0, 0.5), "to the point\nlong")
    first, second = UUIDS
    for one, other in ((first, second), (str(first), str(second)), (first, str(second))):
        found = kept({"key": "k", "scores": {one: 0, other: 1}}, [str(first), str(second)])
        assert (found.winner, found.key) == ("second", "k")
    assert ComparisonEvaluationResult(key="k", scores={ONE: 1, TWO: 0}).scores.keys() == {ONE, TWO}


@pytest.mark.parametrize(
    ("given", "kept_as"),
    [
        ({"comment": "both are fine"}, "both are fine"),
        ({"comment": {TWO: "second", ONE: "first"}}, "first\nsecond"),
        ({"comment": {TWO: "only this"}}, "only this"),
        ({"comment": {TWO: "", ONE: None}}, None),
        ({"comment": None, "reasoning": "why"}, "why"),
        ({"comment": "said", "reasoning": "why"}, "said"),
        ({"comment": 3}, "3"),
    ],
)
def test_comments_are_one_text(given: dict[str, Any], kept_as: str | None) -> None:
    assert kept({"scores": [1, 0], **given}).comment == kept_as


def test_metadata_and_what_only_ours_has_are_kept() -> None:
    whole = Preference(winner="first", metadata={"a": 1}, prompt_hash="f" * 16, repeats=3, agreement=1 / 3)
    assert kept(whole) == Preference(
        winner="first", key="better", metadata={"a": 1}, prompt_hash="f" * 16, repeats=3, agreement=1 / 3
    )
    own = {"winner": "A", "prompt_hash": "x", "repeats": np.int64(2), "agreement": np.float64(1)}
    one = kept(own)
    assert (one.prompt_hash, one.repeats, one.agreement) == ("x", 2, 1.0)
    assert (type(one.repeats), type(one.agreement)) == (int, float)
    assert kept({"winner": "A", "metadata": {}, "color": "red"}) == Preference(winner="first", key="better")

    class Theirs:
        winner = "B"
        repeats = "never"
        prompt_hash = 3

    one = kept(Theirs())
    assert (one.winner, one.repeats, one.prompt_hash) == ("second", None, None)


REFUSED: list[tuple[Any, str]] = [
    ([math.nan, 0], "returned the score nan, wanted a finite number"),
    ({"scores": {ONE: math.inf, TWO: 0}}, "returned the score inf, wanted a finite number"),
    ([1e300, 0], r"returned the score 1e\+300, wanted a number between -1e\+60 and 1e\+60"),
    (
        {"scores": {"run-3": 1, ONE: 0}},
        r"returned scores for \['run-3', 'run-1'\], wanted one for each run shown: run-1,",
    ),
    ({"scores": {ONE: 1}}, r"returned scores for \['run-1'\], wanted one for each run shown: run-1, run-2"),
    ({"scores": {}}, r"returned scores for \[\], wanted one for each run shown"),
    ({"scores": []}, r"returned the scores \[\], wanted 2"),
    ({"scores": "10"}, "returned the scores '10', wanted 2"),
    (
        {"winner": "A", "scores": [0, 1]},
        r"returned the winner first with the scores \[0.0, 1.0\], wanted them to agree",
    ),
    (Preference(winner="first", scores=(0, 1)), "wanted them to agree"),
    ("", "returned '', wanted two scores"),
    ("A or B", "returned 'A or B', wanted two scores"),
    ({"winner": True}, "returned True, wanted two scores"),
    ({"key": "length", "value": 3}, "returned 3, wanted two scores"),
    ({"results": []}, "returned nothing, wanted two scores"),
    (["A", "B"], "returned 2 preferences called 'better', wanted a unique name for each"),
    ({"winner": "A", "repeats": 0}, "returned the repeats 0, wanted a whole number of at least 1"),
    ({"winner": "A", "repeats": True}, "returned the repeats True, wanted"),
    ({"winner": "A", "agreement": 1.01}, "returned the agreement 1.01, wanted a number from 0 to 1"),
    ({"winner": "A", "prompt_hash": 7}, "returned the prompt_hash 7, wanted a text"),
    # what is none of the types that a preference has
    (True, "returned bool, wanted two scores"),
    (np.float64(1), "returned float64, wanted two scores"),
    (np.array([1, 0]), "returned ndarray, wanted two scores"),
    ({"first": 1, "second": 0}, "returned a mapping with first, second, wanted two scores"),
    ({ONE: 1, TWO: 0}, "returned a mapping with run-1, run-2, wanted two scores"),
    (Odd(mine=1, note="x"), "returned Odd, wanted two scores"),
    ([1, None], "returned a score of type NoneType, wanted a number"),
    ({"scores": {ONE: None, TWO: 1}}, "returned a score of type NoneType, wanted a number"),
    ([1, "0"], "returned int, wanted two scores"),
]


@pytest.mark.parametrize(("returned", "message"), REFUSED)
def test_what_is_no_preference_or_cannot_be_kept_is_an_error_in_one_line(returned: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as raised:
        preferences(returned, "better", RUNS)
    assert "\n" not in str(raised.value)
