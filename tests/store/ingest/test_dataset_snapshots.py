"""Snapshots that are kept of a dataset, and found by name or id."""

from pathlib import Path

import pytest
from loaded_datasets import SPLIT, ids, load, load_and_keep, numbered, problem

from evalflows.specs.errors import InputError
from evalflows.store.ingest.datasets import find_snapshot
from evalflows.store.parquet import Store
from evalflows.store.snapshots import current_snapshot, load_snapshot


def test_a_whole_dataset_becomes_the_newest_snapshot(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(3), name="faq")
    assert current_snapshot(store, "faq") == kept == find_snapshot(store, "faq")
    assert ids(load_snapshot(store, kept)) == ["e0", "e1", "e2"]


def test_the_name_refers_to_the_whole_dataset_when_a_sample_is_kept(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(5), name="faq", sample=2)
    assert len(load_snapshot(store, kept)) == 2
    assert len(load_snapshot(store, find_snapshot(store, "faq"))) == 5


def test_a_name_alone_loads_the_newest_snapshot(store: Store) -> None:
    load_and_keep(store, rows=numbered(3), name="faq")
    newest = load_and_keep(store, rows=numbered(4), name="faq")
    assert ids(load(store, name="faq")) == ids(load(store, snapshot=newest)) == ["e0", "e1", "e2", "e3"]


def test_keeping_a_stored_dataset_adds_no_file(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(3), name="faq")
    before = sorted(Path(store.layout.root).rglob("*.parquet"))
    assert load_and_keep(store, name="faq") == load_and_keep(store, snapshot=kept) == kept
    assert sorted(Path(store.layout.root).rglob("*.parquet")) == before


def test_loading_an_old_snapshot_does_not_make_it_the_newest(store: Store) -> None:
    old, newest = (load_and_keep(store, rows=numbered(size), name="faq") for size in (3, 4))
    assert load_and_keep(store, snapshot=old, name="faq") == old
    assert find_snapshot(store, "faq") == newest


def test_a_sample_from_the_store_equals_a_sample_from_the_rows(store: Store) -> None:
    from_rows = load_and_keep(store, rows=SPLIT, name="faq", splits=["test", "dev"], sample=4)
    assert load_and_keep(store, name="faq", splits=["test", "dev"], sample=4) == from_rows
    assert load_and_keep(store, snapshot=from_rows, sample=4) == from_rows
    assert load_and_keep(store, snapshot=from_rows, splits=["test", "dev"], sample=400) == from_rows


@pytest.mark.parametrize(
    ("known", "wanted"), [([], "one of: none yet"), (["faq"], "faq"), (["help", "b", "c"], "one of: b, c, help")]
)
def test_an_unknown_dataset_is_refused_with_the_known_ones_listed(store: Store, known: list[str], wanted: str) -> None:
    for name in known:
        load_and_keep(store, rows=numbered(1), name=name)
    assert problem(store, name="fa") == f"dataset 'fa': not in the store, wanted {wanted}"


@pytest.mark.parametrize("name", ["team/faq", "", "50%", "_faq"])
def test_names_that_are_not_file_names_are_looked_up(store: Store, name: str) -> None:
    assert problem(store, name=name).startswith(f"dataset {name!r}: not in the store")


def test_dataset_names_may_contain_any_character(store: Store) -> None:
    for name in ("team/faq", "50%", "it's", "FAQ é"):
        kept = load_and_keep(store, rows=numbered(2), name=name)
        assert find_snapshot(store, name) == kept


def test_a_snapshot_is_found_only_by_its_full_id(store: Store) -> None:
    kept = load_and_keep(store, rows=numbered(2))
    assert find_snapshot(store, kept) == kept
    with pytest.raises(InputError, match="not in the store"):
        find_snapshot(store, kept[:-1])
    assert problem(store, snapshot="snap-none").startswith("snapshot 'snap-none': not in the store ")
