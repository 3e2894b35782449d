"""Checks in blocks of examples: the same as on all of them at once."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from evalflows.data_checks import checks as frames
from evalflows.data_checks.checks import run_expectations
from evalflows.specs.dataset import Expectation
from evalflows.store.records import CheckRow
from evalflows.store.snapshots import freeze, load_snapshot, to_examples
from evalflows.store.store import Store

ROWS: list[dict[str, Any]] = [
    {"inputs": {"q": "one", "tone": "dry"}, "outputs": "1", "metadata": {"topic": 1}},
    {"inputs": {"q": "two"}, "outputs": "2"},
    {"inputs": {"q": " "}, "metadata": {"topic": 3}},
    {"inputs": {"q": "one", "tone": "dry"}, "outputs": "1", "metadata": {"topic": 9}},
    {"inputs": {"q": "x" * 3000}},
]
OWN = [
    Expectation(type="expect_column_mean_to_be_between", kwargs={"column": "metadata.topic", "max_value": 4}),
    Expectation(type="expect_table_row_count_to_equal", kwargs={"value": 5}),
]


def checks(store: Store, own: list[Expectation]) -> list[CheckRow]:
    snapshot = freeze(store, to_examples(enumerate(ROWS, start=1), "rows"), name=None, source="rows")
    rows = run_expectations(load_snapshot(store, snapshot), own, "batch")
    return [replace(row, recorded_at=datetime(2026, 1, 1, tzinfo=UTC)) for row in rows]


@pytest.mark.parametrize("own", [[], OWN, OWN[:1]])
def test_blocks_and_all_at_once_agree(store: Store, monkeypatch: pytest.MonkeyPatch, own: list[Expectation]) -> None:
    at_once = checks(store, own)
    monkeypatch.setattr(frames, "ROWS_AT_ONCE", 2)
    assert checks(store, own) == at_once
    found = {(row.name, row.column_name): (row.passed, row.n_checked, row.n_unexpected) for row in at_once}
    assert found["expect_column_values_to_be_unique", "inputs"] == (False, 5, 2), (
        "one in the first block, one in the 2nd"
    )
    assert found["expect_column_values_to_not_be_null", "inputs.q"] == (False, 5, 1)
    assert found["expect_column_values_to_not_be_null", "inputs.tone"] == (False, 5, 3)
    assert found["expect_column_values_to_be_unique", "example_id"] == (True, 5, 0)
    if own:
        assert found["expect_column_mean_to_be_between", "metadata.topic"][0] is False  # the mean is 13 / 3


def test_texts_of_equal_hash_are_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "hash", lambda text: 7, raising=False)
    found = {(row.name, row.column_name): row.n_unexpected for row in checks(store, [])}
    assert found["expect_column_values_to_be_unique", "inputs"] == 2
    assert found["expect_column_values_to_be_unique", "example_id"] == 0
