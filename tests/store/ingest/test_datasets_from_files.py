"""Datasets from files and functions: columns, formats, tables, and errors."""

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from loaded_datasets import Row, examples, inputs, load, numbered, problem

from evalflows.specs.reference import refer
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import snapshot_id
from evalflows.store.store import Store

CSV = b'number,question,reply,topic\n1,"Why, oh why?",So.,sky\n2,"Who\nknows?",,\n'


def test_columns_map_a_file_of_any_schema_to_examples(store: Store, tmp_path: Path) -> None:
    (path := tmp_path / "faq.csv").write_bytes(CSV)
    columns = {"inputs": "question", "reference_outputs": {"answer": "reply"}, "id": "number"}
    found = [
        (one.example_id, one.inputs, one.reference_outputs, one.metadata)
        for one in load(store, path=str(path), columns=columns)
    ]
    assert found == [
        ("1", '{"question":"Why, oh why?"}', '{"answer":"So."}', '{"topic":"sky"}'),
        ("2", '{"question":"Who\\nknows?"}', None, '{"topic":null}'),
    ]


def test_every_format_gives_the_same_examples(store: Store, tmp_path: Path) -> None:
    rows = [{"inputs": {"q": "Why?", "n": [1, 2]}, "metadata": {"topic": "é"}, "split": "test"}, {"inputs": {"q": "x"}}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    cells = ['"{""q"": ""Why?"", ""n"": [1, 2]}","{""topic"": ""é""}",test', '"{""q"": ""x""}",,']
    (tmp_path / "rows.csv").write_text("\r\n".join(["inputs,metadata,split", *cells]), encoding="utf-8-sig")
    found = [snapshot_id(load(store, path=str(tmp_path / f"rows.{suffix}"))) for suffix in ("jsonl", "json", "csv")]
    assert set(found) == {snapshot_id(load(store, rows=rows))}


def test_errors_in_a_file_name_the_line(store: Store, tmp_path: Path) -> None:
    for content, columns, said in (
        (b"", None, "FILE: got no rows, wanted at least one example"),
        (b"inputs,outputs\n", None, "FILE: got no rows, wanted at least one example"),
        (CSV, None, "FILE:2: no inputs: got number, question, reply, topic, wanted 'inputs' (or `columns`, for rows"),
        (b"inputs,note\nx,y\n", None, "FILE:2: got the field 'note', wanted only inputs, input, "),
        (CSV, {"inputs": "frage"}, "FILE:2: no column 'frage', got number, question, reply, topic"),
        (CSV, {"inputs": "question", "id": "nr"}, "FILE:2: no column 'nr', got number, question, reply, topic"),
        (b"id,inputs\n1.0,a\n2,b\n1,c\n", None, "FILE:4: duplicate id '1', first in row 2"),
        (b'inputs,metadata\na,"{""b"": "\n', None, "FILE:2: metadata: not JSON: "),
        (b"inputs,outputs,expected_output\na,b,c\n", None, "FILE:2: got both 'outputs' and 'expected_output'"),
        (b"inputs\na\n\n,b\n", None, "FILE:4: got 2 cells, wanted 1"),
        (b"inputs,split\na,x\n,y\n", None, "FILE:3: no inputs: got inputs, split, wanted"),
    ):
        (path := tmp_path / "rows.csv").write_bytes(content)
        assert problem(store, path=str(path), columns=columns).replace(str(path), "FILE").startswith(said)
    (path := tmp_path / "rows.jsonl").write_bytes(b'{"inputs": "a"}\n{"inputs": "bad \\ud83d end"}\n')
    said = r"rows.jsonl:2: got '\ud83d', half of a character, wanted whole characters"
    assert problem(store, path=str(path)).endswith(said)


def from_function(store: Store, function: Callable[..., Any], **spec: Any) -> list[ExampleRow]:
    return load(store, function=refer(function), **spec)


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


def test_cells_of_pandas_and_numpy_are_read_like_parquet_cells(store: Store) -> None:
    for cells, wanted in (
        (["So.", "No."], ["So.", "No."]),
        (pd.array([1, None], dtype="Int64"), [1, None]),
        (pd.Categorical(["sky", "sea"]), ["sky", "sea"]),
        ([["a"], {"b": 1}], [["a"], {"b": 1}]),
        (["So.", None], ["So.", None]),
        ([1, None], [1, None]),
        (pd.to_datetime(["2026-01-02", None]), ["2026-01-02T00:00:00", None]),
        ([np.array([1, 2]), None], [[1, 2], None]),
    ):
        table = pd.DataFrame({"question": ["Why?", "Who?"], "cell": cells})
        found = from_function(store, lambda table=table: table, columns={"inputs": "question"})
        assert [json.loads(example.metadata or "")["cell"] for example in found] == wanted
    found = from_function(store, lambda: [{"inputs": {"a": np.array([[1, 2]]), "b": np.float32(0.5), "c": np.True_}}])
    assert inputs(found) == [{"a": [[1, 2]], "b": 0.5, "c": True}]


def raises() -> Iterator[Row]:
    yield {"inputs": 1}
    raise ValueError("two\nlines")


def asks(path: str) -> list[Row]:
    return [{"inputs": path}]


def circular() -> list[Row]:
    row: Row = {}
    row["inputs"] = row
    return [row]


async def awaited() -> list[Row]:
    return numbered(1)


async def async_yields() -> Any:
    yield {"inputs": 1}


def test_errors_in_a_function_name_the_function_and_leave_no_warning(store: Store) -> None:
    cases: list[tuple[Callable[..., Any], str]] = [
        (raises, ": ValueError: two lines"),
        (asks, ": TypeError: asks() missing 1 required positional argument: 'path'"),
        (lambda: None, ": TypeError: 'NoneType' object is not iterable"),
        (lambda: [{"inputs": 1}, 7], ": row 2: got int, wanted a mapping"),
        (lambda: [("inputs", 1)], ": row 1: got tuple, wanted a mapping"),
        (lambda: {"inputs": 1}, ": row 1: got str, wanted a mapping"),
        (lambda: pd.Series([1]), ": row 1: got int, wanted a mapping"),
        (lambda: pd.DataFrame(), ", row: got no rows, wanted at least one example"),
        (lambda: [{"inputs": 1}, {"input": {}}], ", row:2: no inputs: got input"),
        (lambda: [{"inputs": {"a": [1, float("inf")]}}], ": row 1: inputs.a.1: got inf, wanted a finite number"),
        (lambda: [{"inputs": (n for n in "ab")}], ": row 1: inputs: got generator, wanted its values"),
        (lambda: [{"inputs": {1: "a", "1": "b"}}], ": row 1: inputs: got two keys that are the same as text"),
        (circular, ": row 1: inputs: nested too deeply, or contains itself"),
        (lambda: [{"inputs": b"x"}], ": row 1: inputs: got bytes, wanted text"),
        (awaited, ": got an async function, wanted a sync function that yields rows"),
        (async_yields, ": got an async function, wanted a sync function that yields rows"),
    ]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for function, said in cases:
            given = problem(store, function=refer(function)).replace(repr(refer(function)), "FUNCTION")
            assert given.startswith(f"function FUNCTION{said}"), given
        gc.collect()
    assert not [one for one in warned if "never awaited" in str(one.message)]
