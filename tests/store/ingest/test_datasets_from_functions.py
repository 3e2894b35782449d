"""Datasets from functions: rows, tables of pandas, arrays of numpy, and errors."""

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from loaded_datasets import Row, examples, ids, inputs, load, numbered, problem

from evalflows.specs.reference import refer
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import snapshot_id


def from_function(store: Store, function: Callable[..., Any], **spec: Any) -> list[ExampleRow]:
    return load(store, function=refer(function), **spec)


def function_problem(store: Store, function: Callable[..., Any], **spec: Any) -> str:
    """Return the one-line error for a function, with its reference replaced by FUNCTION."""
    return problem(store, function=refer(function), **spec).replace(repr(refer(function)), "FUNCTION")


def test_a_function_may_yield_rows_or_return_them(store: Store) -> None:
    class Mine(dict[str, Any]):
        pass

    def yields() -> Iterator[Row]:
        yield from numbered(3)

    wanted = snapshot_id(examples(*numbered(3)))
    for function in (yields, lambda: numbered(3), lambda: tuple(numbered(3)), lambda: map(Mine, numbered(3))):
        assert snapshot_id(from_function(store, function)) == wanted


def test_a_function_may_be_named_by_its_module(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows_of_mine.py").write_text("def rows():\n    yield {'inputs': 'Why?'}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert inputs(load(store, function="rows_of_mine:rows")) == [{"input": "Why?"}]
    assert problem(store, function="rows_of_mine:lines") == "'rows_of_mine:lines': 'rows_of_mine' has no 'lines'"
    assert problem(store, function="no_such_rows:rows").startswith("'no_such_rows:rows': cannot import 'no_such_rows'")


def test_a_function_may_return_a_pandas_table(store: Store) -> None:
    table = pd.DataFrame({"question": ["Why?", "Who?"], "n": [1, 2], "sure": [True, False], "x": [0.5, 1.5]})
    found = from_function(store, lambda: table, columns={"inputs": "question"})
    assert inputs(found) == [{"question": "Why?"}, {"question": "Who?"}]
    assert [json.loads(example.metadata or "") for example in found] == [
        {"n": 1, "sure": True, "x": 0.5},
        {"n": 2, "sure": False, "x": 1.5},
    ]


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["So.", "No."], ["So.", "No."]),
        (pd.array([1, None], dtype="Int64"), [1, None]),
        (pd.Categorical(["sky", "sea"]), ["sky", "sea"]),
        ([["a"], {"b": 1}], [["a"], {"b": 1}]),
        (["So.", None], ["So.", None]),
        ([1, None], [1, None]),
        (pd.to_datetime(["2026-01-02", None]), ["2026-01-02T00:00:00", None]),
        ([np.array([1, 2]), None], [[1, 2], None]),
    ],
    ids=["text", "Int64", "category", "object", "text missing", "number missing", "time", "array"],
)
def test_pandas_cells_are_read_like_parquet_cells(store: Store, cells: Any, wanted: list[Any]) -> None:
    table = pd.DataFrame({"question": ["Why?", "Who?"], "cell": cells})
    found = from_function(store, lambda: table, columns={"inputs": "question"})
    assert [json.loads(example.metadata or "")["cell"] for example in found] == wanted


@pytest.mark.parametrize("missing", [float("nan"), pd.NA], ids=repr)
def test_a_missing_pandas_id_counts_as_no_id(store: Store, missing: object) -> None:
    assert not {"nan", "<NA>"} & {*ids(from_function(store, lambda: [{"inputs": 1, "id": missing}]))}


@pytest.mark.parametrize("value", [pd.NA, pd.DataFrame({"a": [1, 2]})], ids=["NA", "table"])
def test_an_input_that_is_not_json_is_refused(store: Store, value: object) -> None:
    assert function_problem(store, lambda: [{"inputs": value}]).startswith("function FUNCTION")


def test_numpy_arrays_become_lists(store: Store) -> None:
    found = from_function(store, lambda: [{"inputs": {"a": np.array([[1, 2]]), "b": np.float32(0.5), "c": np.True_}}])
    assert inputs(found) == [{"a": [[1, 2]], "b": 0.5, "c": True}]


def test_numpy_times_are_read_like_pandas_times(store: Store) -> None:
    times = pd.to_datetime(["2026-01-02"])
    found = from_function(store, lambda: [{"inputs": {"a": times.to_numpy(dtype="datetime64[ns]"), "b": times[0]}}])
    assert inputs(found) == [{"a": ["2026-01-02T00:00:00"], "b": "2026-01-02T00:00:00"}]


def test_a_table_that_iterates_by_rows_is_read(store: Store) -> None:
    class Table:
        def __iter__(self) -> Iterator[Row]:
            return iter(numbered(2))

        def to_dict(self, batch_size: int | None = None) -> dict[str, list[Any]]:
            return {"id": ["e0", "e1"], "inputs": [{"n": 0}, {"n": 1}]}

    assert ids(from_function(store, Table)) == ["e0", "e1"]


def raises() -> Iterator[Row]:
    yield {"inputs": 1}
    raise ValueError("two\nlines")


def asks(path: str) -> list[Row]:
    return [{"inputs": path}]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raises, "function 'REFERENCE': ValueError: two lines"),
        (asks, "function 'REFERENCE': TypeError: asks() missing 1 required positional argument: 'path'"),
        (lambda: None, "function 'REFERENCE': TypeError: 'NoneType' object is not iterable"),
        (lambda: 7, "function 'REFERENCE': TypeError: 'int' object is not iterable"),
        (lambda: [{"inputs": 1}, 7], "function 'REFERENCE': row 2: got int, wanted a mapping"),
        (lambda: [("inputs", 1)], "function 'REFERENCE': row 1: got tuple, wanted a mapping"),
        (lambda: {"inputs": 1}, "function 'REFERENCE': row 1: got str, wanted a mapping"),
        (lambda: "rows", "function 'REFERENCE': row 1: got str, wanted a mapping"),
        (lambda: pd.Series([1]), "function 'REFERENCE': row 1: got int, wanted a mapping"),
        (list, "function 'REFERENCE', row: got no rows, wanted at least one example"),
        (lambda: pd.DataFrame(), "function 'REFERENCE', row: got no rows, wanted at least one example"),
        (lambda: [{"inputs": 1}, {"input": {}}], "function 'REFERENCE', row:2: no inputs: got input"),
        (lambda: [{"inputs": {1, 2}}], "function 'REFERENCE': row 1: inputs: got set, wanted text"),
        (lambda: [{"inputs": b"x"}], "function 'REFERENCE': row 1: inputs: got bytes, wanted text"),
    ],
)
def test_errors_in_a_function_name_the_function(store: Store, function: Callable[..., Any], said: str) -> None:
    reference = refer(function)
    assert problem(store, function=reference).startswith(said.replace("REFERENCE", reference))


def test_a_missing_column_in_a_function_names_the_row(store: Store) -> None:
    said = function_problem(store, lambda: [{"q": 1}, {"question": 2}], columns={"inputs": "q"})
    assert said == "function FUNCTION, row:2: no column 'q', got question"


async def awaited() -> list[Row]:
    return numbered(1)


async def async_yields() -> Any:
    yield {"inputs": 1}


@pytest.mark.filterwarnings("ignore:coroutine 'awaited' was never awaited")
@pytest.mark.parametrize("function", [awaited, async_yields])
def test_an_async_function_is_refused(store: Store, function: Callable[..., Any]) -> None:
    assert "got an async function, wanted a sync function that yields rows" in function_problem(store, function)


@pytest.mark.filterwarnings("ignore:coroutine 'awaited' was never awaited")
@pytest.mark.parametrize("function", [awaited, async_yields])
def test_the_refusal_of_an_async_function_names_it(store: Store, function: Callable[..., Any]) -> None:
    assert function_problem(store, function).startswith("function FUNCTION: ")


def test_a_refused_async_function_leaves_no_warning(store: Store) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        function_problem(store, awaited)
        gc.collect()
    assert [str(one.message) for one in warned if "never awaited" in str(one.message)] == []


def test_a_function_is_called_once(store: Store) -> None:
    calls = []

    def counted() -> list[Row]:
        calls.append(1)
        return numbered(2)

    from_function(store, counted, splits=None, sample=1)
    assert len(calls) == 1
