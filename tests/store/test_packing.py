"""Packing moves the rows of finished owners into few files, and changes nothing that anyone reads."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from full_store import Filler, fill_sealed, fill_unfinished, freeze_questions

import evalflows.store.packing
from evalflows.reports.results import results_of
from evalflows.specs.errors import StorageError
from evalflows.store.doctor import examine
from evalflows.store.packing import Packed, pack, remove_packed
from evalflows.store.sql import ask, connect, rows_from, select_from
from evalflows.store.store import Store
from evalflows.store.views import grain, view_files

Make = Callable[..., Any]


def pack_now(store: Store) -> Packed:
    """Pack the store, also files that were written just now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evalflows.store.packing, "SETTLED_S", 0.0)
        return pack(store)


def own_files(store: Store, table: str) -> list[str]:
    return sorted(store.filesystem.glob(f"{store.layout.root}/{table}/sealed/*/rows.parquet"))


def packs(store: Store, table: str) -> list[str]:
    found = store.filesystem.glob(f"{store.layout.packed_folder(table)}/*.parquet")
    return sorted(path for path in found if not path.endswith("_.parquet"))


def output(store: Store, make: Make, number: int, **fields: Any) -> Any:
    return make("outputs", **{"run_id": f"run-{number}", "experiment_id": f"exp-{number}"} | fields)


def sealed_outputs(store: Store, make: Make, *numbers: int) -> None:
    for number in numbers:
        store.publish("outputs", f"exp-{number}", [output(store, make, number)])


def run_ids(store: Store) -> list[str]:
    """Of our own queries, and of users', which read the files that are listed for them."""
    (ours, theirs) = (found(store, "select run_id from outputs order by 1") for found in (Store.query, rows_from))
    assert ours == theirs
    return [run for (run,) in ours]


@pytest.fixture
def filled(store: Store, filler: Filler) -> Store:
    """Three sealed experiments, and one that is not finished."""
    snapshot, examples = freeze_questions(store, "questions", 3)
    for number in range(3):
        fill_sealed(filler, f"exp-{number}", "v1", snapshot, examples)
    fill_unfinished(filler, "exp-open", snapshot)
    return store


def everything(root: str) -> dict[str, list[Any]]:
    with connect(root) as catalog:
        return {
            path.stem: catalog.execute(f"from {path.stem} order by {', '.join(grain(path))}").fetchall()
            for path in view_files()
        }


@pytest.mark.slow
def test_every_view_gives_the_same_rows(filled: Store) -> None:
    before = everything(filled.layout.root)
    assert pack_now(filled) == Packed(18, 6)  # the files of three experiments
    assert own_files(filled, "outputs") == [] and len(packs(filled, "outputs")) == 1
    assert everything(filled.layout.root) == before
    assert {len(before["outputs"]), len(before["scores"])} == {19, 37}


def summaries(store: Store) -> dict[str, Path]:
    """By the table that it sums up."""
    found = sorted(Path(store.layout.root, "summaries").glob("*"))
    return {"outputs" if rows_in(path)[0][2] == "measured" else "judgements": path for path in found}


def rows_in(path: Path) -> list[Any]:
    return duckdb.execute(f"from '{path}'").fetchall()


def test_summaries_of_packed_files_give_the_rows_that_the_files_give(filled: Store, make: Make) -> None:
    query = "from results order by experiment_id, metric, evaluator_version"
    before = rows_from(filled, query)
    pack_now(filled)
    assert {table: len(rows_in(path)) for table, path in summaries(filled).items()} == {"judgements": 6, "outputs": 12}
    assert rows_from(filled, query) == filled.query(query) == before, "one experiment is not packed"

    filled.reopen("exp-1", ["judgements", "outputs"])
    (first, *_) = filled.read("judgements", "exp-1")
    filled.append("judgements", "exp-1", "p", [replace(first, judgement_id="another", value=0.125)])
    assert rows_from(filled, query) == filled.query(query) != before, "its packed rows count no more"
    filled.seal("exp-1", ["judgements", "outputs"])
    assert rows_from(filled, query) == filled.query(query)

    altered = duckdb.sql(f"select * replace (7.0 as mean) from '{summaries(filled)['judgements']}'").to_arrow_table()
    pq.write_table(altered, summaries(filled)["judgements"])
    means = "select distinct mean from metric_summary where experiment_id = 'exp-0' and subject_kind = 'run'"
    assert (7.0,) in rows_from(filled, means), "they are what is read"
    assert (7.0,) not in select_from(filled, means, with_final=False).fetchall(), "they may count final examples"


def test_a_summary_goes_with_the_packed_rows_that_it_sums_up(filled: Store) -> None:
    pack_now(filled)
    both = summaries(filled)
    remove_packed(filled, "judgements", ["exp-0"])
    assert [*summaries(filled)] == ["outputs"]
    query = "from metric_summary order by experiment_id, metric, evaluator_version"
    assert rows_from(filled, query) == filled.query(query)
    pack_now(filled)
    again = summaries(filled)
    assert again["outputs"] == both["outputs"] and again["judgements"] != both["judgements"]
    assert not {row[0] for row in rows_in(again["judgements"])} & {"exp-0"}
    assert not [finding for finding in examine(filled).findings if "summaries" in finding.path]


def test_an_owner_whose_open_parts_are_left_over_stays_as_it_is(store: Store, make: Make) -> None:
    """Without its sealed file, the parts would count, of which whoever sealed it may have removed some."""
    sealed_outputs(store, make, 1, 2, 3)
    store.append("outputs", "exp-3", "p", [output(store, make, 3)])
    pack_now(store)
    assert [path.split("=")[1].split("/")[0] for path in own_files(store, "outputs")] == ["exp-3"]
    assert run_ids(store) == ["run-1", "run-2", "run-3"]


def test_a_packed_owner_is_reopened_and_sealed_again(any_store: Store, make: Make) -> None:
    sealed_outputs(any_store, make, 1, 2)
    pack_now(any_store)
    any_store.reopen("exp-1", ["outputs"])
    assert not any_store.is_sealed("outputs", "exp-1") and run_ids(any_store) == ["run-1", "run-2"]
    any_store.append("outputs", "exp-1", "p", [output(any_store, make, 1, run_id="run-1b")])
    assert run_ids(any_store) == ["run-1", "run-1b", "run-2"]
    assert {row.run_id for row in any_store.read("outputs", "exp-1")} == {"run-1", "run-1b"}
    any_store.seal("exp-1", ["outputs"])
    assert run_ids(any_store) == ["run-1", "run-1b", "run-2"]
    sealed_outputs(any_store, make, 3)
    pack_now(any_store)
    assert own_files(any_store, "outputs") == [] and run_ids(any_store) == ["run-1", "run-1b", "run-2", "run-3"]


@pytest.mark.parametrize(("step", "is_before"), [("write_pack", True), ("_remove", False)])
def test_packing_that_breaks_off_loses_and_doubles_nothing(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch, step: str, is_before: bool
) -> None:
    """Before the packed file is written, or when the file of the first owner is removed."""
    sealed_outputs(store, make, 1, 2, 3)
    take = getattr(evalflows.store.packing, step)

    def stop(*given: Any, **options: Any) -> None:
        if not is_before:
            take(*given, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(evalflows.store.packing, step, stop)
        pack_now(store)
    assert run_ids(Store(store.layout.root)) == ["run-1", "run-2", "run-3"]
    pack_now(store)
    assert run_ids(store) == ["run-1", "run-2", "run-3"]


def test_an_owner_that_is_reopened_while_it_is_packed_keeps_its_new_rows(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed_outputs(store, make, 1, 2)
    write = evalflows.store.packing.write_pack

    def write_and_reopen(*given: Any) -> None:
        write(*given)
        store.reopen("exp-1", ["outputs"])
        store.append("outputs", "exp-1", "p", [output(store, make, 1, run_id="new")])
        store.seal("exp-1", ["outputs"])

    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.packing, "write_pack", write_and_reopen)
        pack_now(store)
    assert run_ids(store) == ["new", "run-1", "run-2"]


def test_a_damaged_packed_file_leaves_out_its_owners_everywhere(filled: Store) -> None:
    pack_now(filled)
    (path,) = packs(filled, "outputs")
    Path(path).write_bytes(b"torn")
    store = Store(filled.layout.root)
    with pytest.raises(StorageError, match=f"{path}: damaged: got 4 bytes"):
        results_of(store, ["exp-1"])
    for table in ("outputs", "judgements", "experiments"):  # the first query finds the damage
        (rows,) = ask(store, (f"select distinct experiment_id from {table}", []))
        assert rows == [("exp-open",)]


def test_a_damaged_value_in_a_packed_file_is_an_error(filled: Store) -> None:
    pack_now(filled)
    (path,) = map(Path, packs(filled, "judgements"))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError, match="does not match its checksum"):
        results_of(Store(filled.layout.root), ["exp-1"])
    with pytest.raises(StorageError, match="does not match its checksum"):
        Store(filled.layout.root).read("judgements", "exp-2")
    findings = [finding for finding in examine(filled).findings if finding.severity == "damaged"]
    assert [finding.path for finding in findings] == [str(path)]


def test_doctor_finds_nothing_in_a_packed_store_and_misses_lost_rows(filled: Store) -> None:
    pack_now(filled)
    assert examine(filled).is_sound
    (path,) = map(Path, packs(filled, "outputs"))
    path.unlink()
    lost = [finding for finding in examine(filled).findings if finding.severity == "damaged"]
    assert [finding.problem for finding in lost] == [
        f"exp-{number} is completed, but has 0 rows here, wanted 6" for number in range(3)
    ]


def test_large_files_and_those_just_written_stay_as_they_are(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed_outputs(store, make, 1, 2)
    assert pack(store) == Packed(0, 0)
    size = Path(own_files(store, "outputs")[0]).stat().st_size
    monkeypatch.setattr(evalflows.store.packing, "PACK_BYTES", 4 * size - 4)
    assert pack_now(store) == Packed(0, 0) and len(own_files(store, "outputs")) == 2
