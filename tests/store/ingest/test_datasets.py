"""From dataset specs to examples: sources, splits, samples, growth, and differences between versions."""

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.reference import refer
from evalflows.store.ingest.datasets import Difference, compare_examples, find_snapshot, load_dataset, merge_examples
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import current_snapshot, load_snapshot, snapshot_id, to_examples

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


# Files

CSV = b'number,question,reply,topic\n1,"Why, oh why?",So.,sky\n2,"Who\nknows?",,\n'


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    path = tmp_path / "faq.csv"
    path.write_bytes(CSV)
    return path


COLUMNS = {"inputs": "question", "reference_outputs": {"answer": "reply"}, "id": "number"}


def test_a_file_of_any_schema_is_read_by_its_columns(store: Store, faq: Path) -> None:
    first, second = load(store, path=str(faq), columns=COLUMNS)
    assert (first.example_id, first.inputs, first.reference_outputs, first.metadata) == (
        "1",
        '{"question":"Why, oh why?"}',
        '{"answer":"So."}',
        '{"topic":"sky"}',
    )
    assert (second.example_id, second.inputs, second.reference_outputs, second.metadata) == (
        "2",
        '{"question":"Who\\nknows?"}',
        None,
        '{"topic":null}',
    )


def test_the_same_rows_in_any_format_are_the_same_examples(store: Store, tmp_path: Path) -> None:
    rows = [{"inputs": {"q": "Why?", "n": [1, 2]}, "metadata": {"topic": "é"}, "split": "test"}, {"inputs": {"q": "x"}}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    cells = [
        '"{""q"": ""Why?"", ""n"": [1, 2]}","{""topic"": ""é""}",test',
        '"{""q"": ""x""}",,',
    ]
    (tmp_path / "rows.csv").write_text("\r\n".join(["inputs,metadata,split", *cells]), encoding="utf-8-sig")
    found = [snapshot_id(load(store, path=str(tmp_path / f"rows.{suffix}"))) for suffix in ("jsonl", "json", "csv")]
    assert set(found) == {snapshot_id(load(store, rows=rows))}


@pytest.mark.parametrize(
    ("content", "columns", "said"),
    [
        (b"", None, "FILE: got no rows, wanted at least one example"),
        (b"inputs,outputs\n", None, "FILE: got no rows, wanted at least one example"),
        (CSV, None, "FILE:2: no inputs: got number, question, reply, topic, wanted 'inputs' (or `columns`, for rows"),
        (b"inputs,note\nx,y\n", None, "FILE:2: got the field 'note', wanted only inputs, input, "),
        (CSV, {"inputs": "frage"}, "FILE:2: no column 'frage', got number, question, reply, topic"),
        (CSV, {"inputs": "question", "id": "nr"}, "FILE:2: no column 'nr', got number, question, reply, topic"),
        (b"id,inputs\n1,a\n2,b\n1,c\n", None, "FILE:4: duplicate id '1', first in row 2"),
        (b"inputs,metadata\na,{\n", None, "FILE:2: metadata: not JSON: "),
        (b"inputs,outputs,expected_output\na,b,c\n", None, "FILE:2: got both 'outputs' and 'expected_output'"),
        (b"inputs\na\n\n,\n", None, "FILE:4: got 2 cells, wanted 1"),
        (b"inputs,split\na,x\n,y\n", None, "FILE:3: no inputs: got inputs, split, wanted"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(
    store: Store, tmp_path: Path, content: bytes, columns: object, said: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert problem(store, path=str(path), columns=columns).replace(str(path), "FILE").startswith(said)


@pytest.mark.parametrize(
    ("spec", "name", "source"),
    [
        ({}, "faq", "FAQ"),
        ({"name": "ours"}, "ours", "FAQ"),
    ],
)
def test_a_dataset_is_called_after_its_file_unless_it_has_a_name(
    store: Store, faq: Path, spec: dict[str, str], name: str, source: str
) -> None:
    found = load_dataset(store, DatasetSpec.model_validate({"path": str(faq), "columns": COLUMNS} | spec))
    assert (found.name, found.source.replace(str(faq), "FAQ")) == (name, source)


def test_rows_and_functions_have_no_name_of_their_own(store: Store) -> None:
    def some() -> list[Row]:
        return numbered(1)

    for spec, source in (({"rows": numbered(1)}, "rows"), ({"function": refer(some)}, refer(some))):
        found = load_dataset(store, DatasetSpec.model_validate(spec))
        assert (found.name, found.source) == (None, source)


def test_a_file_that_a_variable_names_gives_the_dataset_its_name(
    store: Store, faq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAQ", str(faq))
    assert load_dataset(store, DatasetSpec.model_validate({"path": "${FAQ}", "columns": COLUMNS})).name == "faq"


@pytest.mark.parametrize("field", ["id", "split", "cluster"])
def test_a_text_that_utf8_cannot_hold_is_told_with_its_line(store: Store, tmp_path: Path, field: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"inputs": 1, "{field}": "\\ud83d"}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"rows\.jsonl:1: "):
        load_dataset(store, DatasetSpec(path=str(path))).keep(store)


# Functions


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


def test_a_function_may_return_a_table_of_pandas(store: Store) -> None:
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
def test_the_cells_of_pandas_are_read_as_those_of_parquet(store: Store, cells: Any, wanted: list[Any]) -> None:
    table = pd.DataFrame({"question": ["Why?", "Who?"], "cell": cells})
    found = from_function(store, lambda: table, columns={"inputs": "question"})
    assert [json.loads(example.metadata or "")["cell"] for example in found] == wanted


@pytest.mark.parametrize("missing", [float("nan"), pd.NA], ids=repr)
def test_an_id_that_pandas_has_no_value_for_is_none_given(store: Store, missing: object) -> None:
    assert not {"nan", "<NA>"} & {*ids(from_function(store, lambda: [{"inputs": 1, "id": missing}]))}


@pytest.mark.parametrize("value", [pd.NA, pd.DataFrame({"a": [1, 2]})], ids=["NA", "table"])
def test_an_input_that_is_no_json_is_told(store: Store, value: object) -> None:
    assert function_problem(store, lambda: [{"inputs": value}]).startswith("function FUNCTION")


def test_an_array_of_numpy_is_a_list(store: Store) -> None:
    found = from_function(store, lambda: [{"inputs": {"a": np.array([[1, 2]]), "b": np.float32(0.5), "c": np.True_}}])
    assert inputs(found) == [{"a": [[1, 2]], "b": 0.5, "c": True}]


def test_a_time_of_numpy_is_read_as_one_of_pandas(store: Store) -> None:
    times = pd.to_datetime(["2026-01-02"])
    found = from_function(store, lambda: [{"inputs": {"a": times.to_numpy(dtype="datetime64[ns]"), "b": times[0]}}])
    assert inputs(found) == [{"a": ["2026-01-02T00:00:00"], "b": "2026-01-02T00:00:00"}]


def test_a_table_that_is_iterated_by_rows_is_read(store: Store) -> None:
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
def test_what_is_wrong_with_a_function_is_told_with_its_name(
    store: Store, function: Callable[..., Any], said: str
) -> None:
    reference = refer(function)
    assert problem(store, function=reference).startswith(said.replace("REFERENCE", reference))


def test_a_column_that_a_row_of_a_function_lacks_is_told_with_its_row(store: Store) -> None:
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
def test_an_async_function_is_refused_with_its_name(store: Store, function: Callable[..., Any]) -> None:
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


# Splits and samples

SPLIT = [row | {"split": split} for row, split in zip(numbered(9), ["test", "dev", None] * 3, strict=True)]


def test_only_the_examples_of_the_wanted_splits_are_taken(store: Store) -> None:
    assert ids(load(store, rows=SPLIT, splits=["test"])) == ["e0", "e3", "e6"]
    assert ids(load(store, rows=SPLIT, splits=["dev", "test"])) == ["e0", "e1", "e3", "e4", "e6", "e7"]
    assert ids(load(store, rows=SPLIT, splits=["test", "train"])) == ["e0", "e3", "e6"]
    assert len(load(store, rows=SPLIT)) == 9


@pytest.mark.parametrize("splits", [["train"], [], [""], ["Test"]])
def test_splits_that_no_example_is_of_are_told_with_those_that_there_are(store: Store, splits: list[str]) -> None:
    said = problem(store, rows=SPLIT, splits=splits)
    assert said == f"dataset: splits: got {splits}, wanted some of ['dev', 'test']"


def test_a_dataset_without_splits_says_so(store: Store) -> None:
    assert problem(store, rows=numbered(2), splits=["test"]).endswith("wanted no splits, as the dataset has none")


def test_all_that_was_read_is_kept_beside_what_is_taken(store: Store) -> None:
    found = load_dataset(store, DatasetSpec.model_validate({"rows": SPLIT, "splits": ["dev"], "sample": 2}))
    assert (len(found.examples), len(found.selected)) == (9, 2)


@pytest.mark.parametrize("size", [1, 7, 29, 30, 31, 1000])
def test_a_sample_is_so_many_examples_in_the_datasets_order(store: Store, size: int) -> None:
    found = load(store, rows=numbered(30), sample=size)
    assert len(found) == min(size, 30)
    positions = [example.position for example in found]
    assert positions == sorted(set(positions))


def test_the_same_seed_draws_the_same_and_another_others(store: Store) -> None:
    rows = numbered(40)
    drawn = [ids(load(store, rows=rows, sample=10, seed=seed)) for seed in (0, 0, 1, -1)]
    assert drawn[0] == drawn[1] == ids(load(store, rows=rows, sample=10))
    assert len({tuple(one) for one in drawn}) == 3


def test_what_is_drawn_is_pinned(store: Store) -> None:
    """If it changed, no sample could be compared with earlier measurements."""
    assert ids(load(store, rows=numbered(10), sample=3, seed=1)) == ["e2", "e8", "e9"]


def test_what_is_drawn_does_not_depend_on_the_order(store: Store) -> None:
    rows = numbered(40)
    assert {*ids(load(store, rows=rows[::-1], sample=10))} == {*ids(load(store, rows=rows, sample=10))}


def test_a_larger_sample_holds_the_smaller(store: Store) -> None:
    rows = numbered(40)
    drawn = [{*ids(load(store, rows=rows, sample=size))} for size in (5, 10, 39)]
    assert drawn[0] < drawn[1] < drawn[2]


def test_a_sample_of_a_sample_is_the_sample(store: Store) -> None:
    rows = numbered(40)
    drawn = {*ids(load(store, rows=rows, sample=10))}
    again = [row for row in rows if row["id"] in drawn]
    assert {*ids(load(store, rows=again, sample=10))} == drawn


def test_what_a_dataset_grows_by_takes_only_places_that_it_wins(store: Store) -> None:
    rows = numbered(60)
    before, after = ({*ids(load(store, rows=rows[:size], sample=20))} for size in (40, 60))
    new = {row["id"] for row in rows[40:]}
    assert after - new < before
    assert len(after & new) == len(before - after)


def test_of_the_splits_the_sample_is_drawn(store: Store) -> None:
    found = load(store, rows=SPLIT, splits=["test"], sample=2)
    assert len(found) == 2
    assert {example.split for example in found} == {"test"}


def test_every_example_may_be_drawn(store: Store) -> None:
    rows = numbered(8)
    drawn = {identity for seed in range(60) for identity in ids(load(store, rows=rows, sample=1, seed=seed))}
    assert drawn == {row["id"] for row in rows}


# Keeping


def load_and_keep(store: Store, **spec: Any) -> str:
    return load_dataset(store, DatasetSpec.model_validate(spec)).keep(store)


def test_what_is_taken_whole_is_the_datasets_newest_snapshot(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(3), name="faq")
    assert current_snapshot(store, "faq") == kept == find_snapshot(store, "faq")
    assert ids(load_snapshot(store, kept)) == ["e0", "e1", "e2"]


def test_the_name_stands_for_the_whole_where_a_part_is_taken(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(5), name="faq", sample=2)
    assert len(load_snapshot(store, kept)) == 2
    assert len(load_snapshot(store, find_snapshot(store, "faq"))) == 5


def test_a_name_alone_is_what_was_kept_under_it(store: Store) -> None:
    load_and_keep(store, rows=numbered(3), name="faq")
    newest = load_and_keep(store, rows=numbered(4), name="faq")
    assert ids(load(store, name="faq")) == ids(load(store, snapshot=newest)) == ["e0", "e1", "e2", "e3"]


def test_keeping_what_is_in_the_store_adds_nothing(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(3), name="faq")
    before = sorted(Path(store.layout.root).rglob("*.parquet"))
    assert load_and_keep(store, name="faq") == load_and_keep(store, snapshot=kept) == kept
    assert sorted(Path(store.layout.root).rglob("*.parquet")) == before


def test_an_old_snapshot_that_is_taken_again_does_not_become_the_newest(store: Store) -> None:
    old, newest = (load_and_keep(store, rows=numbered(size), name="faq") for size in (3, 4))
    assert load_and_keep(store, snapshot=old, name="faq") == old
    assert find_snapshot(store, "faq") == newest


def test_a_sample_from_the_store_is_that_of_the_file(store: Store) -> None:
    from_rows = load_and_keep(store, rows=SPLIT, name="faq", splits=["test", "dev"], sample=4)
    assert load_and_keep(store, name="faq", splits=["test", "dev"], sample=4) == from_rows
    assert load_and_keep(store, snapshot=from_rows, sample=4) == from_rows
    assert load_and_keep(store, snapshot=from_rows, splits=["test", "dev"], sample=400) == from_rows


@pytest.mark.parametrize("known", [[], ["faq"], ["faq", "b", "a"]])
def test_a_dataset_that_is_not_in_the_store_is_told_with_those_that_are(store: Store, known: list[str]) -> None:
    for name in known:
        load_and_keep(store, rows=numbered(1), name=name)
    wanted = ", ".join(sorted(known)) or "none yet"
    assert problem(store, name="fa") == f"dataset 'fa': not in the store, wanted one of: {wanted}"


@pytest.mark.parametrize("name", ["team/faq", "", "50%", "_faq"])
def test_a_name_that_no_file_can_have_is_looked_for_like_any_other(store: Store, name: str) -> None:
    assert problem(store, name=name).startswith(f"dataset {name!r}: not in the store")


def test_a_name_may_hold_anything(store: Store) -> None:
    for name in ("team/faq", "50%", "it's", "FAQ é"):
        kept = load_and_keep(store, rows=numbered(2), name=name)
        assert find_snapshot(store, name) == kept


def test_a_snapshot_is_found_by_its_id_and_only_by_the_whole(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(2))
    assert find_snapshot(store, kept) == kept
    with pytest.raises(InputError, match="not in the store"):
        find_snapshot(store, kept[:-1])
    assert problem(store, snapshot="snap-none").startswith("snapshot 'snap-none': not in the store ")


# Growth

OLD = examples(*numbered(3))


def test_new_examples_come_after_the_old_and_known_ones_once() -> None:
    together = merge_examples(OLD, examples(*reversed(numbered(5))), "more.csv")
    assert ids(together) == ["e0", "e1", "e2", "e4", "e3"]
    assert [example.position for example in together] == [0, 1, 2, 3, 4]


def test_nothing_old_and_nothing_new_are_grown_from() -> None:
    assert (
        ids(merge_examples([], OLD, "x"))
        == ids(merge_examples(OLD, [], "x"))
        == ids(merge_examples(OLD, OLD, "x"))
        == ids(OLD)
    )


def test_rows_without_ids_are_known_by_their_content() -> None:
    rows = [{"inputs": {"q": "a"}}, {"inputs": {"q": "b"}}]
    old, new = examples(*rows), examples({"inputs": {"q": "c"}}, *reversed(rows))
    together = merge_examples(old, new, "x")
    assert inputs(together) == [{"q": "a"}, {"q": "b"}, {"q": "c"}]
    assert ids(together)[:2] == ids(old)


def test_the_same_row_twice_is_known_twice() -> None:
    row = {"inputs": {"q": "a"}}
    assert len(merge_examples(examples(row, row), examples(row, row, row), "x")) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"n": 7}},
        {"reference_outputs": {"a": 1}},
        {"metadata": {"m": 1}},
        {"split": "test"},
        {"cluster": "c"},
        {"attachments": {"file": "x"}},
    ],
    ids=str,
)
def test_an_id_with_other_content_is_refused(change: Row) -> None:
    with pytest.raises(InputError) as caught:
        merge_examples(OLD, examples(numbered(2)[1] | change), "more.csv")
    said = "more.csv: got example 'e1', in the dataset with other content, wanted a new id"
    assert str(caught.value) == said


def test_what_has_grown_is_of_no_snapshot_yet(store: Store) -> None:
    load_and_keep(store, rows=numbered(3), name="faq")
    together = merge_examples(load(store, name="faq"), examples(*numbered(5)), "x")
    assert {example.snapshot_id for example in together} == {""}
    assert snapshot_id(together) == snapshot_id(examples(*numbered(5)))


def test_new_examples_come_after_those_of_a_sample(store: Store) -> None:
    sample = load(store, rows=numbered(30), sample=3)
    together = merge_examples(sample, examples({"id": "new", "inputs": 1}), "x")
    assert max(together, key=lambda example: example.position).example_id == "new"


# Differences


def test_a_difference_tells_what_was_added_removed_and_changed() -> None:
    one, two, three = numbered(3)
    found = compare_examples(
        examples(one, two, three), examples({"id": "new", "inputs": 1}, three, two | {"split": "x"})
    )
    assert found == Difference(added=["new"], removed=["e0"], changed=["e1"], same=1)


def test_the_order_and_the_snapshot_make_no_difference() -> None:
    other = [replace(example, snapshot_id="snap-1", position=9) for example in reversed(OLD)]
    assert compare_examples(OLD, other) == Difference(added=[], removed=[], changed=[], same=3)


def test_all_is_added_to_nothing_and_nothing_is_left_of_it() -> None:
    assert compare_examples([], OLD) == Difference(added=["e0", "e1", "e2"], removed=[], changed=[], same=0)
    assert compare_examples(OLD, []) == Difference(added=[], removed=["e0", "e1", "e2"], changed=[], same=0)


def test_a_row_without_an_id_that_changed_is_another_example() -> None:
    found = compare_examples(examples({"inputs": 1}), examples({"inputs": 2}))
    assert (len(found.added), len(found.removed), found.changed, found.same) == (1, 1, [], 0)


def test_growing_only_adds() -> None:
    together = merge_examples(OLD, examples(*numbered(6)), "x")
    assert compare_examples(OLD, together) == Difference(added=["e3", "e4", "e5"], removed=[], changed=[], same=3)
