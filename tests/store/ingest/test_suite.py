"""Expectations from a spec, or from a suite file in Great Expectations' format."""

import json
from pathlib import Path
from typing import Any

import pytest

from evalflows.data_checks.process import load_expectations
from evalflows.specs.dataset import Expectation
from evalflows.specs.errors import InputError

ONE = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
SUITE: dict[str, Any] = {
    "name": "faq",
    "id": None,
    "meta": {"great_expectations_version": "1.24"},
    "notes": None,
    "expectations": [
        ONE | {"id": "7", "meta": {"notes": "x"}, "severity": "warning"},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}, "rendered_content": []},
    ],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "suite.json"


def problem(path: Path, content: object = None) -> str:
    """Return the one-line error for a suite, with its path replaced by FILE."""
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(InputError) as caught:
        load_expectations(str(path))
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.replace(str(path), "FILE")


def test_those_of_a_spec_are_given_back() -> None:
    assert load_expectations(None) == []
    given = [Expectation(type="a"), Expectation(type="b", kwargs={"x": 1})]
    assert load_expectations(given) == given
    assert load_expectations(tuple(given)) == given


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_suite_is_read_and_what_it_keeps_beside_is_passed_over(path: Path, mark: bytes) -> None:
    path.write_bytes(mark + json.dumps(SUITE, indent=2).encode())
    assert load_expectations(str(path)) == [
        Expectation(type=ONE["type"], kwargs={"column": "id"}, severity="warning"),
        Expectation(type="expect_table_row_count_to_be_between", kwargs={"min_value": 1}, severity="critical"),
    ]
    path.write_text(json.dumps([ONE]), encoding="utf-8")
    assert load_expectations(str(path)) == [Expectation.model_validate(ONE)], "a list alone"


def test_the_path_may_hold_an_environment_variable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(json.dumps([ONE]), encoding="utf-8")
    monkeypatch.setenv("SUITES", str(path.parent))
    assert len(load_expectations("${SUITES}/suite.json")) == 1
    monkeypatch.delenv("SUITES")
    with pytest.raises(InputError, match="the environment variable SUITES is not set"):
        load_expectations("${SUITES}/suite.json")


@pytest.mark.parametrize("content", [b"", b"{", b"expectations:\n- type: x\n", b"[NaN]", b'["caf\xe9"]', b"[" * 9999])
def test_a_file_that_is_not_json_is_told(path: Path, content: bytes) -> None:
    assert problem(path, content).startswith(("FILE: not JSON: ", "FILE: not UTF-8: "))


def test_an_expectation_that_is_none_is_told_by_its_place(path: Path) -> None:
    assert "2.type: Field required" in problem(path, {"expectations": [ONE, ONE, {"kwargs": {}}]})
