"""rubric: how repeats and labels are combined."""

import asyncio
from typing import Any

import pytest
from rubric_judged import (
    ANSWER,
    QUESTION,
    RUBRIC,
    judged,
    labelling,
    scoring,
)

from evalflows.evaluators.rubric import rubric
from evalflows.evaluators.score import normalise
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Completion

# repeats


@pytest.mark.parametrize(
    ("scores", "combine", "value", "spread", "comment"),
    [
        # The distances from 11/3 are 4/3, 4/3 and 8/3: their squares make 96/9, which is 32/3, over 2 that is 16/3.
        ((5, 5, 1), "mean", 11 / 3, (16 / 3) ** 0.5, "repeat 0"),
        ((5, 5, 1), None, 11 / 3, (16 / 3) ** 0.5, "repeat 0"),
        ((1, 5, 5), "median", 5.0, (16 / 3) ** 0.5, "repeat 1"),
        ((1, 2, 4, 5), "median", 3.0, (10 / 3) ** 0.5, "repeat 1"),
        ((1, 2, 5), "median", 2.0, (13 / 3) ** 0.5, "repeat 1"),
        ((1, 2, 5), "mean", 8 / 3, (13 / 3) ** 0.5, "repeat 1"),
        ((3, 1, 1, 5), "majority", 1.0, (11 / 3) ** 0.5, "repeat 1"),
        ((5, 2, 2, 5), "majority", 5.0, 3.0**0.5, "repeat 0"),  # of a tie, what was said first
        ((2, 5, 5, 2, 3), "majority", 2.0, 2.3**0.5, "repeat 0"),
        ((4, 4, 4), "mean", 4.0, 0.0, "repeat 0"),
        ((3, 4), "mean", 3.5, 0.5**0.5, "repeat 0"),
    ],
)
def test_repeats_are_combined(
    scores: tuple[int, ...], combine: str | None, value: float, spread: float, comment: str
) -> None:
    (score,) = judged(scoring(*scores), repeats=len(scores), combine=combine)
    assert score.value == pytest.approx(value)
    assert score.spread == pytest.approx(spread)
    assert (score.repeats, score.comment) == (len(scores), comment)


def test_repeats_send_the_same_request_with_different_numbers() -> None:
    judge = scoring(4, 4, 4)
    judged(judge, repeats=3)
    assert sorted(parameters.pop("repeat") for _, parameters in judge.requests) == [0, 1, 2]
    assert judge.requests[0] == judge.requests[1] == judge.requests[2]


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({}, {"temperature": 0.0}),
        ({"repeats": 3}, {"temperature": 1.0}),
        ({"repeats": 3, "temperature": 0.0}, {"temperature": 0.0}),
        ({"repeats": 3, "temperature": 0.3}, {"temperature": 0.3}),
        ({"temperature": 1}, {"temperature": 1}),
        ({"temperature": None}, {}),
        ({"repeats": 3, "temperature": None}, {}),
    ],
)
def test_several_repeats_use_temperature_1_by_default(settings: dict[str, Any], parameters: dict[str, Any]) -> None:
    judge = scoring(4, 4, 4)
    judged(judge, **settings)
    for _, given in judge.requests:
        assert {name: given[name] for name in given.keys() - {"schema", "repeat"}} == parameters


def test_repeats_run_concurrently() -> None:
    under_way: list[int] = []

    async def complete(*_: Any, repeat: int, **__: Any) -> Completion:
        under_way.append(repeat)
        await asyncio.sleep(0.01)
        assert under_way == [0, 1, 2]
        return Completion(text="", parsed={"reasoning": "", "score": 1}, model="m", call_id="c")

    asyncio.run(rubric(QUESTION, ANSWER, None, {}, complete, rubric=RUBRIC, repeats=3))


def test_a_failed_repeat_fails_the_judgement_after_all_repeats_have_ended() -> None:
    judge = scoring(4, 4, 4)
    judge.says = [judge.says[0], CallError("refused", "no"), judge.says[2]]
    with pytest.raises(CallError, match="no") as raised:
        judged(judge, repeats=3)
    assert raised.value.kind == "refused"
    assert judge.finished == 3  # what the others cost is known by then


# labels


@pytest.mark.parametrize(
    ("labels", "label", "comment"),
    [
        (("bad", "good", "good"), "good", "repeat 1"),
        (("bad", "good", "good", "bad"), "bad", "repeat 0"),  # of a tie, what was said first
        (("fair", "bad", "good"), "fair", "repeat 0"),
        (("fair", "good", "bad", "good", "bad"), "good", "repeat 1"),
    ],
)
def test_labels_take_the_majority(labels: tuple[str, ...], label: str, comment: str) -> None:
    (score,) = judged(labelling(*labels), labels=["good", "fair", "bad"], repeats=len(labels))
    assert (score.value, score.label, score.comment) == (None, label, comment)
    assert (score.spread, score.repeats) == (None, len(labels))


def test_labels_can_have_numbers() -> None:
    (score,) = judged(labelling("bad", "good", "good"), labels={"good": 1, "fair": 0.5, "bad": 0}, repeats=3)
    assert (score.value, score.label) == (1.0, "good")  # not the mean of the numbers
    assert score.spread == pytest.approx((1 / 3) ** 0.5)


def test_a_label_with_the_number_0_has_a_value() -> None:
    (score,) = judged(labelling("bad"), labels={"good": 1, "bad": 0})
    (judgement,) = normalise(score, "tone")
    assert (judgement.value, judgement.label, judgement.data_type) == (0.0, "bad", "NUMERIC")
