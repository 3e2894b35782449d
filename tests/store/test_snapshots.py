"""Freezing a dataset: the same content is the same snapshot, and whatever is wrong with a row is said in one line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.specs.errors import InputError
from evalflows.store import snapshots
from evalflows.store.ingest.file_formats import read_rows
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import current_snapshot, freeze, load_snapshot, snapshot_id, to_examples

Row = dict[str, Any]

texts = st.text(max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
mappings = st.dictionaries(texts, json_values, min_size=1, max_size=3)
rows = st.fixed_dictionaries(
    {"inputs": mappings},
    optional={"reference_outputs": mappings, "metadata": mappings, "split": texts, "cluster": texts},
)


def examples(given_rows: list[Row], where: str = "rows") -> list[ExampleRow]:
    return to_examples(enumerate(given_rows, start=1), where)


def ids(given_rows: list[Row]) -> list[str]:
    return [example.example_id for example in examples(given_rows)]


def identity(*given_rows: Row) -> str:
    return snapshot_id(examples(list(given_rows)))


def problem(given_rows: list[Row]) -> str:
    """The one line that the rows are refused with."""
    with pytest.raises(InputError) as caught:
        examples(given_rows, "FILE")
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Identity


@settings(deadline=None, max_examples=40)
@given(data=st.data(), content=st.lists(rows, min_size=1, max_size=6))
def test_shuffled_rows_are_the_same_snapshot_of_the_same_examples(data: st.DataObject, content: list[Row]) -> None:
    shuffled = data.draw(st.permutations(content))
    assert identity(*shuffled) == identity(*content)
    assert sorted(ids(shuffled)) == sorted(ids(content))


@settings(deadline=None, max_examples=40)
@given(row=rows, times=st.integers(1, 4), others=st.lists(rows, max_size=3))
def test_the_same_row_several_times_is_as_many_examples(row: Row, times: int, others: list[Row]) -> None:
    found = ids([row] * times + others)
    assert len(set(found)) == times + len(others)
    assert set(found) == set(ids(others + [row] * times))


@settings(deadline=None, max_examples=40)
@given(old=st.lists(rows, min_size=1, max_size=4), new=st.lists(rows, min_size=1, max_size=3), data=st.data())
def test_a_larger_dataset_shares_the_examples_of_the_smaller(
    old: list[Row], new: list[Row], data: st.DataObject
) -> None:
    grown = data.draw(st.permutations(old + new))
    assert set(ids(old)) < set(ids(grown))
    assert identity(*grown) != identity(*old)


def test_the_order_of_keys_and_the_spelling_of_fields_make_no_difference() -> None:
    one = {"inputs": {"a": 1, "b": 2}, "reference_outputs": {"answer": "x"}, "split": "test"}
    same = {"split": "test", "outputs": {"answer": "x"}, "input": {"b": 2, "a": 1}, "metadata": None}
    assert identity(one) == identity(same) == identity(one | {"expected_output": None})
    assert ids([one]) == ids([same])


BASE: Row = {"inputs": {"q": "1"}, "reference_outputs": {"a": "1"}, "metadata": {"m": 1}, "split": "s", "cluster": "c"}


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"q": 1}},
        {"inputs": {"q": "1 "}},
        {"inputs": {"Q": "1"}},
        {"inputs": {"q": "1", "r": None}},
        {"reference_outputs": {"a": "2"}},
        {"reference_outputs": None},
        {"reference_outputs": {}},
        {"metadata": {"m": 2}},
        {"metadata": None},
        {"split": "t"},
        {"split": None},
        {"cluster": "d"},
        {"attachments": {"file": "x"}},
        {"id": "named"},
    ],
    ids=str,
)
def test_other_content_is_another_snapshot(change: Row) -> None:
    assert identity(BASE | change) != identity(BASE)
    assert ids([BASE | change]) != ids([BASE])


def test_fields_do_not_run_into_each_other() -> None:
    assert identity(BASE | {"split": "x", "cluster": None}) != identity(BASE | {"split": None, "cluster": "x"})
    assert identity({"inputs": {"a": "b,c"}}) != identity({"inputs": {"a": "b"}}, {"inputs": {"a": "c"}})


def test_an_id_that_is_given_is_kept() -> None:
    assert ids([{"id": "first", "inputs": {"q": 1}}, {"id": 2, "inputs": {"q": 1}}]) == ["first", "2"]


def test_the_same_content_under_another_id_is_another_example() -> None:
    assert identity({"id": "a", "inputs": {"q": 1}}) != identity({"id": "b", "inputs": {"q": 1}})


def test_an_id_that_is_none_is_none_given() -> None:
    assert ids([{"id": None, "inputs": {"q": 1}}]) == ids([{"inputs": {"q": 1}}])


def test_ids_are_pinned() -> None:
    """These are in people's stores: a change of them parts every dataset from what was measured on it before."""
    assert identity({"inputs": {"q": "é"}, "outputs": {"a": 1.5}}) == "snap-d5882ffc5f46c0da9963e12c"
    assert ids([{"inputs": {"q": "é"}}] * 2) == ["7e309a6e6061ca041b09", "026d5463f7c584df3225"]


# Fields


def test_a_value_that_is_no_mapping_is_wrapped() -> None:
    (example,) = examples([{"input": "hello", "expected_output": ["a", 1], "metadata": "note"}])
    assert json.loads(example.inputs) == {"input": "hello"}
    assert json.loads(example.reference_outputs or "") == {"output": ["a", 1]}
    assert json.loads(example.metadata or "") == {"value": "note"}


@pytest.mark.parametrize("value", [0, False, [], 0.0])
def test_an_input_may_be_falsy(value: object) -> None:
    (example,) = examples([{"inputs": value}])
    assert json.loads(example.inputs) == {"input": value}


def test_what_is_left_out_is_none() -> None:
    (example,) = examples([{"inputs": {"q": 1}}])
    assert (example.reference_outputs, example.metadata, example.split, example.cluster) == (None, None, None, None)


def test_a_split_or_a_cluster_may_be_a_number() -> None:
    (example,) = examples([{"inputs": {"q": 1}, "split": 1, "cluster": 0}])
    assert (example.split, example.cluster) == ("1", "0")


# Freezing


def frozen_files(store: Store) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(store.layout.root).rglob("*.parquet")}


def freeze_rows(store: Store, name: str | None, *given_rows: Row) -> str:
    return freeze(store, examples(list(given_rows)), name=name, source="rows")


A: Row = {"inputs": {"q": "a"}, "split": "test"}
B: Row = {"inputs": {"q": "b"}, "split": "test"}
C: Row = {"inputs": {"q": "c"}}


def test_a_frozen_dataset_is_loaded_as_it_was_in_its_order(any_store: Store) -> None:
    given_examples = examples([C, A, B])
    snapshot = freeze(any_store, given_examples, name=None, source="rows")
    wanted = [replace(example, snapshot_id=snapshot) for example in given_examples]
    assert list(load_snapshot(any_store, snapshot)) == wanted
    assert [example.position for example in wanted] == [0, 1, 2]


def test_a_snapshot_knows_its_size_and_its_splits(store: Store) -> None:
    (row,) = store.read("snapshots", freeze_rows(store, None, A, B, C))
    assert (row.n_examples, json.loads(row.splits)) == (3, {"test": 2})


def test_freezing_twice_writes_nothing_new(store: Store) -> None:
    first = freeze_rows(store, "questions", A, B)
    before = frozen_files(store)
    assert freeze_rows(store, "questions", B, A) == first
    assert frozen_files(store) == before


def test_the_order_of_the_first_freezing_stays(store: Store) -> None:
    snapshot = freeze_rows(store, None, A, B)
    freeze_rows(store, None, B, A)
    assert [json.loads(example.inputs)["q"] for example in load_snapshot(store, snapshot)] == ["a", "b"]


def test_a_freezing_that_broke_off_is_done_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "_snapshot", killed)
        with pytest.raises(KeyboardInterrupt):
            freeze_rows(store, "questions", A, B)
    assert current_snapshot(store, "questions") is None
    snapshot = freeze_rows(store, "questions", A, B)
    assert len(load_snapshot(store, snapshot)) == 2
    assert current_snapshot(store, "questions") == snapshot


def test_a_name_follows_its_dataset_there_and_back(any_store: Store) -> None:
    seen = []
    for given_rows in ([A], [A, B], [A], [A]):
        snapshot = freeze_rows(any_store, "questions", *given_rows)
        seen.append(current_snapshot(any_store, "questions") == snapshot)
    assert seen == [True, True, True, True]
    one, two = identity(A), identity(A, B)
    versions = any_store.query(
        "select snapshot_id, parent_snapshot_id from source.dataset_versions order by recorded_at"
    )
    assert versions == [(one, None), (two, one), (one, two)]


def test_a_snapshot_may_bear_several_names(store: Store) -> None:
    assert freeze_rows(store, "one", A) == freeze_rows(store, "two", A) == freeze_rows(store, None, A)
    assert current_snapshot(store, "one") == current_snapshot(store, "two") == identity(A)


def test_a_name_that_stands_for_nothing_is_none(store: Store) -> None:
    assert current_snapshot(store, "questions") is None


def test_an_unknown_snapshot_is_an_input_error(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        load_snapshot(store, "snap-none")
    assert str(caught.value) == f"snapshot 'snap-none': not in the store {store.layout.root}"


# Refused


def test_an_id_given_twice_names_both_rows() -> None:
    given_rows = [{"id": "x", "inputs": 1}, {"id": "y", "inputs": 1}, {"id": "x", "inputs": 2}]
    assert problem(given_rows) == "FILE:3: duplicate id 'x', first in row 1"


def test_a_number_and_a_text_that_look_the_same_are_one_id() -> None:
    assert problem([{"id": 1, "inputs": 1}, {"id": "1", "inputs": 2}]) == "FILE:2: duplicate id '1', first in row 1"


@pytest.mark.parametrize("row", [{"question": "?"}, {"inputs": {}}, {"inputs": ""}, {"inputs": None}, {"outputs": {}}])
def test_a_row_without_inputs_says_what_it_has(row: Row) -> None:
    found = problem([A, row])
    assert found.startswith("FILE:2: no inputs: got ")
    assert next(iter(row)) in found


def test_an_empty_row_says_so() -> None:
    assert (
        problem([{}]) == "FILE:1: no inputs: got an empty row, wanted 'inputs' (or `columns`, for rows of any schema)"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("reference_outputs", "outputs"),
        ("reference_outputs", "expected_output"),
        ("outputs", "expected_output"),
        ("inputs", "input"),
    ],
)
def test_two_spellings_of_one_field_are_refused(one: str, other: str) -> None:
    row = {"inputs": {"q": 1}} | {one: {"a": 1}, other: {"a": 1}}
    assert problem([A, row]) == f"FILE:2: got both {one!r} and {other!r}, wanted one of them"


def test_an_unknown_field_lists_the_known() -> None:
    assert problem([A | {"output": 1}]) == (
        "FILE:1: got the field 'output', wanted only inputs, input, reference_outputs, outputs, expected_output, "
        "id, metadata, split, cluster, attachments (or `columns`)"
    )


@pytest.mark.parametrize("field", ["split", "cluster"])
def test_a_split_or_cluster_that_is_no_text_is_refused(field: str) -> None:
    assert problem([A | {field: ["x"]}]) == f"FILE:1: {field}: got list, wanted a text"


def test_no_rows_at_all_are_refused() -> None:
    assert problem([]) == "FILE: got no rows, wanted at least one example"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, b"x", {"deep": [float("nan")]}, "\ud83d"], ids=repr
)
@pytest.mark.parametrize("field", ["inputs", "reference_outputs", "metadata"])
def test_a_value_that_json_cannot_hold_is_refused(field: str, value: object) -> None:
    assert problem([A, B | {field: {"x": value}}]).startswith("FILE:2: not JSON: ")


awkward_text = st.text(st.characters(), max_size=4)  # with surrogates and line ends
awkward_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | awkward_text | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(awkward_text | st.integers(), inner, max_size=2),
    max_leaves=3,
)
known = st.sampled_from(["inputs", "input", "outputs", "reference_outputs", "id", "metadata", "split", "cluster"])


@settings(deadline=None, max_examples=150)
@given(st.lists(st.dictionaries(known | awkward_text, awkward_value, max_size=3), max_size=3))
def test_whatever_a_row_holds_it_is_taken_or_refused_in_one_line(given_rows: list[Row]) -> None:
    try:
        found = examples(given_rows)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert snapshot_id(found).startswith("snap-")


# From a file


def file_problem(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        to_examples(read_rows(path), str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("content", "beginning"),
    [
        (b'{"inputs": 1}\n\n{"inputs": \n', "FILE:3: not JSON: "),
        (b'{"inputs": NaN}\n', "FILE:1: not JSON: NaN is not a JSON value"),
        (b'{"inputs": 1}\n[1]\n', "FILE:2: got list, wanted an object"),
        (b'\n{"id": "x", "inputs": 1}\n\n{"id": "x", "inputs": 2}\n', "FILE:4: duplicate id 'x', first in row 2"),
        (b'\n{"outputs": 1}\n', "FILE:2: no inputs: got "),
        (
            b'{"inputs": 1, "outputs": 1, "reference_outputs": 1}\n',
            "FILE:1: got both 'reference_outputs' and 'outputs'",
        ),
        (b'{"inputs": 1, "question": 2}\n', "FILE:1: got the field 'question', wanted only inputs, "),
        (b'{"inputs": "\\ud83d"}\n', "FILE:1: not JSON: "),
        (b'{"inputs": "\xff"}\n', "FILE"),
        (b"", "FILE: got no rows, wanted at least one example"),
        (b"\n\n", "FILE: got no rows, wanted at least one example"),
    ],
)
def test_what_is_wrong_with_a_file_names_its_line(tmp_path: Path, content: bytes, beginning: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    assert file_problem(path).startswith(beginning)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    assert file_problem(tmp_path / "none.jsonl") == "FILE: cannot be read: No such file or directory"


def test_a_file_and_its_rows_are_the_same_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (A, B)), encoding="utf-8")
    assert snapshot_id(to_examples(read_rows(path), "file")) == identity(B, A)
