"""Damaged files: no altered value is used, copies are ignored, and everything else in the store goes on."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import asyncio
import itertools
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from full_store import Filler, fill_sealed, fill_unfinished, freeze_questions
from open_store import OWNER, Make, open_parts, runs, seen
from store_copies import StoreCopies

from evalflows import decide_again
from evalflows.llm.ledger import Ledger
from evalflows.reports.results import results_of
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.catalog import ask, connect, select_from
from evalflows.store.checksums import has_checksum
from evalflows.store.layout import StoredFile
from evalflows.store.marker import note_packed
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import FORMAT
from evalflows.store.queries.baselines import approved
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.metric_values import metric_values
from evalflows.store.schemas import TABLES
from evalflows.store.snapshots import current_snapshot, load_snapshot

KEPT = Path(__file__).parent / "kept" / f"format_{FORMAT}.zip"
FLIPS, FLIPS_OF_FIGURES = 400, 100  # figures take longer, and verify in the same way
_ticks = itertools.count(1)


def rewrite(path: Path, data: bytes) -> None:
    """Replace a file's content, with another modification time even if the clock has not ticked."""
    path.write_bytes(data)
    at = path.stat().st_mtime_ns + 1000 * next(_ticks)
    os.utime(path, ns=(at, at))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture
def filled(copies: StoreCopies, store_root: Path) -> Store:
    """A store with the sealed experiments exp-1 and exp-2 on one snapshot, their verdict, and the open exp-3."""
    copies.make(str(store_root))
    return Store(store_root)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory, make: Make) -> StoreCopies:
    """Copies of that store, made once."""
    store = Store(tmp_path_factory.mktemp("filled") / "store")
    filler = Filler(store, make)
    snapshot, examples = freeze_questions(store, "questions", 3)
    for identity in ("exp-1", "exp-2"):
        fill_sealed(filler, identity, "v1", snapshot, examples)
    between = {"candidate_experiment_id": "exp-2", "baseline_experiment_id": "exp-1", "metric": "exact"}
    verdict = make("verdicts", run_group="a run_group", conclusion="better", **between)
    store.publish("verdicts", "a run_group", [verdict])
    fill_unfinished(filler, "exp-3", snapshot)
    return StoreCopies(Path(store.layout.root), Path(store.layout.marker).name)


def file_of(store: Store, table: str, owner: str | None = None) -> Path:
    """An owner's sealed file; without an owner, the table's only one."""
    if owner is not None:
        return Path(store.layout.sealed(table, owner))
    (path,) = (path for path in Path(store.layout.root).glob(f"{table}/sealed/*/rows.parquet"))
    return path


def values(store: Store) -> Any:
    return [(v.metric, str(v.values)) for v in metric_values(store, store.read("experiments", "exp-1")[0])]


def result_table(store: Store) -> Any:
    return results_of(store, ["exp-1", "exp-2"])


def snapshot_of(store: Store) -> Any:
    return list(load_snapshot(store, file_of(store, "examples").parent.name.partition("=")[2]))


DECIDING: list[tuple[str, str | None, Callable[[Store], Any]]] = [
    ("scores", "exp-1", result_table),
    ("scores", "exp-1", lambda store: store.read("scores", "exp-1")),
    ("scores", "exp-1", values),
    ("outputs", "exp-2", result_table),
    ("outputs", "exp-2", lambda store: store.read("outputs", "exp-2")),
    ("experiments", "exp-1", result_table),
    ("experiments", "exp-1", values),
    ("verdicts", None, result_table),
    ("calls", "exp-1", lambda store: store.read("calls", "exp-1")),
    ("examples", None, snapshot_of),
    ("examples", None, values),
    ("snapshots", None, lambda store: store.read("snapshots", file_of(store, "snapshots").parent.name[12:])),
]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "owner", "use"), DECIDING)
def test_no_flipped_bit_of_a_sealed_file_changes_a_result(
    filled: Store, table: str, owner: str | None, use: Callable[[Store], Any]
) -> None:
    path = file_of(filled, table, owner)
    _every_flip_is_seen(path, lambda: use(filled), FLIPS_OF_FIGURES if use in (values, result_table) else FLIPS)


@pytest.mark.parametrize("table", ["outputs", "scores", "experiments"])
def test_no_flipped_bit_of_an_open_part_changes_a_row(filled: Store, table: str) -> None:
    part = next(Path(filled.layout.open_folder(table, "exp-3")).glob("*.parquet"))
    _every_flip_is_seen(part, lambda: filled.read(table, "exp-3"))


def _every_flip_is_seen(path: Path, use: Callable[[], Any], flips: int = FLIPS) -> None:
    data, wanted = path.read_bytes(), use()
    assert wanted
    bits = random.Random(7)
    for _ in range(flips):
        bit = bits.randrange(8 * len(data))
        rewrite(path, flipped(data, bit))
        with pytest.raises(StorageError) as caught:
            use()
        assert str(path) in str(caught.value), bit
        assert "evalflows doctor" in str(caught.value)
    rewrite(path, data)
    assert use() == wanted  # the repaired file is read again


@pytest.mark.slow
@pytest.mark.parametrize("table", ["scores", "outputs", "experiments", "examples", "decisions"])
def test_no_flipped_bit_changes_a_gates_decision(store_root: Path, table: str) -> None:
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(store_root)
    store = Store()
    decision: str = store.query("select decision_id from source.decisions")[0][0]
    read = store.query("select candidate_experiment_id, snapshot_id from source.decisions d join source.experiments e "
                       "on e.experiment_id = d.candidate_experiment_id")[0]  # fmt: skip
    owner = {"decisions": decision, "examples": read[1]}.get(table, read[0])

    def decide() -> Any:
        again = decide_again(decision)
        return again.conclusion, again.reasons

    _every_flip_is_seen(file_of(store, table, owner), decide, FLIPS_OF_FIGURES)


def test_every_file_has_a_checksum(filled: Store) -> None:
    paths = list(Path(filled.layout.root).glob("*/*/*/*.parquet"))
    assert len(paths) > 2 * len(TABLES)
    for path in paths:
        with path.open("rb") as file:
            assert has_checksum(file), path


def test_rows_that_contain_the_checksums_key_are_verified_too(any_store: Store, output: Make) -> None:
    row = output("evalflows.sha256", error="evalflows.sha256\x18@" + 64 * "0", outputs="evalflows.sha256")
    any_store.publish("outputs", OWNER, [row])
    assert Store(any_store.layout.root).read("outputs", OWNER) == [row]


def test_a_file_without_a_checksum_is_read(store: Store, output: Make) -> None:
    store.publish("outputs", OWNER, [output("a")])
    path = file_of(store, "outputs", OWNER)
    pq.write_table(pq.read_table(path).replace_schema_metadata({"evalflows.format": "5"}), path)
    assert runs(store) == seen(store) == ["a"]


def test_a_truncated_file_without_a_checksum_is_one_line(store: Store, output: Make) -> None:
    store.publish("outputs", OWNER, [output("a")])
    path = file_of(store, "outputs", OWNER)
    table = pq.read_table(path).replace_schema_metadata({"evalflows.format": "5"})
    pq.write_table(table, path)
    rewrite(path, path.read_bytes()[:-20])
    with pytest.raises(StorageError, match="footer cannot be read"):
        store.read("outputs", OWNER)


def test_damage_in_an_object_store_is_seen(memory_root: str, output: Make) -> None:
    store = Store(memory_root)
    store.publish("outputs", OWNER, [output("a")])
    store.append("outputs", "exp-2", "p", [output("b", experiment_id="exp-2")])
    (part,) = store._fs.glob(f"{store.layout.open_folder('outputs', 'exp-2')}/*.parquet")
    for path, owner in ((store.layout.sealed("outputs", OWNER), OWNER), (part, "exp-2")):
        data = store._fs.cat_file(path)
        store._fs.pipe_file(path, flipped(data, 4000))
        with pytest.raises(StorageError, match="does not match its checksum"):
            store.read("outputs", owner)


# Which files are read


@pytest.mark.parametrize("name", ["rows (copy).parquet", "rows.bak.parquet", "Copy of rows.parquet", ".rows.parquet"])
def test_a_copy_beside_a_sealed_file_is_not_read(any_store: Store, output: Make, name: str) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    path = any_store.layout.sealed("outputs", OWNER)
    any_store._fs.copy(path, path.replace("rows.parquet", name))
    assert runs(any_store) == seen(any_store) == ["a", "b"]
    with connect(any_store.layout.root) as catalog:
        assert catalog.execute("select count(*) from outputs").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "name", ["rows.parquet", "p.0123456789ab (copy).parquet", "p.0123456789ab 2.parquet", "x.parquet"]
)
def test_a_foreign_file_beside_an_open_part_is_not_read(any_store: Store, output: Make, name: str) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.append("outputs", "exp-2", "p", [output("b", experiment_id="exp-2")])
    (foreign,) = any_store._fs.glob(f"{any_store.layout.open_folder('outputs', 'exp-2')}/*.parquet")
    any_store._fs.copy(foreign, f"{any_store.layout.open_folder('outputs', OWNER)}/{name}")
    assert runs(any_store) == ["a"]
    assert seen(any_store) == ["a", "b"]


def test_foreign_files_and_folders_may_hold_anything(filled: Store) -> None:
    before = seen(filled)
    sealed = Path(filled.layout.root) / "outputs" / "sealed"
    (sealed / "Backup").mkdir()
    (sealed / "Backup" / "rows.parquet").write_bytes(b"no Parquet file")
    (sealed / "experiment_id=exp-1" / "a.parquet").write_bytes(b"")
    (sealed / "notes.txt").write_bytes(b"mine")
    assert seen(Store()) == before
    assert StoredFile.at(str(sealed / "Backup" / "rows.parquet")) is None


# The damaged are left out, the rest goes on


def truncate(path: Path) -> None:
    rewrite(path, path.read_bytes()[:-30])


def empty(path: Path) -> None:
    rewrite(path, b"")


def overwrite_pages(path: Path) -> None:
    """The footer is as it was."""
    data = path.read_bytes()
    rewrite(path, data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])


@pytest.mark.parametrize("damage", [truncate, empty, overwrite_pages])
@pytest.mark.parametrize("table", ["outputs", "experiments"])
def test_the_owner_of_a_damaged_file_is_left_out_and_named_once(
    filled: Store, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], table: str
) -> None:
    path = file_of(filled, table, "exp-1")
    damage(path)
    query = "select experiment_id, answered from experiment_overview order by 1"
    for _ in range(2):
        assert ask(Store(), (query, [])) == [[("exp-2", 4), ("exp-3", 1)]]
    assert select_from(Store(), query).fetchall() == [("exp-2", 4), ("exp-3", 1)]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"evalflows: left out exp-1: {path}: damaged: ")
    assert find_experiments(Store(), "exp-2") == ["exp-2"]
    assert results_of(Store(), ["exp-2"])
    with pytest.raises(StorageError, match="exp-1"):
        results_of(Store(), ["exp-1"])


@pytest.mark.parametrize("table", ["experiments", "outputs"])
def test_a_reference_to_a_damaged_experiment_says_so(filled: Store, table: str) -> None:
    truncate(file_of(filled, table, "exp-1"))
    seen(filled, "experiment_id")
    for reference in ("exp-1", "name of exp-1"):
        with pytest.raises(StorageError, match=r"experiment_id=exp-1/rows\.parquet: damaged"):
            find_experiments(filled, reference)


def test_an_unknown_reference_is_invalid_input_beside_other_damage(filled: Store) -> None:
    truncate(file_of(filled, "examples"))
    filled.query("select example_id from source.examples")
    with pytest.raises(InputError, match="nonsense"):
        find_experiments(filled, "nonsense")


def test_a_repaired_or_removed_file_counts_again(filled: Store) -> None:
    path = file_of(filled, "outputs", "exp-1")
    data, before = path.read_bytes(), seen(filled)
    empty(path)
    assert len(seen(filled)) < len(before)
    rewrite(path, data)
    assert seen(filled) == before


def test_a_damaged_open_part_leaves_out_its_owner_until_it_is_removed(filled: Store) -> None:
    (part, *_) = open_parts_of(filled)
    empty(part)
    assert filled.query("select count(*) from source.outputs where experiment_id not in ('exp-1', 'exp-2')") == [(0,)]
    with pytest.raises(StorageError, match="too few for a Parquet file"):
        filled.read("outputs", "exp-3")
    part.unlink()
    assert len(filled.read("outputs", "exp-3")) == 1


def open_parts_of(store: Store) -> list[Path]:
    return sorted(Path(store.layout.open_folder("outputs", "exp-3")).glob("*.parquet"))


@pytest.mark.parametrize("lost", ["sealed", "open", "packed", "sealed and open", "table"])
@pytest.mark.parametrize("is_new_process", [True, False])
def test_lost_empty_files_are_written_again(filled: Store, lost: str, is_new_process: bool) -> None:
    note_packed(filled.layout, filled.filesystem)
    before = seen(filled)
    sealed, unsealed, packed = map(Path, filled.layout.empties("ratings"))
    lost_files = {"sealed": [sealed], "open": [unsealed], "packed": [packed], "sealed and open": [sealed, unsealed]}
    for path in lost_files.get(lost, []):
        path.unlink()
    if lost == "table":
        shutil.rmtree(sealed.parents[2])
    if is_new_process:
        filled._damages.note_change()  # the views are made again
    assert filled.query("select count(*) from source.ratings") == [(0,)]
    assert all(path.exists() for path in (sealed, unsealed, packed))
    assert seen(filled) == before


def test_damaged_empty_files_are_written_again(filled: Store) -> None:
    for path in map(Path, filled.layout.empties("outputs")):
        truncate(path)
    assert len(seen(filled)) > 0


def test_a_store_that_was_deleted_is_not_made_again(filled: Store) -> None:
    shutil.rmtree(filled.layout.root)
    with pytest.raises((StorageError, duckdb.Error)):
        filled.query("select 1 from source.outputs")
    assert not Path(filled.layout.root).exists()


def test_a_damaged_approval_stops_gates_that_need_one(store: Store, make: Make) -> None:
    for number in range(2):
        row = make("baselines", baseline_id=f"base-{number}", name="release", experiment_id=f"exp-{number}")
        store.publish("baselines", row.baseline_id, [row])
    path = file_of(store, "baselines", "base-1")
    rewrite(path, flipped(path.read_bytes(), 900))
    with pytest.raises(StorageError, match="base-1"):
        approved(store, "release")


def test_a_damaged_version_of_a_dataset_leaves_the_others(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, _ = freeze_questions(store, "kept", 2)
    path = file_of(store, "dataset_versions")
    freeze_questions(store, "lost", 3)
    (lost,) = (p for p in Path(store.layout.root).glob("dataset_versions/sealed/*/rows.parquet") if p != path)
    rewrite(lost, flipped(lost.read_bytes(), 900))
    assert current_snapshot(store, "kept") == snapshot
    assert current_snapshot(store, "lost") is None
    assert str(lost) in capsys.readouterr().err


@pytest.mark.parametrize("damage", [empty, overwrite_pages])
def test_damaged_calls_of_another_experiment_are_not_reused(
    store: Store, make: Make, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    for number in (1, 2):
        owner, key = f"exp-{number}", f"{number:064x}"
        call = make("calls", call_id=f"c{number}", experiment_id=owner, call_key=key, status="ok", reusable=True)
        store.publish("calls", owner, [call])
    path = file_of(store, "calls", "exp-1")
    damage(path)
    ledger = Ledger(Store(), "exp-3")
    found = [asyncio.run(ledger.find(f"{number:064x}")) for number in (1, 2)]
    assert [row and row.call_id for row in found] == [None, "c2"]
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line


def test_reading_and_opening_keep_the_checksum(store: Store, output: Make) -> None:
    store.publish("outputs", OWNER, [output("a")])
    store.reopen(OWNER, ["outputs"])
    (part,) = open_parts(store)
    with Path(part).open("rb") as file:
        assert has_checksum(file)
    assert runs(store) == ["a"]
