"""Damaged files: no altered value is used, copies are ignored, and everything else in the store goes on."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import asyncio
import errno
import itertools
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from full_store import Filler, fill_sealed, fill_unfinished, freeze_questions
from open_store import OWNER, Make, runs, seen
from store_copies import StoreCopies

from evalflows import decide_again
from evalflows.cli.main import cli
from evalflows.llm.ledger import Ledger
from evalflows.reports.results import results_of
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.database import shared
from evalflows.store.files import FORMAT
from evalflows.store.marker import note_packed
from evalflows.store.queries.conclusions import approved
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.values import metric_values, places_where
from evalflows.store.query_process import _DAMAGED, QueryLimits, _answer
from evalflows.store.read_only_files import ReadOnlyFiles
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import current_snapshot, load_snapshot
from evalflows.store.sql import ask, rows_from, select_from
from evalflows.store.store import Store

KEPT = Path(__file__).parent / "kept" / f"format_{FORMAT}.zip"
FLIPS = 40
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


def test_a_stored_spec_that_cannot_be_read_is_named() -> None:
    row = SimpleNamespace(experiment_id="exp-1", spec='{"name": "a", "later": 1}')
    with pytest.raises(StorageError, match=r"^exp-1: the stored spec cannot be read: later: no such field"):
        experiment_spec(row)  # type: ignore[arg-type]


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
    ("judgements", "exp-1", lambda store: store.read("judgements", "exp-1")),
    ("judgements", "exp-1", values),
    ("outputs", "exp-2", result_table),
    ("experiments", "exp-1", result_table),
    ("verdicts", None, result_table),
    ("examples", None, snapshot_of),
]


@pytest.mark.slow
def test_no_flipped_bit_of_a_sealed_file_changes_a_result(filled: Store) -> None:
    for table, owner, use in DECIDING:
        _every_flip_is_seen(file_of(filled, table, owner), partial(use, filled))


def test_no_flipped_bit_of_a_sealed_file_or_an_open_part_changes_a_row(filled: Store) -> None:
    part = next(Path(filled.layout.open_folder("judgements", "exp-3")).glob("*.parquet"))
    _every_flip_is_seen(part, lambda: filled.read("judgements", "exp-3"))
    _every_flip_is_seen(file_of(filled, "outputs", "exp-1"), lambda: filled.read("outputs", "exp-1"))


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
@pytest.mark.parametrize("table", ["judgements", "decisions"])
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

    _every_flip_is_seen(file_of(store, table, owner), decide, 10)


# Which files are read


@pytest.mark.parametrize("name", ["rows (copy).parquet", ".rows.parquet"])
def test_a_copy_beside_a_sealed_file_is_not_read(any_store: Store, output: Make, name: str) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    path = any_store.layout.sealed("outputs", OWNER)
    any_store._fs.pipe_file(path.replace("rows.parquet", name), any_store._fs.cat_file(path))
    assert runs(any_store) == seen(any_store) == ["a", "b"]


# The damaged are left out, the rest goes on


def overwrite_pages(data: bytes) -> bytes:
    """The footer is as it was."""
    return data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :]


@pytest.mark.parametrize(
    ("damage", "table"),
    [(lambda data: data[:-30], "outputs"), (lambda data: b"", "experiments"), (overwrite_pages, "outputs")],
    ids=["cut", "empty", "overwritten"],
)
def test_the_owner_of_a_damaged_file_is_left_out_and_named_once(
    filled: Store, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes], table: str
) -> None:
    path = file_of(filled, table, "exp-1")
    rewrite(path, damage(path.read_bytes()))
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
    for reference in ("exp-1", "name of exp-1"):
        with pytest.raises(StorageError, match=r"experiment_id=exp-1/rows\.parquet: damaged"):
            find_experiments(filled, reference)


@pytest.mark.parametrize(("lost", "is_new_process"), [("file", True), ("file", False), ("table", True)])
def test_lost_empty_files_are_written_again(filled: Store, lost: str, is_new_process: bool) -> None:
    note_packed(filled.layout, filled.filesystem)
    before = seen(filled)
    empty = Path(filled.layout.empty("ratings"))
    shutil.rmtree(empty.parents[2] if lost == "table" else empty.parent)
    if is_new_process:
        filled._damages.note_change()  # the views are made again
    assert filled.query("select count(*) from source.ratings") == [(0,)], "also of a copy in memory"
    assert seen(filled) == before
    assert empty.exists()


def test_a_damaged_approval_stops_gates_and_a_damaged_version_of_a_dataset_leaves_the_others(
    store: Store, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        row = make("baselines", baseline_id=f"base-{number}", name="release", experiment_id=f"exp-{number}")
        store.publish("baselines", row.baseline_id, [row])
    path = file_of(store, "baselines", "base-1")
    rewrite(path, flipped(path.read_bytes(), 900))
    with pytest.raises(StorageError, match="base-1"):
        approved(store, "release")
    snapshot, _ = freeze_questions(store, "kept", 2)
    path = file_of(store, "dataset_versions")
    freeze_questions(store, "lost", 3)
    (lost,) = (p for p in Path(store.layout.root).glob("dataset_versions/sealed/*/rows.parquet") if p != path)
    rewrite(lost, flipped(lost.read_bytes(), 900))
    assert current_snapshot(store, "kept") == snapshot
    assert current_snapshot(store, "lost") is None
    assert str(lost) in capsys.readouterr().err


def test_damaged_calls_of_another_experiment_are_not_reused(
    store: Store, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        owner, key = f"exp-{number}", f"{number:064x}"
        call = make("calls", call_id=f"c{number}", experiment_id=owner, call_key=key, status="ok", reusable=True)
        store.publish("calls", owner, [call])
    path = file_of(store, "calls", "exp-1")
    rewrite(path, overwrite_pages(path.read_bytes()))
    ledger = Ledger(Store(), "exp-3")
    found = [asyncio.run(ledger.find(f"{number:064x}")) for number in (1, 2)]
    assert [row and row.call_id for row in found] == [None, "c2"]
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line


COUNT = "select count(*) from outputs"


def test_a_file_that_the_system_cannot_read_is_no_fault_of_the_query(
    filled: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store is sound, so nothing can be left out: it may be a disk that failed once."""
    path, whole = file_of(filled, "outputs", "exp-1"), os.pread

    def failing(descriptor: int, size: int, start: int) -> bytes:
        if os.fstat(descriptor).st_ino in failing_files:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(descriptor, size, start)

    examples = file_of(filled, "examples")
    failing_files = {file.stat().st_ino for file in (path, examples)}
    monkeypatch.setattr(os, "pread", failing)
    wanted = f"{path}: cannot be read: Input/output error; `evalflows doctor` says what to do"
    with pytest.raises(StorageError) as caught:
        select_from(filled, COUNT + " where started_at is not null")
    assert str(caught.value) == wanted
    for form, said in (("csv", f"evalflows: {wanted}\n"), ("json", '{"error": {"kind": "storage", "message": ')):
        done = CliRunner().invoke(cli, ["sql", f"{COUNT} where started_at is not null", "--format", form])
        assert (done.exit_code, done.stdout) == (4, "") and done.stderr.startswith(said), done.output
    request = {"root": filled.layout.root, "sql": f"{COUNT} where started_at is not null", "with_final": True}
    answer = _answer(request, QueryLimits())
    assert answer == _DAMAGED + wanted.encode()
    snapshot = examples.parent.name.partition("=")[2]
    with pytest.raises(StorageError, match=f"{examples}: cannot be read"):
        places_where(filled, snapshot, "position > 0", partial(rows_from, filled))
    for query in ("select 'x'::integer from experiments", f"from 'store://{filled.layout.root}/none.parquet'"):
        with pytest.raises(InputError, match=r"^sql: "):  # which no file causes
            select_from(filled, query)
    assert capsys.readouterr().err == ""


def test_no_bit_of_a_page_that_changes_after_it_was_verified_changes_a_row(filled: Store) -> None:
    """Examples are read during a whole run, and their file is verified once, before."""
    path = file_of(filled, "examples")
    snapshot, state, data = path.parent.name.partition("=")[2], path.stat(), path.read_bytes()
    wanted = [*load_snapshot(filled, snapshot)]
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    bits, refused = random.Random(11), 0
    for _ in range(FLIPS):
        with path.open("r+b") as file:
            file.write(flipped(data, bits.randrange(8 * 4, 8 * pages)))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        try:
            assert [*load_snapshot(filled, snapshot)] == wanted
        except StorageError as error:
            refused += str(error).startswith(f"{path}: damaged: ") and "evalflows doctor" in str(error)
    assert refused > FLIPS / 2, "most are of pages, the others of their headers"


@pytest.mark.parametrize("run", [select_from, lambda store, query: ask(store, (query, []))], ids=["others'", "ours"])
def test_what_a_disk_changes_after_it_was_verified_is_left_out(filled: Store, run: Callable[..., Any]) -> None:
    path = file_of(filled, "outputs", "exp-1")
    run(filled, COUNT)
    assert filled.verify(["exp-1"], ["outputs"])
    state, data = path.stat(), path.read_bytes()
    with path.open("r+b") as file:
        file.write(overwrite_pages(data))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    shared.close()  # with its copies in memory
    rows = run(filled, "select run_id, outputs from outputs where experiment_id = 'exp-1'")
    assert not (rows.fetchall() if run is select_from else rows[0])
    assert [damage.file.path for damage in filled.left_out()] == [str(path)]


def test_a_query_of_others_is_repeated_if_a_part_has_gone_and_not_if_rows_were_added(
    filled: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run writes parts all the time: a query that takes longer would never end."""
    find, connect, tries = ReadOnlyFiles.glob, Store.connect, list[Store]()

    def seal_then(files: ReadOnlyFiles, path: str, **options: Any) -> list[str]:
        found = find(files, path, **options)
        if any("/outputs/open/" in name for name in found):
            filled.seal("exp-3", ["outputs"])
        return found

    def append_then(files: ReadOnlyFiles, path: str, **options: Any) -> list[str]:
        if "/outputs/" in path:
            filled.append("outputs", "exp-4", "p", [make("outputs", experiment_id="exp-4")])
        return find(files, path, **options)

    (before,) = ask(filled, (COUNT, []))
    monkeypatch.setattr(ReadOnlyFiles, "glob", seal_then)
    assert select_from(filled, COUNT).fetchall() == before
    assert filled.is_sealed("outputs", "exp-3")
    monkeypatch.setattr(ReadOnlyFiles, "glob", append_then)
    monkeypatch.setattr(Store, "connect", lambda store, **options: tries.append(store) or connect(store, **options))
    select_from(filled, COUNT)
    assert tries == [filled]
