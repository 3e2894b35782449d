"""Splits and samples of a dataset."""

import pytest
from loaded_datasets import SPLIT, ids, load, numbered, problem

from evalflows.specs.dataset import DatasetSpec
from evalflows.store.ingest.datasets import load_dataset
from evalflows.store.parquet import Store


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
