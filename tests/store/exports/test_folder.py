"""Folders of Parquet and CSV files."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import exported
import pytest
from exported import comparable
from full_store import Filler

from evalflows.specs.errors import InputError
from evalflows.specs.file_locks import try_lock
from evalflows.store.exports import MARK, export_folder
from evalflows.store.sql import connect
from evalflows.store.store import Store

csv.field_size_limit(10_000_000)


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def test_csv_cells_are_no_formulas_and_keep_everything_else(filled: Store, tmp_path: Path) -> None:
    export_folder(filled, tmp_path / "out", "csv", ["experiments", "item_scores"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"experiments.csv", "item_scores.csv", MARK}
    (experiment,) = [
        row for row in cells(tmp_path / "out" / "experiments.csv") if row["experiment_id"] == "exp-hostile"
    ]
    assert experiment["name"] == f"'{exported.NAME}"
    assert (experiment["state"], experiment["description"]) == ("interrupted", exported.ESCAPES)
    assert json.loads(experiment["tags"]) == [exported.NUL, exported.BIDI, "it's"]
    assert (experiment["started_at"], experiment["git_dirty"]) == ("2026-01-01T00:00:00.000000Z", "")
    items = [row for row in cells(tmp_path / "out" / "item_scores.csv") if row["experiment_id"] == "exp-hostile"]
    texts = {(exported.NUL, exported.LONG), (exported.LONG, exported.BIDI), ("'-1+1", "'@SUM(1)")}
    assert {(row["comment"], row["label"]) for row in items} == texts
    assert len(items) == 3
    assert {(row["metric"], row["value"]) for row in items} == {(exported.METRIC, "0.5")}


@pytest.mark.slow
def test_parquet_files_have_the_rows_of_the_views(filled: Store, tmp_path: Path) -> None:
    written = export_folder(filled, tmp_path / "out", "parquet", ["metric_summary", "experiments", "item_scores"])
    with connect(filled.layout.root) as catalog, duckdb.connect() as plain:
        for one in written:
            wanted = catalog.execute(f"from {one.name} order by all").fetchall()
            file = f"'{tmp_path}/out/{one.name}.parquet'"
            assert comparable(plain.execute(f"from {file} order by all").fetchall()) == comparable(wanted)
            assert one.rows == len(wanted) > 0
        kinds = plain.execute(f"select distinct typeof(calls) from '{tmp_path}/out/metric_summary.parquet'").fetchall()
        marked = plain.execute(
            f"select name from parquet_schema('{tmp_path}/out/item_scores.parquet') where converted_type = 'JSON'"
        )
        assert marked.fetchall() == [], "Polars takes what is marked as JSON for bytes"
    assert kinds == [("BIGINT",)], "sums of whole numbers are whole numbers"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_only_changed_files_are_written_again(store: Store, make: Any, tmp_path: Path, form: Any) -> None:
    folder, names = tmp_path / "out", ["experiments", "labels"]
    filler = Filler(store, make)
    filler.experiment("exp-1", "snap-1", 1, 1)

    def export(*only: str) -> dict[str, bool]:
        return {one.name: one.is_written for one in export_folder(store, folder, form, only or names)}

    def inodes() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in folder.iterdir()}

    assert export() == {"experiments": True, "labels": True}
    before = inodes()
    assert export() == {"experiments": False, "labels": False}
    assert inodes() == before
    filler.experiment("exp-2", "snap-1", 1, 1)
    assert export() == {"experiments": True, "labels": False}
    assert inodes()[f"labels.{form}"] == before[f"labels.{form}"]
    (folder / f"labels.{form}").unlink()
    assert export("labels") == {"labels": True}
    assert export() == {"experiments": False, "labels": False}


@pytest.fixture
def mart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an own mart."""
    folder = tmp_path / "marts"
    folder.mkdir()
    monkeypatch.setenv("EVALFLOWS_MARTS", str(folder))
    path = folder / "own_costs.sql"
    path.write_text("-- one row per experiment_id: its cost\nselect experiment_id, cost_usd from experiments")
    return path


@pytest.mark.slow
def test_the_file_of_a_mart_that_was_removed_is_removed_and_no_other(store: Store, tmp_path: Path, mart: Path) -> None:
    folder = tmp_path / "out"
    export_folder(store, folder, "csv")
    before = {path.name for path in folder.iterdir()}
    assert {"results.csv", "own_costs.csv", MARK} <= before and "labels.csv" not in before, "an empty table is left out"
    (folder / "mine.csv").write_text("mine")
    mart.unlink()
    export_folder(store, folder, "csv", ["results"])
    assert (folder / "own_costs.csv").exists(), "an export of some views removes nothing"
    assert not any(one.is_written for one in export_folder(store, folder, "csv")), "no other is written again"
    assert {path.name for path in folder.iterdir()} == before - {"own_costs.csv"} | {"mine.csv"}
    assert "own_costs" not in json.loads((folder / MARK).read_text())["files"]


@pytest.mark.slow
def test_an_interrupted_export_is_not_taken_for_a_finished_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["experiments", "labels"]
    export_folder(store, tmp_path / "out", "csv", ["experiments"])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("evalflows.store.exports.write_csv_file", killed)
        export_folder(store, tmp_path / "out", "csv", names)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"experiments.csv", MARK}
    again = {one.name: one.is_written for one in export_folder(store, tmp_path / "out", "csv", names)}
    assert again == {"experiments": False, "labels": True}


@pytest.mark.slow
def test_a_folder_of_something_else_is_left_alone(store: Store, tmp_path: Path) -> None:
    mine, exports = tmp_path / "mine", tmp_path / "exports"
    mine.mkdir()
    (mine / "labels.csv").write_text("mine")
    export_folder(store, exports, "csv", ["labels"])
    for folder, form, reason in (
        (mine, "csv", "got a folder with other files, wanted a new folder"),
        (mine / "labels.csv", "csv", "cannot be written: File exists"),
        (exports, "parquet", "as csv, wanted one of .* as parquet"),
    ):
        with pytest.raises(InputError, match=reason):
            export_folder(store, folder, form, ["labels"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got an export of"):
        export_folder(Store(tmp_path / "another"), exports, "csv", ["labels"])
    assert [path.read_text() for path in mine.iterdir()] == ["mine"]
    assert {path.name for path in exports.iterdir()} == {"labels.csv", MARK}


def test_two_exports_to_one_folder_exclude_each_other_and_an_unknown_name_writes_nothing(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(InputError, match="export: got 'nothing', wanted a view"):
        export_folder(store, folder, "csv", ["labels", "nothing"])
    assert not folder.exists()
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    assert try_lock(descriptor)
    with pytest.raises(InputError, match="another export is writing there"):
        export_folder(store, folder, "csv", ["labels"])
    os.close(descriptor)
    assert [*folder.iterdir()] == []
