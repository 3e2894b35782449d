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
def test_several_scores_may_come_in_any_container(wrap: Any) -> None:
    assert normalise(wrap(SEVERAL), "mine") == SEVERAL_WANTED


@pytest.mark.parametrize("returned", [[], (), {"results": []}, Results([]), [[]]])
def test_no_score_at_all_does_not_apply(returned: object) -> None:
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
def test_two_scores_of_one_name_are_refused(returned: object, name: str) -> None:
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
def test_what_is_no_score_is_refused_by_its_type(returned: object) -> None:
    with pytest.raises(TypeError, match=f"^returned {type(returned).__name__}, wanted a bool, a number"):
        normalise(returned, "mine")


def test_what_is_no_score_inside_a_list_is_refused_too() -> None:
    with pytest.raises(TypeError, match=r"^returned set, wanted"):
        normalise([1, {2}], "mine")


def test_an_async_evaluator_that_was_not_awaited_is_refused() -> None:
    async def judge() -> float:
        return 0.5

    coroutine = judge()
    with pytest.raises(TypeError, match=r"^returned coroutine, wanted"):
        normalise(coroutine, "mine")
    coroutine.close()


# scores of turns


def test_a_turn_is_kept_and_a_metric_may_have_one_score_a_turn_beside_that_of_the_run() -> None:
    returned = [Score(value=0.5), Score(value=1.0, turn=1), {"score": 0, "turn": 2}, Score(key="b", value=1, turn=1)]
    assert [(judgement.metric, judgement.turn, judgement.value) for judgement in normalise(returned, "mine")] == [
        ("mine", None, 0.5),
        ("mine", 1, 1.0),
        ("mine", 2, 0.0),
        ("b", 1, 1.0),
    ]


def test_two_scores_of_one_name_and_turn_are_refused() -> None:
    with pytest.raises(ValueError, match="returned 2 scores called 'mine' for turn 3, wanted"):
        normalise([Score(value=0.5, turn=3), Score(value=0.5, turn=3), Score(value=0.5)], "mine")
    with pytest.raises(ValueError, match="returned 2 scores called 'mine', wanted"):
        normalise([Score(value=0.5), Score(value=0.5), Score(value=0.5, turn=3)], "mine")


def test_what_a_score_says_of_its_judge_is_kept() -> None:
    judgement = normalise(Score(value=0.5, prompt_hash="abc", repeats=3, spread=0.1, turn=2), "mine")[-1]
    assert (judgement.prompt_hash, judgement.repeats, judgement.spread, judgement.turn) == ("abc", 3, 0.1, 2)


def test_another_objects_attributes_of_those_names_are_its_own_affair() -> None:
    @dataclass
    class Theirs:
        score: float = 0.5
        turn: str = "the second"
        repeats: str = "many"

    judgement = judgement_of(Theirs())
    assert (judgement.value, judgement.turn, judgement.repeats) == (0.5, None, None)
