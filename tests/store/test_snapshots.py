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
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import current_snapshot, freeze, load_snapshot, snapshot_id, to_examples
from evalflows.store.store import Store

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


def test_the_order_of_keys_and_the_spelling_of_fields_make_no_difference() -> None:
    one = {"inputs": {"a": 1, "b": 2}, "reference_outputs": {"answer": "x"}, "split": "test"}
    same = {"split": "test", "outputs": {"answer": "x"}, "input": {"b": 2, "a": 1}, "metadata": None}
    assert identity(one) == identity(same) == identity(one | {"expected_output": None})
    assert ids([one]) == ids([same])


BASE: Row = {"inputs": {"q": "1"}, "reference_outputs": {"a": "1"}, "metadata": {"m": 1}, "split": "s", "cluster": "c"}


def test_other_content_is_another_snapshot() -> None:
    changes: list[Row] = [{"inputs": value} for value in ({"q": 1}, {"q": "1 "}, {"Q": "1"}, {"q": "1", "r": None})]
    changes += [{"reference_outputs": value} for value in ({"a": "2"}, None, {})]
    changes += [{"metadata": {"m": 2}}, {"metadata": None}, {"split": "t"}, {"split": None}, {"cluster": "d"}]
    changes += [{"attachments": {"file": "x"}}, {"id": "named"}, {"split": "c", "cluster": "s"}]
    for change in changes:
        assert identity(BASE | change) != identity(BASE), change
        assert ids([BASE | change]) != ids([BASE]), change


def test_ids_are_pinned() -> None:
    """These are in people's stores: a change of them parts every dataset from what was measured on it before."""
    assert identity({"inputs": {"q": "é"}, "outputs": {"a": 1.5}}) == "snap-d5882ffc5f46c0da9963e12c"
    assert ids([{"inputs": {"q": "é"}}] * 2) == ["7e309a6e6061ca041b09", "026d5463f7c584df3225"]


def test_a_value_that_is_no_mapping_is_wrapped_and_falsy_ones_are_kept() -> None:
    (example,) = examples([{"input": "hello", "expected_output": ["a", 1], "metadata": "note"}])
    assert json.loads(example.inputs) == {"input": "hello"}
    assert json.loads(example.reference_outputs or "") == {"output": ["a", 1]}
    assert json.loads(example.metadata or "") == {"value": "note"}
    found = examples([{"inputs": value, "split": 1, "cluster": 0} for value in (0, False, [])])
    assert [json.loads(example.inputs)["input"] for example in found] == [0, False, []]
    assert {(example.split, example.cluster, example.metadata) for example in found} == {("1", "0", None)}


def test_freezing_twice_writes_nothing_new(store: Store) -> None:
    first = freeze_rows(store, "questions", A, B)
    before = {path: path.stat().st_mtime_ns for path in Path(store.layout.root).rglob("*.parquet")}
    assert freeze_rows(store, "questions", B, A) == first
    assert {path: path.stat().st_mtime_ns for path in Path(store.layout.root).rglob("*.parquet")} == before


def test_a_freezing_that_broke_off_is_done_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(snapshots, "SnapshotRow", lambda **_: 1 / 0)
        freeze_rows(store, "questions", A, B)
    assert current_snapshot(store, "questions") is None
    snapshot = freeze_rows(store, "questions", A, B)
    assert len(load_snapshot(store, snapshot)) == 2
    assert current_snapshot(store, "questions") == snapshot


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


def test_a_name_follows_its_dataset_there_and_back(any_store: Store) -> None:
    for given_rows in ([A], [A, B], [A], [A]):
        snapshot = freeze_rows(any_store, "questions", *given_rows)
        assert current_snapshot(any_store, "questions") == snapshot
    one, two = identity(A), identity(A, B)
    query = "select snapshot_id, parent_snapshot_id from source.dataset_versions order by recorded_at"
    assert any_store.query(query) == [(one, None), (two, one), (one, two)]
    with pytest.raises(InputError, match=r"^snapshot 'snap-none': not in the store "):
        load_snapshot(any_store, "snap-none")


def test_a_wrong_row_is_refused_in_one_line_with_its_number() -> None:
    for given_rows, said in (
        ([{"id": 1, "inputs": 1}, A, {"id": "1", "inputs": 2}], "FILE:3: duplicate id '1', first in row 1"),
        ([A, {"question": "?"}], "FILE:2: no inputs: got question"),
        ([A, {"inputs": {}}], "FILE:2: no inputs: got inputs"),
        ([A, {"inputs": ""}], "FILE:2: no inputs: got inputs"),
        ([A, {"inputs": None}], "FILE:2: no inputs: got inputs"),
        ([{}], "FILE:1: no inputs: got an empty row"),
        ([A | {"outputs": 1, "expected_output": 1}], "FILE:1: got both 'outputs' and 'expected_output'"),
        ([A | {"input": 1}], "FILE:1: got both 'inputs' and 'input'"),
        ([A | {"output": 1}], "FILE:1: got the field 'output', wanted only inputs, "),
        ([A | {"split": ["x"]}], "FILE:1: split: got list, wanted a text"),
        ([A | {"cluster": ["x"]}], "FILE:1: cluster: got list, wanted a text"),
        ([], "FILE: got no rows"),
    ):
        assert problem(given_rows).startswith(said)


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    refused = {
        "x: got inf, wanted": float("inf"),
        "x: got bytes, wanted": b"x",
        "x.y.0: got -inf": {"y": [float("-inf")]},
    }
    for field in ("inputs", "reference_outputs", "metadata"):
        assert "half of a character" in problem([A, B | {field: {"x": "\ud83d"}}])
        for said, value in refused.items():
            assert problem([A, B | {field: {"x": value}}]).startswith(f"FILE:2: {field}.{said}")


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
