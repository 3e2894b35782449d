"""Return values of evaluators with a declared data type."""

import math

import numpy as np
import pytest
from returned_scores import LangfuseEvaluation, judgement_of

from evalflows.evaluators.score import Judgement, Score, normalise
from evalflows.store.records import DataType


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
        assert judgement_of(returned) == Judgement(metric="mine", value=value, label=label, data_type=declared)


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
    judgement = judgement_of({"score": 0.8, "value": "warm", "data_type": "CATEGORICAL"})
    assert (judgement.value, judgement.label, judgement.data_type) == (None, "warm", "CATEGORICAL")
    judgement = judgement_of({"score": 0.8, "value": "warm", "data_type": "NUMERIC"})
    assert (judgement.value, judgement.label, judgement.data_type) == (0.8, "warm", "NUMERIC")


@pytest.mark.parametrize("declared", ["NUMERIC", "BOOLEAN", "CATEGORICAL"])
def test_what_does_not_apply_does_not_whatever_was_declared(declared: DataType) -> None:
    judgement = judgement_of({"name": "mine", "value": None, "data_type": declared})
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
    judgement = judgement_of({"value": value, "data_type": "CATEGORICAL"})
    assert (judgement.value, judgement.label, judgement.data_type) == (None, label, "CATEGORICAL")
