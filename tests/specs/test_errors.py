"""Errors in one line: where, what was got, what was wanted."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from evalflows.specs.errors import first_problem, names_to_choose


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


def test_a_problem_is_one_line_with_its_path_and_what_was_got() -> None:
    assert problem(name="x", inner=[{"count": 1}, {"count": "many"}]).startswith("WHERE: inner.1.count: ")
    assert problem(name="x", inner=[{"count": 1}, {"count": "many"}]).endswith(": got 'many', wanted a whole number")
    assert problem(name="forbidden").startswith("WHERE: wanted another name")
    assert problem(inner=[{"count": "a"}, {"count": "b"}]).endswith("(and 2 more)")
    text = problem(name="x", inner=[{"count": "many\n" * 100}])
    assert len(text) < 250
    assert "…" in text


NAMES = ["support-brief", "support-plain", "faq"]


def test_names_close_to_a_wrong_one_are_named_or_the_first() -> None:
    assert names_to_choose("suport-plain", NAMES) == "support-plain or support-brief"
    assert names_to_choose("fqa", NAMES) == "faq"
    assert names_to_choose("demoo", NAMES, ["demo"]) == "demo"
    assert names_to_choose("else", NAMES, ["demo"]) == "one of: support-brief, support-plain, faq"
    assert names_to_choose("x", (str(n) for n in range(12))) == "one of: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"
    assert names_to_choose("x", ["a", "b", "c"], most=2) == "one of: a, b, …"
    assert names_to_choose("x", []) == "one of: none yet"
