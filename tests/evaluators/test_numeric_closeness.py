"""numeric_closeness: the answer's last number is the reference's, nearly."""

from typing import Any

import pytest

from evalflows.evaluators.numbers import numeric_closeness
from evalflows.evaluators.score import Score


def judged(answer: Any, wanted: Any, **settings: Any) -> Score:
    score = numeric_closeness({"output": answer}, {"answer": wanted}, **settings)
    assert score is not None
    return score


def close(answer: Any, wanted: Any, **settings: Any) -> bool:
    value = judged(answer, wanted, **settings).value
    assert isinstance(value, bool)
    return value


@pytest.mark.parametrize("answer", ["42", "It is 42.", "6 times 7 is $42.00", "4.2e1", 42, 42.0, "42 km"])
@pytest.mark.parametrize("wanted", [42, 42.0, "42", "6 * 7 = 42\n#### 42"])
def test_the_same_number_is_close_however_it_is_written(answer: Any, wanted: Any) -> None:
    assert close(answer, wanted) is True


def test_the_comment_says_what_was_read_and_shortens_long_numbers() -> None:
    assert judged("about $1,234.50", 1000).comment == "read $1,234.50 (1234.50), wanted 1000"
    assert judged("42", 42).comment == "read 42, wanted 42"
    assert judged("3/4", "0.75").comment == "read 3/4 (0.75), wanted 0.75"
    assert len(judged("9" * 5000, 1).comment or "") < 200
    with pytest.raises(ValueError, match="no number") as caught:
        judged("1", "x" * 5000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("answer", ["I do not know", "", None, "GPT-4", "1. Paris\n2. Lyon", "2024-05-17", True])
def test_an_answer_without_a_number_is_wrong(answer: Any) -> None:
    assert judged(answer, 4) == Score(value=False, comment="no number in the answer")


@pytest.mark.parametrize("reference", ["Paris", "", True, float("inf"), "3-5", "3,14"])
def test_a_reference_without_a_number_is_an_error(reference: Any) -> None:
    with pytest.raises(ValueError, match="no number in the reference"):
        judged("42", reference)


def test_a_tolerance_is_what_is_written_includes_its_bound_and_the_larger_counts() -> None:
    for answer, reference, tolerance, right in (
        ("1.1", 1, {"absolute": 0.1, "relative": 0}, True),  # in floats 1.1 - 1 is more than 0.1
        ("0.9", 1, {"absolute": 0.1, "relative": 0}, True),
        ("1.1000001", 1, {"absolute": 0.1, "relative": 0}, False),
        ("0.89", 1, {"absolute": 0.1, "relative": 0}, False),
        ("1.3", 1, {"absolute": 0.3, "relative": 0}, True),  # as a float 0.3 is a little less
        ("110", 100, {"relative": 0.095}, False),  # of the reference
        ("100", 110, {"relative": 0.095}, True),
        ("-101", -100, {"relative": 0.01}, True),
        ("-101.1", -100, {"relative": 0.01}, False),
        ("101", -100, {"relative": 0.01}, False),
        ("105", 100, {"absolute": 5, "relative": 0.01}, True),
        ("105", 100, {"absolute": 0.01, "relative": 0.05}, True),
        ("105", 100, {"absolute": 4, "relative": 0.04}, False),
    ):
        assert close(answer, reference, **tolerance) is right, (answer, reference, tolerance)


def test_without_tolerance_every_digit_counts() -> None:
    exact = {"absolute": 0, "relative": 0}
    assert close(str(2**53 + 1), 2**53, **exact) is False  # as floats they are equal
    assert close(str(2**53 + 1), 2**53 + 1, **exact) is True
    assert close("9" * 5000 + "1", "9" * 5000 + "2", **exact) is False
    assert close("9" * 5000, "9" * 5000, **exact) is True
    assert close("1e400", "1e400", **exact) is True
    assert close("1e400", "1e401") is False
    assert close("1e999999999", 1) is False


def test_a_key_names_the_field_and_a_structure_is_no_number() -> None:
    outputs = {"answer": "42", "reasoning": "6 times 7"}
    assert numeric_closeness(outputs, {"wanted": 42}, key="answer") == Score(value=True, comment="read 42, wanted 42")
    assert numeric_closeness(outputs, {"answer": 42, "note": 7}, key="answer") == Score(
        value=True, comment="read 42, wanted 42"
    )
    assert numeric_closeness(outputs, {"wanted": 42}, key="reasoning") == Score(
        value=False, comment="read 7, wanted 42"
    )
    with pytest.raises(ValueError, match="answer: got a dict, wanted a text or a number; `key` names the field"):
        numeric_closeness({"answer": "42", "page": 7}, {"wanted": 7})
    with pytest.raises(ValueError, match="reference: got a dict"):
        numeric_closeness({"output": "7"}, {"answer": 42, "page": 7})
    with pytest.raises(ValueError, match="answer: got a list"):
        judged([1, 42], 42)
    assert close("50%", 50) is True
    assert close("50%", "50 %") is True
    assert close("50%", 0.5) is False


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf"), "1e-3"])
@pytest.mark.parametrize("name", ["absolute", "relative"])
def test_a_tolerance_is_a_number_from_nought_up(name: str, tolerance: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}: got .*, wanted a number of at least 0"):
        judged("42", 42, **{name: tolerance})
