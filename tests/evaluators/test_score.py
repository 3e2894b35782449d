"""Every form that an evaluator may return becomes one shape; what is no score is refused and named."""

import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from evalflows.evaluators.score import Judgement, Score, normalise
from evalflows.store.records import DataType


@dataclass
class EvaluationResult:
    """As LangSmith's: both score and value, either of them None."""

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
    """As Langfuse's Evaluation."""

    name: str
    value: Any
    comment: str | None = None
    metadata: dict[str, Any] | None = None
    data_type: Any = None
    config_id: Any = None


@dataclass
class Results:
    results: Any = field(default_factory=list)


def one(returned: object) -> Judgement:
    """The only judgement that a returned value becomes, by an evaluator called `mine`."""
    (judgement,) = normalise(returned, "mine")
    return judgement


# one value


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
    judgement = one(returned)
    assert judgement == Judgement(metric="mine", value=value, data_type=data_type)
    assert type(judgement.value) is float


@pytest.mark.parametrize("label", ["correct", "", "0.5", "True", "nan", "nicht schlecht"])
def test_a_text_is_a_label_whatever_it_says(label: str) -> None:
    assert one(label) == Judgement(metric="mine", label=label, data_type="CATEGORICAL")


def test_numpys_text_is_a_label() -> None:
    assert one(np.str_("good")) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")


def test_none_does_not_apply() -> None:
    judgement = one(None)
    assert judgement == Judgement(metric="mine")
    assert judgement.status == "not_applicable"


@pytest.mark.parametrize("returned", [0, 0.0, False, "", {"score": 0}, {"label": ""}])
def test_what_is_falsy_is_still_a_score(returned: object) -> None:
    assert one(returned).status == "scored"


class Grade(Enum):
    GOOD = "good"
    BAD = "bad"


class TextGrade(str, Enum):  # noqa: UP042 - the older spelling is what users have
    GOOD = "good"


class Stars(IntEnum):
    THREE = 3


def test_a_member_of_an_enum_is_its_value_under_the_evaluators_name() -> None:
    assert one(Grade.GOOD) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")


def test_members_of_text_and_number_enums_are_texts_and_numbers() -> None:
    assert one(TextGrade.GOOD) == Judgement(metric="mine", label="good", data_type="CATEGORICAL")
    assert one(Stars.THREE) == Judgement(metric="mine", value=3.0, data_type="NUMERIC")


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_finite_float_comes_back_equal(number: float) -> None:
    for returned in (number, {"score": number}, Score(value=number), [number], np.float64(number)):
        assert one(returned).value == number


@settings(deadline=None)
@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_any_integer_that_a_float_holds_comes_back_equal(number: int) -> None:
    assert one(number).value == number


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_label(text: str) -> None:
    for returned in (text, {"value": text}, Score(value=text), Score(label=text), LangfuseEvaluation("mine", text)):
        judgement = one(returned)
        assert (judgement.label, judgement.value, judgement.data_type) == (text, None, "CATEGORICAL")


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_each_element_of_a_list_is_kept_in_order(numbers: list[float]) -> None:
    judgements = normalise([{"key": f"m{index}", "score": number} for index, number in enumerate(numbers)], "mine")
    if numbers:
        assert [(j.metric, j.value) for j in judgements] == [(f"m{i}", number) for i, number in enumerate(numbers)]
    else:
        assert judgements == [Judgement(metric="mine")]


# what is no finite number


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: {"score": n}, lambda n: Score(value=n), lambda n: [n]])
def test_nan_and_infinity_are_refused(number: float, wrap: Any) -> None:
    with pytest.raises(ValueError, match="wanted a finite number"):
        normalise(wrap(number), "mine")


@pytest.mark.parametrize(
    "number", [10**400, Fraction(10**400), {"score": -(10**400)}], ids=["int", "Fraction", "mapping"]
)
def test_a_number_too_large_for_a_float_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match="wanted a finite number"):
        normalise(number, "mine")


# Score


def test_a_score_keeps_all_its_fields() -> None:
    score = Score(
        value=0.5, key="f1", label="fair", comment="half", metadata={"n": 2}, data_type="NUMERIC", config_id="config"
    )
    assert one(score) == Judgement(
        metric="f1",
        value=0.5,
        label="fair",
        comment="half",
        metadata={"n": 2},
        data_type="NUMERIC",
        config_id="config",
    )


def test_a_score_without_a_key_bears_the_evaluators_name() -> None:
    assert one(Score(value=True)) == Judgement(metric="mine", value=1.0, data_type="BOOLEAN")


def test_an_empty_score_does_not_apply_but_keeps_its_comment() -> None:
    judgement = one(Score(comment="no question was asked"))
    assert (judgement.status, judgement.comment) == ("not_applicable", "no question was asked")


# mappings


@pytest.mark.parametrize("name_field", ["key", "name"])
@pytest.mark.parametrize("value_field", ["score", "value"])
def test_a_mapping_in_either_spelling_is_a_score(name_field: str, value_field: str) -> None:
    returned = {name_field: "f1", value_field: 0.5, "comment": "half", "metadata": {"n": 2}}
    wanted = Judgement(metric="f1", value=0.5, data_type="NUMERIC", comment="half", metadata={"n": 2})
    assert one(returned) == wanted


def test_a_mapping_without_a_name_bears_the_evaluators() -> None:
    assert one({"score": True}) == Judgement(metric="mine", value=1.0, data_type="BOOLEAN")


@pytest.mark.parametrize("returned", [{"key": "f1", "score": None}, {"name": "f1", "value": None}])
def test_a_mapping_whose_score_is_none_does_not_apply(returned: dict[str, Any]) -> None:
    assert one(returned) == Judgement(metric="f1")
    assert one(returned).status == "not_applicable"


def test_a_score_and_a_value_beside_it_are_number_and_label() -> None:
    judgement = one({"key": "tone", "score": 0.8, "value": "polite"})
    assert (judgement.value, judgement.label, judgement.data_type) == (0.8, "polite", "NUMERIC")


def test_score_goes_before_value_where_both_are_numbers() -> None:
    assert one({"key": "f1", "score": 0.5, "value": 1}).value == 0.5
    assert one(EvaluationResult("f1", score=0.5, value=1)).value == 0.5


def test_a_text_in_score_is_a_label_and_no_number() -> None:
    assert one({"key": "grade", "score": "0.5"}) == Judgement(metric="grade", label="0.5", data_type="CATEGORICAL")


def test_a_bool_in_a_mapping_stays_a_bool() -> None:
    assert one({"score": np.bool_(False)}) == Judgement(metric="mine", value=0.0, data_type="BOOLEAN")


def test_a_mapping_with_other_fields_is_refused_and_they_are_named() -> None:
    with pytest.raises(TypeError, match="a mapping with accuracy, f1, wanted a bool"):
        normalise({"accuracy": 1, "f1": 0.5}, "mine")
    with pytest.raises(TypeError, match="a mapping with nothing"):
        normalise({}, "mine")


@pytest.mark.parametrize(("score", "kind"), [([1], "list"), ({"a": 1}, "dict"), (b"1", "bytes"), (1j, "complex")])
def test_a_score_that_is_no_number_is_refused_by_its_type(score: object, kind: str) -> None:
    with pytest.raises(TypeError, match=f"a score of type {kind}"):
        normalise({"key": "f1", "score": score}, "mine")


# objects


def test_an_object_like_langsmiths_is_a_score() -> None:
    returned = EvaluationResult(key="f1", score=0.5, comment="half", metadata={"n": 2})
    wanted = Judgement(metric="f1", value=0.5, data_type="NUMERIC", comment="half", metadata={"n": 2})
    assert one(returned) == wanted


def test_an_object_like_langsmiths_with_a_value_alone_is_a_label() -> None:
    assert one(EvaluationResult(key="tone", value="polite")) == Judgement(
        metric="tone", label="polite", data_type="CATEGORICAL"
    )


def test_an_object_like_langsmiths_without_either_does_not_apply() -> None:
    assert one(EvaluationResult(key="tone")) == Judgement(metric="tone")


def test_an_object_like_langfuses_is_a_score() -> None:
    returned = LangfuseEvaluation("tone", "polite", "kind", {"n": 2}, LangfuseType.CATEGORICAL, "config")
    assert one(returned) == Judgement(
        metric="tone",
        label="polite",
        data_type="CATEGORICAL",
        comment="kind",
        metadata={"n": 2},
        config_id="config",
    )


@pytest.mark.parametrize("declared", ["BOOLEAN", "boolean", LangfuseType.BOOLEAN])
def test_a_declared_data_type_goes_before_the_one_seen(declared: object) -> None:
    assert one(LangfuseEvaluation("ok", 1, data_type=declared)) == Judgement(
        metric="ok", value=1.0, data_type="BOOLEAN"
    )


@pytest.mark.parametrize("declared", [None, "TEXT"])
def test_a_data_type_that_is_none_of_ours_leaves_the_one_seen(declared: object) -> None:
    assert one({"name": "ok", "value": 1, "data_type": declared}).data_type == "NUMERIC"
    assert one({"name": "ok", "value": "a", "data_type": declared}).data_type == "CATEGORICAL"
    assert one({"name": "ok", "value": True, "data_type": declared}).data_type == "BOOLEAN"


@pytest.mark.parametrize("config_id", [UUID(int=5), 5])
def test_a_config_id_is_kept_as_text(config_id: object) -> None:
    assert one(LangfuseEvaluation("ok", 1, config_id=config_id)).config_id == str(config_id)


def test_a_comment_is_kept_as_text() -> None:
    assert one({"score": 1, "comment": ["a", 1]}).comment == "['a', 1]"


class Verdict(BaseModel):
    score: float
    comment: str


class Named(NamedTuple):
    key: str
    score: float


def test_a_pydantic_model_with_the_attributes_is_a_score() -> None:
    wanted = Judgement(metric="mine", value=0.5, data_type="NUMERIC", comment="half")
    assert one(Verdict(score=0.5, comment="half")) == wanted


def test_a_named_tuple_with_the_attributes_is_one_score() -> None:
    assert one(Named("f1", 0.5)) == Judgement(metric="f1", value=0.5, data_type="NUMERIC")


# several


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


# what is no score


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


# of a turn


def test_a_turn_is_kept_and_a_metric_may_have_one_score_a_turn_beside_that_of_the_run() -> None:
    returned = [Score(value=0.5), Score(value=1.0, turn=1), {"score": 0, "turn": 2}, Score(key="b", value=1, turn=1)]
    assert [(one.metric, one.turn, one.value) for one in normalise(returned, "mine")] == [
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

    judgement = one(Theirs())
    assert (judgement.value, judgement.turn, judgement.repeats) == (0.5, None, None)


# of a declared type


@pytest.mark.parametrize(
    ("given", "declared", "value", "label"),
    [
        (4, "NUMERIC", 4.0, None),
        (True, "NUMERIC", 1.0, None),
        (np.bool_(True), "NUMERIC", 1.0, None),
        (1, "BOOLEAN", 1.0, None),
        (0.0, "BOOLEAN", 0.0, None),
        (False, "BOOLEAN", 0.0, None),
        ("warm", "CATEGORICAL", None, "warm"),
        ("1", "CATEGORICAL", None, "1"),
        (3, "CATEGORICAL", None, "3"),
        (2.5, "CATEGORICAL", None, "2.5"),
        (True, "CATEGORICAL", None, "True"),
    ],
)
def test_a_score_of_the_declared_type_is_kept_as_that(
    given: object, declared: DataType, value: float | None, label: str | None
) -> None:
    for returned in ({"value": given, "data_type": declared}, LangfuseEvaluation("mine", given, data_type=declared)):
        assert one(returned) == Judgement(metric="mine", value=value, label=label, data_type=declared)


@pytest.mark.parametrize(
    ("given", "declared", "said"),
    [
        ("four", "NUMERIC", "returned 'four' as NUMERIC, wanted a number"),
        ("4", "NUMERIC", "returned '4' as NUMERIC, wanted a number"),
        ("yes", "BOOLEAN", "returned 'yes' as BOOLEAN, wanted true, false, 1 or 0"),
        (0.5, "BOOLEAN", "returned 0.5 as BOOLEAN, wanted true, false, 1 or 0"),
        (2, "BOOLEAN", "returned 2.0 as BOOLEAN, wanted"),
        (math.nan, "CATEGORICAL", "returned nan, wanted a finite number"),
    ],
)
def test_a_score_that_is_not_of_the_declared_type_is_refused(given: object, declared: DataType, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        normalise({"name": "mine", "value": given, "data_type": declared}, "mine")


def test_a_label_that_is_declared_has_no_number_beside_it() -> None:
    judgement = one({"score": 0.8, "value": "warm", "data_type": "CATEGORICAL"})
    assert (judgement.value, judgement.label, judgement.data_type) == (None, "warm", "CATEGORICAL")
    judgement = one({"score": 0.8, "value": "warm", "data_type": "NUMERIC"})
    assert (judgement.value, judgement.label, judgement.data_type) == (0.8, "warm", "NUMERIC")


@pytest.mark.parametrize("declared", ["NUMERIC", "BOOLEAN", "CATEGORICAL"])
def test_what_does_not_apply_does_not_whatever_was_declared(declared: DataType) -> None:
    judgement = one({"name": "mine", "value": None, "data_type": declared})
    assert (judgement.status, judgement.value, judgement.label) == ("not_applicable", None, None)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        *(("turn", given) for given in ("2", True, 0, 1.5)),
        *(("repeats", given) for given in ("three", 0)),
        *(("spread", given) for given in (float("nan"), -0.1, "0")),
        ("prompt_hash", 5),
    ],
)
def test_what_cannot_be_kept_beside_a_score_is_refused(field: str, given: object) -> None:
    with pytest.raises(ValueError, match=f"returned the {field} .*, wanted a "):
        normalise({"score": 1, field: given}, "mine")


def test_of_scores_of_turns_alone_a_row_says_that_the_run_has_none() -> None:
    whole, turn = normalise(Score(value=1.0, turn=3), "mine")
    assert (whole.metric, whole.turn, whole.status) == ("mine", None, "not_applicable")
    assert (turn.metric, turn.turn, turn.value) == ("mine", 3, 1.0)


@pytest.mark.parametrize(("value", "label"), [(1234567, "1234567"), (3.0, "3"), (2.5, "2.5"), (True, "True")])
def test_a_number_that_is_declared_a_label_is_its_text(value: object, label: str) -> None:
    judgement = one({"value": value, "data_type": "CATEGORICAL"})
    assert (judgement.value, judgement.label, judgement.data_type) == (None, label, "CATEGORICAL")
