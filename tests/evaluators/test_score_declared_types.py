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
def test_a_score_that_fits_the_declared_type_is_kept(
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
def test_a_score_that_does_not_fit_the_declared_type_is_rejected(given: object, declared: DataType, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        normalise({"name": "mine", "value": given, "data_type": declared}, "mine")


def test_a_declared_label_has_no_number() -> None:
    judgement = judgement_of({"score": 0.8, "value": "warm", "data_type": "CATEGORICAL"})
    assert (judgement.value, judgement.label, judgement.data_type) == (None, "warm", "CATEGORICAL")
    judgement = judgement_of({"score": 0.8, "value": "warm", "data_type": "NUMERIC"})
    assert (judgement.value, judgement.label, judgement.data_type) == (0.8, "warm", "NUMERIC")


@pytest.mark.parametrize("declared", ["NUMERIC", "BOOLEAN", "CATEGORICAL"])
def test_a_declared_type_does_not_change_not_applicable(declared: DataType) -> None:
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
def test_invalid_fields_of_a_score_are_rejected(field: str, given: object) -> None:
    with pytest.raises(ValueError, match=f"returned the {field} .*, wanted a "):
        normalise({"score": 1, field: given}, "mine")


def test_scores_of_turns_only_add_a_not_applicable_score_of_the_run() -> None:
    whole, turn = normalise(Score(value=1.0, turn=3), "mine")
    assert (whole.metric, whole.turn, whole.status) == ("mine", None, "not_applicable")
    assert (turn.metric, turn.turn, turn.value) == ("mine", 3, 1.0)


@pytest.mark.parametrize(("value", "label"), [(1234567, "1234567"), (3.0, "3"), (2.5, "2.5"), (True, "True")])
def test_a_number_declared_as_a_label_becomes_its_text(value: object, label: str) -> None:
    judgement = judgement_of({"value": value, "data_type": "CATEGORICAL"})
    assert (judgement.value, judgement.label, judgement.data_type) == (None, label, "CATEGORICAL")
