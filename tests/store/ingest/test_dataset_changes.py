"""Merging new examples into a dataset, and the differences between two versions."""

from dataclasses import replace

import pytest
from loaded_datasets import Row, examples, ids, inputs, load, load_and_keep, numbered

from evalflows.specs.errors import InputError
from evalflows.store.ingest.datasets import Difference, compare_examples, merge_examples
from evalflows.store.parquet import Store
from evalflows.store.snapshots import snapshot_id

# Merging

OLD = examples(*numbered(3))


def test_new_examples_are_appended_and_known_examples_kept_once() -> None:
    together = merge_examples(OLD, examples(*reversed(numbered(5))), "more.csv")
    assert ids(together) == ["e0", "e1", "e2", "e4", "e3"]
    assert [example.position for example in together] == [0, 1, 2, 3, 4]


def test_either_side_of_a_merge_may_be_empty() -> None:
    assert (
        ids(merge_examples([], OLD, "x"))
        == ids(merge_examples(OLD, [], "x"))
        == ids(merge_examples(OLD, OLD, "x"))
        == ids(OLD)
    )


def test_rows_without_ids_are_matched_by_content() -> None:
    rows = [{"inputs": {"q": "a"}}, {"inputs": {"q": "b"}}]
    old, new = examples(*rows), examples({"inputs": {"q": "c"}}, *reversed(rows))
    together = merge_examples(old, new, "x")
    assert inputs(together) == [{"q": "a"}, {"q": "b"}, {"q": "c"}]
    assert ids(together)[:2] == ids(old)


def test_repeated_rows_are_matched_one_by_one() -> None:
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


def test_merged_examples_belong_to_no_snapshot(store: Store) -> None:
    load_and_keep(store, rows=numbered(3), name="faq")
    together = merge_examples(load(store, name="faq"), examples(*numbered(5)), "x")
    assert {example.snapshot_id for example in together} == {""}
    assert snapshot_id(together) == snapshot_id(examples(*numbered(5)))


def test_new_examples_are_appended_to_a_sample(store: Store) -> None:
    sample = load(store, rows=numbered(30), sample=3)
    together = merge_examples(sample, examples({"id": "new", "inputs": 1}), "x")
    assert max(together, key=lambda example: example.position).example_id == "new"


# Differences


def test_a_difference_lists_added_removed_and_changed_examples() -> None:
    one, two, three = numbered(3)
    found = compare_examples(
        examples(one, two, three), examples({"id": "new", "inputs": 1}, three, two | {"split": "x"})
    )
    assert found == Difference(added=["new"], removed=["e0"], changed=["e1"], same=1)


def test_the_order_and_the_snapshot_make_no_difference() -> None:
    other = [replace(example, snapshot_id="snap-1", position=9) for example in reversed(OLD)]
    assert compare_examples(OLD, other) == Difference(added=[], removed=[], changed=[], same=3)


def test_differences_from_and_to_an_empty_dataset() -> None:
    assert compare_examples([], OLD) == Difference(added=["e0", "e1", "e2"], removed=[], changed=[], same=0)
    assert compare_examples(OLD, []) == Difference(added=[], removed=["e0", "e1", "e2"], changed=[], same=0)


def test_a_changed_row_without_an_id_is_a_different_example() -> None:
    found = compare_examples(examples({"inputs": 1}), examples({"inputs": 2}))
    assert (len(found.added), len(found.removed), found.changed, found.same) == (1, 1, [], 0)


def test_merging_only_adds_examples() -> None:
    together = merge_examples(OLD, examples(*numbered(6)), "x")
    assert compare_examples(OLD, together) == Difference(added=["e3", "e4", "e5"], removed=[], changed=[], same=3)
