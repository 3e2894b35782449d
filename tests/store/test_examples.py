"""Examples that are read from disk when they are needed, also those that are not in the store yet."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evalflows.specs.errors import InputError
from evalflows.store import files
from evalflows.store import snapshots as module
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import Examples, draft, freeze, load_snapshot, snapshot_id, to_examples
from evalflows.store.store import Store


def rows(n: int, size: int = 1) -> Examples:
    return to_examples(
        ((i, {"id": f"e{i}", "inputs": f"{i} " + "x" * size, "cluster": i % 3}) for i in range(n)), "rows"
    )


@pytest.fixture(params=["draft", "snapshot", "snapshot in row groups"])
def six(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> Examples:
    if request.param == "draft":
        return rows(6)
    if request.param == "snapshot in row groups":
        monkeypatch.setattr(files, "ROWS_PER_GROUP", 2)
        monkeypatch.setattr(module, "CACHED_BYTES", 1)  # one row group
    snapshot = freeze(store, rows(6), name=None, source="rows")
    if request.param == "snapshot in row groups":
        assert pq.read_metadata(store.layout.sealed("examples", snapshot)).num_row_groups == 3
    return load_snapshot(store, snapshot)


def ids(found: list[ExampleRow]) -> list[str]:
    return [example.example_id for example in found]


def test_examples_are_a_sequence(six: Examples) -> None:
    assert len(six) == 6
    assert ids(list(six)) == [*six.ids] == [f"e{i}" for i in range(6)]
    assert [*six.clusters] == [str(i % 3) for i in range(6)]
    assert (six[4].example_id, six[-1].example_id, ids(six[1:3])) == ("e4", "e5", ["e1", "e2"])
    assert ids(list(six.rows([5, 0, 5]))) == ["e5", "e0", "e5"]
    with pytest.raises(IndexError):
        six[6]


def test_a_selection_keeps_its_order_and_the_positions(six: Examples) -> None:
    chosen = six.select([4, 0, 3])
    assert (chosen.ids, chosen.clusters) == (["e4", "e0", "e3"], ["1", "0", "0"])
    assert [example.position for example in chosen] == [4, 0, 3]
    assert chosen.select([2, 0]).ids == ids([chosen[2], chosen[0]]) == ["e3", "e4"]


def test_a_file_in_another_order_is_read_in_that_of_the_positions(store: Store) -> None:
    given = [replace(example, snapshot_id="snap-1", position=5 - example.position) for example in rows(6)]
    store.publish("examples", "snap-1", given)
    store.publish("snapshots", "snap-1", [])
    assert [*load_snapshot(store, "snap-1").ids] == [f"e{i}" for i in reversed(range(6))]


def test_the_snapshots_id_does_not_depend_on_the_order_where_lines_begin_alike() -> None:
    long = "a" * 200  # longer than what is sorted by
    given = list(draft(replace(example, example_id=f"{long}{example.example_id}") for example in rows(20)))
    assert snapshot_id(given) == snapshot_id(given[::-1]) == snapshot_id([*given[10:], *given[:10]])
    assert snapshot_id(given) != snapshot_id(given[1:])


def test_long_texts_are_stored_in_small_row_groups(store: Store, store_root: Path) -> None:
    snapshot = freeze(store, rows(40, size=1 << 20), name=None, source="rows")
    metadata = pq.read_metadata(store.layout.sealed("examples", snapshot))
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert (sum(counts), max(counts)) == (40, 8)


def test_examples_come_back_with_new_ids_where_they_were_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_AHEAD", 2)
    rows = [
        ExampleRow(snapshot_id="", example_id=f"e{number}", position=number, inputs=f'{{"n":{number}}}')
        for number in range(8)
    ]
    assert [*draft(rows)] == rows
    made = draft(rows, lambda ids: {number: f"new-{ids[number]}" for number in (0, 5)})
    wanted = [f"new-e{number}" if number in (0, 5) else f"e{number}" for number in range(8)]
    assert [*made.ids] == [example.example_id for example in made] == wanted
    assert [*made] == [replace(one, example_id=name) for one, name in zip(rows, wanted, strict=True)]


def test_repeated_rows_without_ids_are_examples_of_their_own() -> None:
    same, other = {"inputs": "same"}, {"inputs": "other"}
    made = to_examples(enumerate([same, other, same, same]), "rows")
    assert len({*made.ids}) == 4
    assert [*made.ids] == [*to_examples(enumerate([same, other, same, same]), "rows").ids]
    assert made.ids[0] == to_examples([(1, same)], "rows").ids[0]


def test_an_id_that_a_repeated_row_would_have_is_refused() -> None:
    same = {"inputs": "same"}
    taken = to_examples(enumerate([same, same]), "rows").ids[1]
    with pytest.raises(InputError, match=f"rows: got the id '{taken}', which a repeated row has, wanted another"):
        to_examples(enumerate([same, same, {"inputs": "other", "id": taken}]), "rows")
