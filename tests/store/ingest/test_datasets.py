"""Splits and samples of a dataset, its snapshots, and merging new examples into it."""

import pytest
from loaded_datasets import SPLIT, Row, examples, ids, inputs, load, load_and_keep, numbered, problem

from evalflows.specs.errors import InputError
from evalflows.store.dataset_versions import Difference, compare_examples, merge_examples
from evalflows.store.ingest import find_snapshot
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store


def test_only_examples_of_the_requested_splits_are_selected(store: Store) -> None:
    assert ids(load(store, rows=SPLIT, splits=["test"])) == ["e0", "e3", "e6"]
    assert ids(load(store, rows=SPLIT, splits=["dev", "test"])) == ["e0", "e1", "e3", "e4", "e6", "e7"]
    assert ids(load(store, rows=SPLIT, splits=["test", "train"])) == ["e0", "e3", "e6"]
    assert len(load(store, rows=SPLIT)) == 9
    sample = load(store, rows=SPLIT, splits=["test"], sample=2)
    assert [example.split for example in sample] == ["test"] * 2


@pytest.mark.parametrize("splits", [["train"], [], [""], ["Test"]])
def test_unknown_splits_are_refused_with_the_known_ones_listed(store: Store, splits: list[str]) -> None:
    said = problem(store, rows=SPLIT, splits=splits)
    assert said == f"dataset: splits: got {splits}, wanted some of ['dev', 'test']"


def test_samples_are_drawn_by_seed_and_id_and_keep_the_order_of_the_dataset(store: Store) -> None:
    rows = numbered(40)
    drawn = [ids(load(store, rows=rows, sample=size)) for size in (5, 10, 39, 40, 1000)]
    assert [len(one) for one in drawn] == [5, 10, 39, 40, 40]
    assert all(one == [row["id"] for row in rows if row["id"] in one] for one in drawn)
    assert {*drawn[0]} < {*drawn[1]} < {*drawn[2]}, "a larger sample contains the smaller one"
    assert {*ids(load(store, rows=rows[::-1], sample=10))} == {*drawn[1]}
    assert len({tuple(ids(load(store, rows=rows, sample=10, seed=seed))) for seed in (0, 1, -1)}) == 3
    # Pinned: if they changed, samples could not be compared with earlier measurements.
    assert ids(load(store, rows=numbered(10), sample=3, seed=1)) == ["e2", "e8", "e9"]


def test_growing_a_dataset_replaces_few_sampled_examples(store: Store) -> None:
    rows = numbered(60)
    before, after = ({*ids(load(store, rows=rows[:size], sample=20))} for size in (40, 60))
    new = {row["id"] for row in rows[40:]}
    assert after - new < before
    assert len(after & new) == len(before - after)


def test_a_name_is_that_of_the_newest_whole_dataset(store: Store) -> None:
    old, newest = (load_and_keep(store, rows=numbered(size), name="faq") for size in (3, 4))
    assert ids(load(store, name="faq")) == ids(load(store, snapshot=newest)) == ["e0", "e1", "e2", "e3"]
    assert load_and_keep(store, snapshot=old, name="faq") == old
    assert find_snapshot(store, "faq") == newest, "loading an old one does not make it the newest"
    kept = load_and_keep(store, rows=numbered(5), name="faq", sample=2)
    assert len(load_snapshot(store, kept)) == 2
    assert len(load_snapshot(store, find_snapshot(store, "faq"))) == 5


def test_a_sample_from_the_store_equals_a_sample_from_the_rows(store: Store) -> None:
    from_rows = load_and_keep(store, rows=SPLIT, name="faq", splits=["test", "dev"], sample=4)
    assert load_and_keep(store, name="faq", splits=["test", "dev"], sample=4) == from_rows
    assert load_and_keep(store, snapshot=from_rows, sample=4) == from_rows
    assert load_and_keep(store, snapshot=from_rows, splits=["test", "dev"], sample=400) == from_rows


def test_a_dataset_is_found_by_any_name_and_a_snapshot_by_its_full_id(store: Store) -> None:
    for name, wanted in (("help", "one of: none yet"), ("b", "one of: help"), ("faq", "one of: b, help"), ("c", "faq")):
        assert problem(store, name="fa") == f"dataset 'fa': not in the store, wanted {wanted}"
        load_and_keep(store, rows=numbered(1), name=name)
    for name in ("team/faq", "50%", "it's", "FAQ é"):
        kept = load_and_keep(store, rows=numbered(2), name=name)
        assert find_snapshot(store, name) == find_snapshot(store, kept) == kept
    with pytest.raises(InputError, match="not in the store"):
        find_snapshot(store, kept[:-1])
    assert problem(store, snapshot="snap-none").startswith("snapshot 'snap-none': not in the store ")


OLD = examples(*numbered(3))


def test_new_examples_are_appended_and_known_examples_kept_once(store: Store) -> None:
    together = merge_examples(OLD, examples(*reversed(numbered(5))), "more.csv")
    assert ids(together) == ["e0", "e1", "e2", "e4", "e3"]
    assert [example.position for example in together] == [0, 1, 2, 3, 4]
    rows = [{"inputs": {"q": "a"}}, {"inputs": {"q": "b"}}]
    old, new = examples(*rows), examples({"inputs": {"q": "c"}}, *reversed(rows))
    together = merge_examples(old, new, "x")
    assert inputs(together) == [{"q": "a"}, {"q": "b"}, {"q": "c"}], "without ids they are matched by content"
    assert ids(together)[:2] == ids(old)
    together = merge_examples(load(store, rows=numbered(30), sample=3), examples({"id": "new", "inputs": 1}), "x")
    assert max(together, key=lambda example: example.position).example_id == "new"


def test_an_id_with_other_content_is_refused() -> None:
    changes: list[Row] = [{"inputs": {"n": 7}}, {"reference_outputs": {"a": 1}}, {"metadata": {"m": 1}}]
    changes += [{"split": "test"}, {"cluster": "c"}, {"attachments": {"file": "x"}}]
    for change in changes:
        with pytest.raises(InputError, match=r"more.csv: got example 'e1', in the dataset with other content"):
            merge_examples(OLD, examples(numbered(2)[1] | change), "more.csv")


def test_a_difference_lists_added_removed_and_changed_examples() -> None:
    one, two, three = numbered(3)
    found = compare_examples(
        examples(one, two, three), examples({"id": "new", "inputs": 1}, three, two | {"split": "x"})
    )
    assert found == Difference(added=["new"], removed=["e0"], changed=["e1"], same=1)
