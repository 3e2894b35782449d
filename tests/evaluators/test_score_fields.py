"""Return values of evaluators: Score, mappings and objects with the fields of a score."""

from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from pydantic import BaseModel
from returned_scores import EvaluationResult, LangfuseEvaluation, LangfuseType, judgement_of

from evalflows.evaluators.score import Judgement, Score, normalise

# Score


def test_a_score_keeps_all_its_fields() -> None:
    score = Score(
        value=0.5, key="f1", label="fair", comment="half", metadata={"n": 2}, data_type="NUMERIC", config_id="config"
    )
    assert judgement_of(score) == Judgement(
        metric="f1",
        value=0.5,
        label="fair",
        comment="half",
        metadata={"n": 2},
        data_type="NUMERIC",
        config_id="config",
    )


def test_a_score_without_a_key_has_the_name_of_the_evaluator() -> None:
    assert judgement_of(Score(value=True)) == Judgement(metric="mine", value=1.0, data_type="BOOLEAN")


def test_an_empty_score_does_not_apply_but_keeps_its_comment() -> None:
    judgement = judgement_of(Score(comment="no question was asked"))
    assert (judgement.status, judgement.comment) == ("not_applicable", "no question was asked")


# mappings


@pytest.mark.parametrize("name_field", ["key", "name"])
@pytest.mark.parametrize("value_field", ["score", "value"])
def test_a_mapping_in_either_spelling_is_a_score(name_field: str, value_field: str) -> None:
    returned = {name_field: "f1", value_field: 0.5, "comment": "half", "metadata": {"n": 2}}
    wanted = Judgement(metric="f1", value=0.5, data_type="NUMERIC", comment="half", metadata={"n": 2})
    assert judgement_of(returned) == wanted


def test_a_mapping_without_a_name_has_the_name_of_the_evaluator() -> None:
    assert judgement_of({"score": True}) == Judgement(metric="mine", value=1.0, data_type="BOOLEAN")


@pytest.mark.parametrize("returned", [{"key": "f1", "score": None}, {"name": "f1", "value": None}])
def test_a_mapping_whose_score_is_none_does_not_apply(returned: dict[str, Any]) -> None:
    assert judgement_of(returned) == Judgement(metric="f1")
    assert judgement_of(returned).status == "not_applicable"


def test_score_and_value_can_be_number_and_label() -> None:
    judgement = judgement_of({"key": "tone", "score": 0.8, "value": "polite"})
    assert (judgement.value, judgement.label, judgement.data_type) == (0.8, "polite", "NUMERIC")


def test_score_takes_precedence_over_value_if_both_are_numbers() -> None:
    assert judgement_of({"key": "f1", "score": 0.5, "value": 1}).value == 0.5
    assert judgement_of(EvaluationResult("f1", score=0.5, value=1)).value == 0.5


def test_a_text_in_score_is_a_label() -> None:
    assert judgement_of({"key": "grade", "score": "0.5"}) == Judgement(
        metric="grade", label="0.5", data_type="CATEGORICAL"
    )


def test_a_bool_in_a_mapping_stays_a_bool() -> None:
    assert judgement_of({"score": np.bool_(False)}) == Judgement(metric="mine", value=0.0, data_type="BOOLEAN")


def test_a_mapping_with_other_fields_is_rejected_with_their_names() -> None:
    with pytest.raises(TypeError, match="a mapping with accuracy, f1, wanted a bool"):
        normalise({"accuracy": 1, "f1": 0.5}, "mine")
    with pytest.raises(TypeError, match="a mapping with nothing"):
        normalise({}, "mine")


@pytest.mark.parametrize(("score", "kind"), [([1], "list"), ({"a": 1}, "dict"), (b"1", "bytes"), (1j, "complex")])
def test_a_score_that_is_not_a_number_is_rejected_with_its_type(score: object, kind: str) -> None:
    with pytest.raises(TypeError, match=f"a score of type {kind}"):
        normalise({"key": "f1", "score": score}, "mine")


# objects


def test_an_object_like_langsmiths_is_a_score() -> None:
    returned = EvaluationResult(key="f1", score=0.5, comment="half", metadata={"n": 2})
    wanted = Judgement(metric="f1", value=0.5, data_type="NUMERIC", comment="half", metadata={"n": 2})
    assert judgement_of(returned) == wanted


def test_an_object_like_langsmiths_with_only_a_value_is_a_label() -> None:
    assert judgement_of(EvaluationResult(key="tone", value="polite")) == Judgement(
        metric="tone", label="polite", data_type="CATEGORICAL"
    )


def test_an_object_like_langsmiths_without_score_and_value_does_not_apply() -> None:
    assert judgement_of(EvaluationResult(key="tone")) == Judgement(metric="tone")


def test_an_object_like_langfuses_is_a_score() -> None:
    returned = LangfuseEvaluation("tone", "polite", "kind", {"n": 2}, LangfuseType.CATEGORICAL, "config")
    assert judgement_of(returned) == Judgement(
        metric="tone",
        label="polite",
        data_type="CATEGORICAL",
        comment="kind",
        metadata={"n": 2},
        config_id="config",
    )


@pytest.mark.parametrize("declared", ["BOOLEAN", "boolean", LangfuseType.BOOLEAN])
def test_a_declared_data_type_overrides_the_inferred_type(declared: object) -> None:
    assert judgement_of(LangfuseEvaluation("ok", 1, data_type=declared)) == Judgement(
        metric="ok", value=1.0, data_type="BOOLEAN"
    )


@pytest.mark.parametrize("declared", [None, "TEXT"])
def test_an_unknown_data_type_keeps_the_inferred_type(declared: object) -> None:
    assert judgement_of({"name": "ok", "value": 1, "data_type": declared}).data_type == "NUMERIC"
    assert judgement_of({"name": "ok", "value": "a", "data_type": declared}).data_type == "CATEGORICAL"
    assert judgement_of({"name": "ok", "value": True, "data_type": declared}).data_type == "BOOLEAN"


@pytest.mark.parametrize("config_id", [UUID(int=5), 5])
def test_a_config_id_is_kept_as_text(config_id: object) -> None:
    assert judgement_of(LangfuseEvaluation("ok", 1, config_id=config_id)).config_id == str(config_id)


def test_a_comment_is_kept_as_text() -> None:
    assert judgement_of({"score": 1, "comment": ["a", 1]}).comment == "['a', 1]"


class Verdict(BaseModel):
    score: float
    comment: str


class Named(NamedTuple):
    key: str
    score: float


def test_a_pydantic_model_with_the_attributes_is_a_score() -> None:
    wanted = Judgement(metric="mine", value=0.5, data_type="NUMERIC", comment="half")
    assert judgement_of(Verdict(score=0.5, comment="half")) == wanted


def test_a_named_tuple_with_the_attributes_is_one_score() -> None:
    assert judgement_of(Named("f1", 0.5)) == Judgement(metric="f1", value=0.5, data_type="NUMERIC")
