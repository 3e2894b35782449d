"""Return values of evaluators: single values and numbers that are not finite."""

import math
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returned_scores import LangfuseEvaluation, judgement_of

from evalflows.evaluators.score import Judgement, Score, normalise
from evalflows.specs.metric import MAX_NUMBER
from evalflows.store.records import DataType

# single values


@pytest.mark.parametrize(
    ("returned", "value", "data_type"),
    [
        (True, 1.0, "BOOLEAN"),
        (False, 0.0, "BOOLEAN"),
        (1, 1.0, "NUMERIC"),
        (0, 0.0, "NUMERIC"),
        (-2.5, -2.5, "NUMERIC"),
        (Fraction(1, 4), 0.25, "NUMERIC"),
        (np.bool_(True), 1.0, "BOOLEAN"),
        (np.bool_(False), 0.0, "BOOLEAN"),
        (np.int64(7), 7.0, "NUMERIC"),
        (np.float32(0.5), 0.5, "NUMERIC"),
        (np.float64(0.1), 0.1, "NUMERIC"),
        (np.array(0.75), 0.75, "NUMERIC"),
    ],
)
def test_a_bool_or_number_is_a_value(returned: object, value: float, data_type: DataType) -> None:
    judgement = judgement_of(returned)
    assert judgement == Judgement(metric="mine", value=value, data_type=data_type)
    assert type(judgement.value) is float


@pytest.mark.parametrize("label", ["correct", "", "0.5", "True", "nan", "nicht schlecht"])
def test_any_text_is_a_label_even_a_number(label: str) -> None:
    assert judgement_of(label) == Judgement(metric="mine", label=label, data_type="CATEGORICAL")


def test_numpys_text_is_a_label() -> None:
    assert judgement_of(np.str_("good")) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")


def test_none_does_not_apply() -> None:
    judgement = judgement_of(None)
    assert judgement == Judgement(metric="mine")
    assert judgement.status == "not_applicable"


@pytest.mark.parametrize("returned", [0, 0.0, False, "", {"score": 0}, {"label": ""}])
def test_falsy_values_are_scores(returned: object) -> None:
    assert judgement_of(returned).status == "scored"


class Grade(Enum):
    GOOD = "good"
    BAD = "bad"


class TextGrade(str, Enum):  # noqa: UP042 - the older spelling is what users have
    GOOD = "good"


class Stars(IntEnum):
    THREE = 3


def test_a_member_of_an_enum_is_its_value() -> None:
    assert judgement_of(Grade.GOOD) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")


def test_members_of_text_and_number_enums_are_texts_and_numbers() -> None:
    assert judgement_of(TextGrade.GOOD) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")
    assert judgement_of(Stars.THREE) == Judgement(metric="mine", value=3.0, data_type="NUMERIC")


@settings(deadline=None)
@given(st.floats(-MAX_NUMBER, MAX_NUMBER))
def test_any_finite_float_is_unchanged(number: float) -> None:
    for returned in (number, {"score": number}, Score(value=number), [number], np.float64(number)):
        assert judgement_of(returned).value == number


@settings(deadline=None)
@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_any_integer_that_fits_a_float_is_unchanged(number: int) -> None:
    assert judgement_of(number).value == number


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_label(text: str) -> None:
    for returned in (text, {"value": text}, Score(value=text), Score(label=text), LangfuseEvaluation("mine", text)):
        judgement = judgement_of(returned)
        assert (judgement.label, judgement.value, judgement.data_type) == (text, None, "CATEGORICAL")


@settings(deadline=None)
@given(st.lists(st.floats(-MAX_NUMBER, MAX_NUMBER), max_size=5))
def test_each_element_of_a_list_is_kept_in_order(numbers: list[float]) -> None:
    judgements = normalise([{"key": f"m{index}", "score": number} for index, number in enumerate(numbers)], "mine")
    if numbers:
        assert [(j.metric, j.value) for j in judgements] == [(f"m{i}", number) for i, number in enumerate(numbers)]
    else:
        assert judgements == [Judgement(metric="mine")]


# values that are not finite numbers


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: {"score": n}, lambda n: Score(value=n), lambda n: [n]])
def test_nan_and_infinity_are_rejected(number: float, wrap: Any) -> None:
    with pytest.raises(ValueError, match="wanted a finite number"):
        normalise(wrap(number), "mine")


@pytest.mark.parametrize("number", [1e300, -1e61, np.float64(1e100), 10**70])
def test_a_number_whose_powers_could_overflow_is_rejected(number: float) -> None:
    with pytest.raises(ValueError, match=r"wanted a number between -1e\+60 and 1e\+60"):
        normalise({"score": number}, "mine")


@pytest.mark.parametrize(
    "number", [10**400, Fraction(10**400), {"score": -(10**400)}], ids=["int", "Fraction", "mapping"]
)
def test_a_number_too_large_for_a_float_is_rejected(number: object) -> None:
    with pytest.raises(ValueError, match="wanted a finite number"):
        normalise(number, "mine")
