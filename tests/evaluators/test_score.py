"""What an evaluator may return, and what becomes of it."""

import math
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.score import Judgement, Score, normalise
from evalflows.specs.metrics import MAX_NUMBER
from evalflows.store.records import DataType


@dataclass
class EvaluationResult:
    """A result like LangSmith's: it has score and value, and either can be None."""

    key: str
    score: Any = None
    value: Any = None
    comment: str | None = None
    metadata: dict[str, Any] | None = None


class LangfuseType(Enum):
    NUMERIC = "NUMERIC"
    BOOLEAN = "BOOLEAN"
    CATEGORICAL = "CATEGORICAL"


@dataclass
class LangfuseEvaluation:
    """A result like Langfuse's Evaluation."""

    name: str
    value: Any
    comment: str | None = None
    metadata: dict[str, Any] | None = None
    data_type: Any = None
    config_id: Any = None


@dataclass
class Results:
    results: Any = field(default_factory=list)


def judgement_of(returned: object) -> Judgement:
    """Return the only judgement that the evaluator `mine` makes of a return value."""
    (judgement,) = normalise(returned, "mine")
    return judgement


@pytest.mark.parametrize(
    ("returned", "value", "data_type"),
    [
        (True, 1.0, "BOOLEAN"),
        (1, 1.0, "NUMERIC"),
        (-2.5, -2.5, "NUMERIC"),
        (Fraction(1, 4), 0.25, "NUMERIC"),
        (np.bool_(True), 1.0, "BOOLEAN"),
        (np.int64(7), 7.0, "NUMERIC"),
        (np.float64(0.1), 0.1, "NUMERIC"),
        (np.array(0.75), 0.75, "NUMERIC"),
    ],
)
def test_a_bool_or_number_is_a_value(returned: object, value: float, data_type: DataType) -> None:
    judgement = judgement_of(returned)
    assert judgement == Judgement(metric="mine", value=value, data_type=data_type)
    assert type(judgement.value) is float


class Grade(Enum):
    GOOD = "good"
    BAD = "bad"


class TextGrade(str, Enum):  # noqa: UP042 - the older spelling is what users have
    GOOD = "good"


class Stars(IntEnum):
    THREE = 3


def test_a_member_of_an_enum_is_its_value() -> None:
    assert judgement_of(Grade.GOOD) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")
    assert judgement_of(TextGrade.GOOD) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")
    assert judgement_of(Stars.THREE) == Judgement(metric="mine", value=3.0, data_type="NUMERIC")


@given(st.floats(-MAX_NUMBER, MAX_NUMBER))
def test_any_finite_float_is_unchanged(number: float) -> None:
    for returned in (number, {"score": number}, Score(value=number), [number], np.float64(number)):
        assert judgement_of(returned).value == number


@given(st.text())
def test_any_text_is_a_label(text: str) -> None:
    for returned in (text, {"value": text}, Score(value=text), Score(label=text), LangfuseEvaluation("mine", text)):
        judgement = judgement_of(returned)
        assert (judgement.label, judgement.value, judgement.data_type) == (text, None, "CATEGORICAL")


@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: {"score": n}, lambda n: Score(value=n), lambda n: [n]])
def test_a_number_that_is_not_finite_or_whose_powers_could_overflow_is_rejected(wrap: Any) -> None:
    for number in (math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf"), 10**400, Fraction(10**400)):
        with pytest.raises(ValueError, match="wanted a finite number"):
            normalise(wrap(number), "mine")
    for number in (1e300, -1e61, np.float64(1e100), 10**70):
        with pytest.raises(ValueError, match=r"wanted a number between -1e\+60 and 1e\+60"):
            normalise(wrap(number), "mine")


def test_a_score_keeps_all_its_fields() -> None:
    score = Score(
        value=0.5, key="f1", label="fair", comment="half", metadata={"n": 2}, data_type="NUMERIC", config_id="config"
    )
    assert judgement_of(score) == Judgement(
        metric="f1", value=0.5, label="fair", comment="half", metadata={"n": 2}, data_type="NUMERIC", config_id="config"
    )
    judgement = judgement_of(Score(comment="no question was asked"))
    assert (judgement.status, judgement.comment) == ("not_applicable", "no question was asked")


def test_score_and_value_can_be_number_and_label() -> None:
    judgement = judgement_of({"key": "tone", "score": 0.8, "value": "polite"})
    assert (judgement.value, judgement.label, judgement.data_type) == (0.8, "polite", "NUMERIC")
    assert judgement_of({"key": "f1", "score": 0.5, "value": 1}).value == 0.5
    assert judgement_of(EvaluationResult("f1", score=0.5, value=1)).value == 0.5
    assert judgement_of({"key": "grade", "score": "0.5"}) == Judgement(
        metric="grade", label="0.5", data_type="CATEGORICAL"
    )
    assert judgement_of(EvaluationResult(key="tone", value="polite")) == Judgement(
        metric="tone", label="polite", data_type="CATEGORICAL"
    )


def test_a_mapping_with_other_fields_is_rejected_with_their_names() -> None:
    with pytest.raises(TypeError, match="a mapping with accuracy, f1, wanted a bool"):
        normalise({"accuracy": 1, "f1": 0.5}, "mine")
    with pytest.raises(TypeError, match="a mapping with nothing"):
        normalise({}, "mine")


@pytest.mark.parametrize(("score", "kind"), [([1], "list"), ({"a": 1}, "dict"), (b"1", "bytes"), (1j, "complex")])
def test_a_score_that_is_not_a_number_is_rejected_with_its_type(score: object, kind: str) -> None:
    with pytest.raises(TypeError, match=f"a score of type {kind}"):
        normalise({"key": "f1", "score": score}, "mine")


def test_a_declared_data_type_overrides_the_inferred_type_if_it_is_known() -> None:
    for declared in ("BOOLEAN", "boolean", LangfuseType.BOOLEAN):
        judgement = judgement_of(LangfuseEvaluation("ok", 1, data_type=declared))
        assert judgement == Judgement(metric="ok", value=1.0, data_type="BOOLEAN")
    for value, inferred in ((1, "NUMERIC"), ("a", "CATEGORICAL"), (True, "BOOLEAN")):
        for unknown in (None, "TEXT"):
            assert judgement_of({"name": "ok", "value": value, "data_type": unknown}).data_type == inferred


@pytest.mark.parametrize(
    ("given", "declared", "value", "label"),
    [
        (4, "NUMERIC", 4.0, None),
        (True, "NUMERIC", 1.0, None),
        (np.bool_(True), "NUMERIC", 1.0, None),
        (1, "BOOLEAN", 1.0, None),
        (0.0, "BOOLEAN", 0.0, None),
        ("warm", "CATEGORICAL", None, "warm"),
        ("1", "CATEGORICAL", None, "1"),
        (2.5, "CATEGORICAL", None, "2.5"),
        (" 0.5", "NUMERIC", 0.5, None),
        (Decimal("0.5"), "NUMERIC", 0.5, None),
    ],
)
def test_a_score_that_fits_the_declared_type_is_kept(
    given: object, declared: DataType, value: float | None, label: str | None
) -> None:
    for returned in ({"value": given, "data_type": declared}, LangfuseEvaluation("mine", given, data_type=declared)):
        assert judgement_of(returned) == Judgement(metric="mine", value=value, label=label, data_type=declared)


@pytest.mark.parametrize(
    ("given", "declared", "said"),
    [
        ("four", "NUMERIC", "returned 'four' as NUMERIC, wanted a number"),
        ("nan", "NUMERIC", "returned 'nan' as NUMERIC, wanted a number"),
        ("yes", "BOOLEAN", "returned 'yes' as BOOLEAN, wanted true, false, 1 or 0"),
        (0.5, "BOOLEAN", "returned 0.5 as BOOLEAN, wanted true, false, 1 or 0"),
        (2, "BOOLEAN", "returned 2.0 as BOOLEAN, wanted"),
        (math.nan, "CATEGORICAL", "returned nan, wanted a finite number"),
    ],
)
def test_a_score_that_does_not_fit_the_declared_type_is_rejected(given: object, declared: DataType, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        normalise({"name": "mine", "value": given, "data_type": declared}, "mine")


def test_an_error_instead_of_a_score_is_a_failure_and_explanations_are_comments() -> None:
    failed, applies_not, good = normalise(
        [
            {"name": "a", "score": None, "error": ValueError("no answer"), "reason": "none"},
            {"name": "b", "score": None, "error": None, "explanation": "not a question"},
            {"name": "c", "score": 1, "error": "retried", "comment": None, "reasoning": "right"},
        ],
        "mine",
    )
    assert (failed.status, failed.error, failed.value) == ("failed", "ValueError: no answer", None)
    assert (applies_not.status, applies_not.comment) == ("not_applicable", "not a question")
    assert (good.status, good.value, good.comment) == ("scored", 1.0, "right")


@pytest.mark.parametrize(
    ("field", "given"),
    [
        *(("turn", given) for given in ("2", True, 0, 1.5)),
        *(("repeats", given) for given in ("three", 0)),
        *(("spread", given) for given in (float("nan"), -0.1, "0")),
        ("prompt_hash", 5),
    ],
)
def test_invalid_fields_of_a_score_are_rejected(field: str, given: object) -> None:
    with pytest.raises(ValueError, match=f"returned the {field} .*, wanted a "):
        normalise({"score": 1, field: given}, "mine")


def test_scores_of_turns_only_add_a_not_applicable_score_of_the_run() -> None:
    whole, turn = normalise(Score(value=1.0, turn=3), "mine")
    assert (whole.metric, whole.turn, whole.status) == ("mine", None, "not_applicable")
    assert (turn.metric, turn.turn, turn.value) == ("mine", 3, 1.0)


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
        pd.NaT,
        pd.Timestamp(0),
        pd.Timedelta(0),
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_a_value_that_is_not_a_score_is_rejected_with_its_type(returned: object) -> None:
    with pytest.raises(TypeError, match=f"^returned {type(returned).__name__}, wanted a bool, a number"):
        normalise(returned, "mine")


def test_a_metric_can_have_one_score_per_turn_and_one_of_the_run() -> None:
    returned = [Score(value=0.5), Score(value=1.0, turn=1), {"score": 0, "turn": 2}, Score(key="b", value=1, turn=1)]
    assert [(judgement.metric, judgement.turn, judgement.value) for judgement in normalise(returned, "mine")] == [
        ("mine", None, 0.5),
        ("mine", 1, 1.0),
        ("mine", 2, 0.0),
        ("b", 1, 1.0),
    ]
    with pytest.raises(ValueError, match="returned 2 scores called 'mine' for turn 3, wanted"):
        normalise([Score(value=0.5, turn=3), Score(value=0.5, turn=3), Score(value=0.5)], "mine")
    with pytest.raises(ValueError, match="returned 2 scores called 'mine', wanted"):
        normalise([Score(value=0.5), Score(value=0.5), Score(value=0.5, turn=3)], "mine")


def test_prompt_hash_repeats_spread_and_turn_are_kept_of_a_score_only() -> None:
    judgement = normalise(Score(value=0.5, prompt_hash="abc", repeats=3, spread=0.1, turn=2), "mine")[-1]
    assert (judgement.prompt_hash, judgement.repeats, judgement.spread, judgement.turn) == ("abc", 3, 0.1, 2)

    @dataclass
    class Theirs:
        score: float = 0.5
        turn: str = "the second"
        repeats: str = "many"

    judgement = judgement_of(Theirs())
    assert (judgement.value, judgement.turn, judgement.repeats) == (0.5, None, None)
