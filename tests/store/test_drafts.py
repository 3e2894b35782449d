"""Examples that are not in the store yet."""

from dataclasses import replace

import pytest

from evalflows.specs.errors import InputError
from evalflows.store import snapshots
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import draft, to_examples


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalflows.store.snapshots.READ_AHEAD", 3)
    monkeypatch.setattr(snapshots, "READ_AHEAD", 2)


def row(number: int) -> ExampleRow:
    return ExampleRow(snapshot_id="", example_id=f"e{number}", position=number, inputs=f'{{"n":{number}}}')


def test_examples_come_back_with_new_ids_where_they_were_renamed() -> None:
    rows = [row(number) for number in range(8)]
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
