"""Splits and samples of a dataset."""

import pytest
from loaded_datasets import SPLIT, ids, load, numbered, problem

from evalflows.specs.dataset import DatasetSpec
from evalflows.store.ingest.datasets import load_dataset
from evalflows.store.parquet import Store


def test_only_examples_of_the_requested_splits_are_selected(store: Store) -> None:
    assert ids(load(store, rows=SPLIT, splits=["test"])) == ["e0", "e3", "e6"]
    assert ids(load(store, rows=SPLIT, splits=["dev", "test"])) == ["e0", "e1", "e3", "e4", "e6", "e7"]
    assert ids(load(store, rows=SPLIT, splits=["test", "train"])) == ["e0", "e3", "e6"]
    assert len(load(store, rows=SPLIT)) == 9


@pytest.mark.parametrize("splits", [["train"], [], [""], ["Test"]])
def test_unknown_splits_are_refused_with_the_known_ones_listed(store: Store, splits: list[str]) -> None:
    said = problem(store, rows=SPLIT, splits=splits)
    assert said == f"dataset: splits: got {splits}, wanted some of ['dev', 'test']"


def test_splits_are_refused_for_a_dataset_without_splits(store: Store) -> None:
    assert problem(store, rows=numbered(2), splits=["test"]).endswith("wanted no splits, as the dataset has none")


def test_all_examples_are_kept_beside_the_selected_ones(store: Store) -> None:
    found = load_dataset(store, DatasetSpec.model_validate({"rows": SPLIT, "splits": ["dev"], "sample": 2}))
    assert (len(found.examples), len(found.selected)) == (9, 2)


@pytest.mark.parametrize("size", [1, 7, 29, 30, 31, 1000])
def test_a_sample_has_the_requested_size_in_dataset_order(store: Store, size: int) -> None:
    found = load(store, rows=numbered(30), sample=size)
    assert len(found) == min(size, 30)
    positions = [example.position for example in found]
    assert positions == sorted(set(positions))


def test_samples_are_reproducible_by_seed(store: Store) -> None:
    rows = numbered(40)
    drawn = [ids(load(store, rows=rows, sample=10, seed=seed)) for seed in (0, 0, 1, -1)]
    assert drawn[0] == drawn[1] == ids(load(store, rows=rows, sample=10))
    assert len({tuple(one) for one in drawn}) == 3


def test_the_sampled_ids_are_pinned(store: Store) -> None:
    """If they changed, samples could not be compared with earlier measurements."""
    assert ids(load(store, rows=numbered(10), sample=3, seed=1)) == ["e2", "e8", "e9"]


def test_the_sample_does_not_depend_on_row_order(store: Store) -> None:
    rows = numbered(40)
    assert {*ids(load(store, rows=rows[::-1], sample=10))} == {*ids(load(store, rows=rows, sample=10))}


def test_a_larger_sample_contains_the_smaller_one(store: Store) -> None:
    rows = numbered(40)
    drawn = [{*ids(load(store, rows=rows, sample=size))} for size in (5, 10, 39)]
    assert drawn[0] < drawn[1] < drawn[2]


def test_sampling_a_sample_again_changes_nothing(store: Store) -> None:
    rows = numbered(40)
    drawn = {*ids(load(store, rows=rows, sample=10))}
    again = [row for row in rows if row["id"] in drawn]
    assert {*ids(load(store, rows=again, sample=10))} == drawn


def test_growing_a_dataset_replaces_few_sampled_examples(store: Store) -> None:
    rows = numbered(60)
    before, after = ({*ids(load(store, rows=rows[:size], sample=20))} for size in (40, 60))
    new = {row["id"] for row in rows[40:]}
    assert after - new < before
    assert len(after & new) == len(before - after)


def test_the_sample_is_drawn_from_the_selected_splits(store: Store) -> None:
    found = load(store, rows=SPLIT, splits=["test"], sample=2)
    assert len(found) == 2
    assert {example.split for example in found} == {"test"}


def test_every_example_can_be_sampled(store: Store) -> None:
    rows = numbered(8)
    drawn = {identity for seed in range(60) for identity in ids(load(store, rows=rows, sample=1, seed=seed))}
    assert drawn == {row["id"] for row in rows}
