"""Return values of evaluators: lists of scores, scores of turns, and values that are not scores."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from returned_scores import EvaluationResult, LangfuseEvaluation, LangfuseType, Results, judgement_of

from evalflows.evaluators.score import Judgement, Score, normalise

# several at once


SEVERAL = [{"key": "precision", "score": 0.5}, EvaluationResult("recall", 1), LangfuseEvaluation("tone", "kind"), True]
SEVERAL_WANTED = [
    Judgement(metric="precision", value=0.5, data_type="NUMERIC"),
    Judgement(metric="recall", value=1.0, data_type="NUMERIC"),
    Judgement(metric="tone", label="kind", data_type="CATEGORICAL"),
    Judgement(metric="mine", value=1.0, data_type="BOOLEAN"),
]


@pytest.mark.parametrize(
    "wrap", [list, tuple, lambda r: {"results": r}, Results, lambda r: [Results(r[:2]), {"results": r[2:]}]]
)
def test_several_scores_can_be_in_any_container(wrap: Any) -> None:
    assert normalise(wrap(SEVERAL), "mine") == SEVERAL_WANTED


@pytest.mark.parametrize("returned", [[], (), {"results": []}, Results([]), [[]]])
def test_an_empty_list_of_scores_does_not_apply(returned: object) -> None:
    assert normalise(returned, "mine") == [Judgement(metric="mine")]


@pytest.mark.parametrize(
    ("returned", "name"),
    [
        ([0.5, 0.5], "mine"),
        ([True, {"key": "mine", "score": 1}], "mine"),
        ([{"key": "f1", "score": 1}, {"name": "f1", "value": 0}], "f1"),
        ({"results": [Score(key="f1"), Score(key="f1")]}, "f1"),
        ([None, None], "mine"),
    ],
)
def test_two_scores_with_the_same_name_are_rejected(returned: object, name: str) -> None:
    with pytest.raises(ValueError, match=f"2 scores called '{name}'"):
        normalise(returned, "mine")


# values that are not scores


@pytest.mark.parametrize(
    "returned",
    [
        {1, 2},
        frozenset({"a"}),
        b"good",
        bytearray(b"g"),
        memoryview(b"g"),
        object(),
        1j,
        np.array([0.5, 0.5]),
        np.array([0.5]),
        (number for number in [1]),
        LangfuseType,
        print,
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_a_value_that_is_not_a_score_is_rejected_with_its_type(returned: object) -> None:
    with pytest.raises(TypeError, match=f"^returned {type(returned).__name__}, wanted a bool, a number"):
        normalise(returned, "mine")


def test_a_value_in_a_list_that_is_not_a_score_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"^returned set, wanted"):
        normalise([1, {2}], "mine")


def test_a_coroutine_is_rejected() -> None:
    async def judge() -> float:
        return 0.5

    coroutine = judge()
    with pytest.raises(TypeError, match=r"^returned coroutine, wanted"):
        normalise(coroutine, "mine")
    coroutine.close()


# scores of turns


def test_a_metric_can_have_a_score_per_turn_and_a_score_of_the_run() -> None:
    returned = [Score(value=0.5), Score(value=1.0, turn=1), {"score": 0, "turn": 2}, Score(key="b", value=1, turn=1)]
    assert [(judgement.metric, judgement.turn, judgement.value) for judgement in normalise(returned, "mine")] == [
        ("mine", None, 0.5),
        ("mine", 1, 1.0),
        ("mine", 2, 0.0),
        ("b", 1, 1.0),
    ]


def test_two_scores_with_the_same_name_and_turn_are_rejected() -> None:
    with pytest.raises(ValueError, match="returned 2 scores called 'mine' for turn 3, wanted"):
        normalise([Score(value=0.5, turn=3), Score(value=0.5, turn=3), Score(value=0.5)], "mine")
    with pytest.raises(ValueError, match="returned 2 scores called 'mine', wanted"):
        normalise([Score(value=0.5), Score(value=0.5), Score(value=0.5, turn=3)], "mine")


def test_prompt_hash_repeats_spread_and_turn_are_kept() -> None:
    judgement = normalise(Score(value=0.5, prompt_hash="abc", repeats=3, spread=0.1, turn=2), "mine")[-1]
    assert (judgement.prompt_hash, judgement.repeats, judgement.spread, judgement.turn) == ("abc", 3, 0.1, 2)


def test_attributes_of_other_objects_with_these_names_are_ignored() -> None:
    @dataclass
    class Theirs:
        score: float = 0.5
        turn: str = "the second"
        repeats: str = "many"

    judgement = judgement_of(Theirs())
    assert (judgement.value, judgement.turn, judgement.repeats) == (0.5, None, None)
