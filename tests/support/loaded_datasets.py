"""Examples loaded from dataset specs, and rows to load."""

import json
from typing import Any

import pytest

from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.store.ingest import load_dataset
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import to_examples
from evalflows.store.store import Store

Row = dict[str, Any]


def examples(*rows: Row) -> list[ExampleRow]:
    return to_examples(enumerate(rows, start=1), "rows")


def ids(found: list[ExampleRow]) -> list[str]:
    return [example.example_id for example in found]


def inputs(found: list[ExampleRow]) -> list[Any]:
    return [json.loads(example.inputs) for example in found]


def load(store: Store, **spec: Any) -> list[ExampleRow]:
    return load_dataset(store, DatasetSpec.model_validate(spec)).selected


def problem(store: Store, **spec: Any) -> str:
    """Return the one-line error for a dataset."""
    with pytest.raises(InputError) as caught:
        load_dataset(store, DatasetSpec.model_validate(spec))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def numbered(count: int, **fields: Any) -> list[Row]:
    return [{"id": f"e{number}", "inputs": {"n": number}, **fields} for number in range(count)]


SPLIT = [row | {"split": split} for row, split in zip(numbered(9), ["test", "dev", None] * 3, strict=True)]


def load_and_keep(store: Store, **spec: Any) -> str:
    return load_dataset(store, DatasetSpec.model_validate(spec)).keep(store)
