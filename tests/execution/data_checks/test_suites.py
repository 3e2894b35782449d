"""The expectations of a spec: from a list or a suite file, and what Great Expectations finds."""

import json
from pathlib import Path
from typing import Any

import pytest

from evalflows.data_checks.checks import check_dataset
from evalflows.data_checks.suites import load_expectations, suite_results
from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.specs.errors import InputError
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

ROWS = [{"inputs": {"question": question}, "metadata": {"topic": "ü"}} for question in ("one", "two", "two")]
TOPICS: dict[str, Any] = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"value_set": ["login"], "column": "metadata.topic"},
    "severity": "warning",
}
COUNT: dict[str, Any] = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 4}}
NOWHERE: dict[str, Any] = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "nowhere"}}


def of(store: Store, *own: dict[str, Any]) -> DatasetSpec:
    snapshot = freeze(store, to_examples(enumerate(ROWS, start=1), "rows"), name=None, source="rows")
    return DatasetSpec.model_validate({"snapshot": snapshot, "expectations": list(own)})


@pytest.mark.slow
def test_what_great_expectations_finds_and_cannot_check(store: Store) -> None:
    checks = store.read("checks", check_dataset(store, of(store, TOPICS, COUNT, NOWHERE)))
    topics, count, nowhere = (
        next(row for row in checks if (row.name, row.column_name) == (own["type"], own["kwargs"].get("column")))
        for own in (TOPICS, COUNT, NOWHERE)
    )
    assert (topics.passed, topics.severity, topics.n_checked, topics.n_unexpected) == (False, "warning", 3, 3)
    assert topics.message == (
        "wanted metadata.topic: column values to be in set (value_set ['login']); 3 of 3 fail, such as 'ü', 'ü', 'ü'"
    )
    assert (count.passed, count.severity, count.message) == (
        False,
        "error",
        "wanted table row count to equal (value 4); got 3",
    )
    assert nowhere.passed is None and str(nowhere.message).startswith("could not be checked: ")


@pytest.mark.slow
def test_an_unknown_expectation_is_bad_input(store: Store) -> None:
    with pytest.raises(InputError, match=r"^expectation 'expect_nonsense': expect_nonsense not found$"):
        suite_results(store, of(store, {"type": "expect_nonsense"}))


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


def test_a_suite_is_read_and_what_it_keeps_beside_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_expectations(None) == []
    given = [Expectation(type="a"), Expectation(type="b", kwargs={"x": 1})]
    assert load_expectations(given) == load_expectations(tuple(given)) == given
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + json.dumps(SUITE, indent=2).encode())
        assert load_expectations(str(path)) == [
            Expectation(type=ONE["type"], kwargs={"column": "id"}, severity="warning"),
            Expectation(type="expect_table_row_count_to_be_between", kwargs={"min_value": 1}, severity="critical"),
        ]
    path.write_text(json.dumps([ONE]), encoding="utf-8")
    monkeypatch.setenv("SUITES", str(path.parent))
    assert load_expectations("${SUITES}/suite.json") == [Expectation.model_validate(ONE)], "a list alone"
    monkeypatch.delenv("SUITES")
    with pytest.raises(InputError, match="the environment variable SUITES is not set"):
        load_expectations("${SUITES}/suite.json")


def test_a_file_that_is_no_suite_is_told(path: Path) -> None:
    for content in (b"", b"{", b"expectations:\n- type: x\n", b"[Infinity]", b'["caf\xe9"]', b"[" * 9999):
        assert problem(path, content).startswith(("FILE: not JSON: ", "FILE: not UTF-8"))
    assert "2.type: missing" in problem(path, {"expectations": [ONE, ONE, {"kwargs": {}}]})
