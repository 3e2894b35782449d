"""concision: not much longer than the reference."""

from typing import Any

import pytest

from evalflows.evaluators.binding import concision


def concise(answer: Any, wanted: Any, **settings: Any) -> bool | None:
    return concision({"output": answer}, {"answer": wanted}, **settings)


@pytest.mark.parametrize(("length", "wanted"), [(0, True), (1, True), (20, True), (21, False), (1000, False)])
def test_twice_the_reference_is_the_most(length: int, wanted: bool) -> None:
    assert concise("a" * length, "b" * 10) is wanted


def test_how_much_longer_may_be_set_and_space_around_does_not_count() -> None:
    assert concise("a" * 15, "b" * 10, at_most=1.5) is True
    assert concise("a" * 16, "b" * 10, at_most=1.5) is False
    assert concise("a" * 30, "b" * 10, at_most=3) is True
    assert concise("a" * 6, "b" * 10, at_most=0.5) is False
    assert concise("  Paris" + "\n" * 20, "Paris") is True
    assert concise("Paris, France", f"Paris{' ' * 20}") is False


@pytest.mark.parametrize("reference", [None, {}, {"answer": None}, {"answer": ""}, {"answer": "  "}])
def test_without_a_reference_it_does_not_apply(reference: dict[str, Any] | None) -> None:
    assert concision({"output": "Paris"}, reference) is None


@pytest.mark.parametrize("at_most", [0, -1.0, float("nan")])
def test_a_bound_that_no_answer_meets_is_an_error(at_most: float) -> None:
    with pytest.raises(ValueError, match=r"at_most: got .*, wanted more than 0"):
        concise("Paris", "Paris", at_most=at_most)
