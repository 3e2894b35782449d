"""Errors in one line: where, what was got, what was wanted."""

from typing import get_args

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from evalflows.specs.errors import TRANSIENT, CallError, ErrorKind, InputError, describe, first_problem


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int


class Outer(BaseModel):
    name: str
    inner: list[Inner] = []

    @model_validator(mode="after")
    def _not_forbidden(self) -> "Outer":
        if self.name == "forbidden":
            raise ValueError("wanted another name")
        return self


def problem(**fields: object) -> str:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(fields)
    text = first_problem(caught.value, "WHERE")
    assert "\n" not in text
    return text


def test_a_missing_field_is_named() -> None:
    assert problem() == "WHERE: name: Field required"


def test_a_field_deep_inside_bears_its_path_and_what_was_got() -> None:
    assert problem(name="x", inner=[{"count": 1}, {"count": "many"}]).startswith("WHERE: inner.1.count: ")
    assert problem(name="x", inner=[{"count": 1}, {"count": "many"}]).endswith(", got 'many'")


def test_an_unknown_field_is_named() -> None:
    assert problem(name="x", inner=[{"count": 1, "cuont": 2}]).startswith("WHERE: inner.0.cuont: no such field")


def test_a_problem_of_the_whole_has_no_path() -> None:
    assert problem(name="forbidden").startswith("WHERE: wanted another name")


def test_further_problems_are_counted() -> None:
    assert problem(inner=[{"count": "a"}, {"count": "b"}]).endswith("(and 2 more)")


def test_what_was_got_is_shortened_and_stays_one_line() -> None:
    text = problem(name="x", inner=[{"count": "many\n" * 100}])
    assert len(text) < 250
    assert text.endswith("…")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\n  lines\tand more "), "ValueError: two lines and more"),
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (KeyError("name"), "KeyError: 'name'"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_exception_is_described_in_one_line_with_its_type(error: BaseException, text: str) -> None:
    assert describe(error) == text


def test_a_call_error_carries_what_to_do_about_it() -> None:
    error = CallError("rate_limited", "wait", attempts=3, retry_after_s=1.5)
    assert (str(error), error.kind, error.attempts, error.retry_after_s) == ("wait", "rate_limited", 3, 1.5)
    assert (CallError("timeout", "late").attempts, CallError("timeout", "late").retry_after_s) == (1, None)


def test_kinds_that_may_pass_are_kinds() -> None:
    assert set(get_args(ErrorKind)) > TRANSIENT


@pytest.mark.parametrize(
    "kind", ["raised", "bad_return", "authentication", "quota_exhausted", "bad_request", "no_output"]
)
def test_what_no_other_attempt_cures_is_not_transient(kind: str) -> None:
    assert kind in get_args(ErrorKind)
    assert kind not in TRANSIENT


def test_a_field_that_there_is_not_is_said_first_since_it_is_often_a_slip_for_one_that_lacks() -> None:
    assert problem(inner=[{"cuont": 2}]).startswith("WHERE: inner.0.cuont: no such field")


def test_an_input_error_is_one_line_whatever_is_in_it() -> None:
    assert str(InputError("a file: got\n  'two\tlines' ")) == "a file: got 'two lines'"
