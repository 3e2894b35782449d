"""Checks of snapshots: what our expectations find, and when the newest checks are taken."""

import json
from typing import Any

from evalflows.data_checks.checks import check_dataset, snapshot_checks, without_values
from evalflows.specs.dataset import DatasetSpec
from evalflows.store.records import CheckRow
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

LONG = "x" * 3000
ROWS: list[dict[str, Any]] = [
    {"inputs": {"q": "one", "$.a b": {"n": 1}}, "outputs": "1"},
    {"inputs": {"q": LONG}, "outputs": "2"},
    {"inputs": {"q": " \u00a0\n"}},
    {"inputs": {"q": LONG}},
    {"inputs": {"q": None, "$.a b": []}},
]


def frozen(store: Store, rows: list[dict[str, Any]]) -> DatasetSpec:
    return DatasetSpec(snapshot=freeze(store, to_examples(enumerate(rows, start=1), "rows"), name=None, source="rows"))


def found(store: Store, rows: list[dict[str, Any]]) -> dict[tuple[str, str | None], CheckRow]:
    checks = store.read("checks", check_dataset(store, frozen(store, rows)))
    return {(row.name.removeprefix("expect_column_values_to_"), row.column_name): row for row in checks}


def test_blank_fields_doubles_and_missing_references_are_counted(store: Store) -> None:
    rows = found(store, ROWS)
    wanted = {
        ("be_between", "filled_inputs"): (1, "all fields of the inputs are empty in 1 of 5 examples, such as row 3"),
        ("be_unique", "inputs"): (2, "inputs are those of another example in 2 of 5 examples, such as rows 2, 4"),
        ("not_be_null", "reference_outputs"): (
            *(3, "reference_outputs are missing in 3 of 5 examples, such as rows 3, 4, 5"),
        ),
        ("not_be_null", "inputs.q"): (2, "inputs.q is empty in 2 of 5 examples, such as rows 3, 5"),
        ("not_be_null", "inputs.$.a b"): (3, "inputs.$.a b is empty in 3 of 5 examples"),
    }
    failed = {key: row for key, row in rows.items() if not row.passed}
    said = {key: (row.n_unexpected, row.message) for key, row in failed.items()}
    assert {key: (n, (text or "")[: len(wanted[key][1])]) for key, (n, text) in said.items()} == wanted
    assert all(without_values(row) == row.message for row in failed.values())
    assert {row.n_checked for row in rows.values()} == {5}
    errors = {key[1] for key, row in rows.items() if row.severity == "error"}
    assert errors == {"example_id", "inputs", "reference_outputs", "filled_inputs"}
    observed = json.loads(rows["be_unique", "inputs"].observed or "")
    assert observed["partial_unexpected_list"][0].endswith("… (3,008 characters)")


def test_the_newest_checks_of_a_snapshot_are_taken_else_made(store: Store, make: Any) -> None:
    snapshot = frozen(store, ROWS).snapshot or ""
    made = snapshot_checks(store, snapshot)
    assert {row.subject_id for row in store.read("checks", made)} == {snapshot}
    newer = make("checks", check_id="c", batch_id="b", subject_kind="snapshot", subject_id=snapshot)
    store.publish("checks", "b", [newer])
    assert snapshot_checks(store, snapshot) == "b"
