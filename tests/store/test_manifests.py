"""Manifests: a file that no run wrote is named by doctor and by the gate, whatever its Parquet metadata say."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from full_store import Filler, fill_sealed, freeze_questions
from store_copies import StoreCopies

import evalflows.store.packing
from evalflows.cli.main import cli
from evalflows.specs.errors import StorageError
from evalflows.store.doctor import examine
from evalflows.store.erasing import Selection
from evalflows.store.evidence import DELETED, deleted_decisions, evidence_on, verify_decision
from evalflows.store.files import write_file
from evalflows.store.layout import StoredFile
from evalflows.store.manifests import ALTERED, FOLDER, UNKNOWN, Written, manifests
from evalflows.store.packing import pack
from evalflows.store.packs import OWNERS_KEY
from evalflows.store.retention import erase
from evalflows.store.schemas import EXPERIMENT_TABLES, TABLES, schema_of, to_arrow
from evalflows.store.store import Store

Make = Callable[..., Any]
EXPERIMENTS = ("exp-1", "exp-2")


def decide(store: Store, make: Make, identity: str = "dec-1") -> None:
    """Store a decision on exp-1 as a gate does."""
    (candidate,) = store.read("experiments", "exp-1")
    evidence = evidence_on(store, ["exp-1", candidate.snapshot_id])
    row = make("decisions", decision_id=identity, gate="release", candidate_experiment_id="exp-1", conclusion="FAIL")
    store.publish_all(identity, [("decisions", [to_arrow("decisions", [row])])], Written(evidence=evidence))


def fill(store: Store, make: Make) -> None:
    filler = Filler(store, make)
    snapshot, examples = freeze_questions(store, "questions", 3)
    for identity in EXPERIMENTS:
        fill_sealed(filler, identity, "v1", snapshot, examples)
    decide(store, make)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory, make: Make) -> StoreCopies:
    store = Store(tmp_path_factory.mktemp("decided") / "store")
    fill(store, make)
    return StoreCopies(Path(store.layout.root), Path(store.layout.marker).name)


@pytest.fixture
def decided(copies: StoreCopies, store_root: Path) -> Store:
    """A store with two sealed experiments, and a decision on the first."""
    copies.make(str(store_root))
    return Store(store_root)


def forge(store: Store, table: str, owner: str, rows: list[Any], *, state: str = "sealed") -> str:
    """Write a file as this program does, with the right format and checksum, but not by a run."""
    path = store.layout.sealed(table, owner)
    if state == "open":
        path = f"{store.layout.open_folder(table, owner)}/p.0123456789ab.parquet"
    write_file(store.layout, store.filesystem, path, schema_of(TABLES[table].record), [to_arrow(table, rows)])
    return path


def damaged(store: Store) -> list[tuple[str, str]]:
    return [(one.path, one.problem) for one in examine(store).findings if one.severity == "damaged"]


def test_a_store_that_runs_wrote_is_sound_and_its_manifests_are_few(decided: Store) -> None:
    assert damaged(decided) == []
    known = manifests(decided.layout, decided.filesystem)
    assert {len(known[owner]) for owner in ("dec-1", *EXPERIMENTS)} == {1}
    (one,) = known["exp-1"]
    unused = {"sentinels", "resamples"}
    assert {path.partition("/")[0] for path in one.files} == {*EXPERIMENT_TABLES} - unused
    written = json.loads(Path(decided.layout.root, FOLDER, one.name).read_text())["written_by"]
    assert written["process"] == os.getpid() and written["evalflows_version"]
    assert verify_decision(decided, "dec-1").n_files == 5


@pytest.mark.parametrize("state", ["sealed", "open"])
def test_a_forged_decision_is_named(decided: Store, make: Make, state: str) -> None:
    row = make("decisions", decision_id="dec-2", gate="release", candidate_experiment_id="exp-1", conclusion="PASS")
    path = forge(decided, "decisions", "dec-2", [row], state=state)
    assert damaged(decided) == [(path, UNKNOWN)]
    assert CliRunner().invoke(cli, ["doctor"]).exit_code == 4
    done = CliRunner().invoke(cli, ["explain", "dec-2", "--again"])
    assert done.exit_code == 4 and f"{path}: {UNKNOWN}" in done.stderr and "Decided again" not in done.stdout


def test_altered_scores_are_named_from_the_decision_on(decided: Store, make: Make) -> None:
    rows = [row for row in decided.read("judgements", "exp-1") if row.status == "scored"]
    path = forge(decided, "judgements", "exp-1", rows)
    assert damaged(decided) == [(path, f"{ALTERED}; the decision dec-1 rests on it")]
    done = CliRunner().invoke(cli, ["explain", "dec-1", "--again"])
    assert done.exit_code == 4 and f"{path}: {ALTERED}" in done.stderr
    with pytest.raises(StorageError, match=f"{path}: no run wrote these bytes"):
        decide(decided, make, "dec-3")
    with pytest.raises(StorageError, match="no run wrote these bytes"):
        decided.reopen("exp-1", ["judgements"])  # its rows would be sealed as those of a run
    assert decided.is_sealed("judgements", "exp-1")


def test_a_decision_is_bound_to_the_manifests_of_its_evidence(decided: Store) -> None:
    (manifest,) = Path(decided.layout.root, FOLDER).glob("exp-1.*.json")
    body = manifest.read_bytes()
    manifest.write_bytes(body.replace(b'"format": 1', b'"format":  1'))
    assert damaged(decided) == [(str(manifest), "the manifest was altered, and the decision dec-1 rests on it")]
    manifest.write_bytes(b"{")
    assert str(manifest) in dict(damaged(decided))
    manifest.unlink()
    problem = "the manifest is missing, and the decision dec-1 rests on it"
    assert (str(manifest), problem) in damaged(decided)
    with pytest.raises(StorageError, match=f"{manifest}: {problem}"):
        verify_decision(decided, "dec-1")
    manifest.write_bytes(body)
    assert damaged(decided) == []
    for one in Path(decided.layout.root, FOLDER).glob("dec-1.*.json"):
        one.unlink()
    with pytest.raises(StorageError, match=UNKNOWN):
        verify_decision(decided, "dec-1")


def test_a_deleted_decision_is_named_with_and_without_its_manifest(decided: Store, make: Make) -> None:
    decide(decided, make, "dec-2")
    path = decided.layout.sealed("decisions", "dec-1")
    Path(path).unlink()
    gone = (path, "the decision was deleted, or its gate was killed while writing it")
    assert damaged(decided) == [gone] and deleted_decisions(decided) == ["dec-1"]
    with pytest.raises(StorageError, match=f"{path}: the decision was deleted, and dec-2 was made after it"):
        verify_decision(decided, "dec-2")
    (manifest,) = Path(decided.layout.root, FOLDER).glob("dec-1.*.json")
    manifest.unlink()
    assert (str(manifest), "the manifest is missing, and the decision dec-2 was made after dec-1") in damaged(decided)
    assert gone in damaged(decided)
    decide(decided, make)
    assert deleted_decisions(decided) == []


@pytest.mark.parametrize("table", ["checks", "judgements"])
def test_deleted_evidence_is_named_and_nothing_is_decided_without_it(decided: Store, make: Make, table: str) -> None:
    """Without its checks, a judge that failed them would count again."""
    if table == "checks":
        check = make("checks", check_id="c", batch_id="exp-1", subject_id="judge", passed=False)
        decided.publish("checks", "exp-1", [check])
        decide(decided, make, "dec-2")
    path = Path(decided.layout.sealed(table, "exp-1"))
    path.unlink()
    ((found, problem),) = damaged(decided)
    assert found == str(path) and ("deleted" in problem or table == "judgements")
    with pytest.raises(StorageError, match=f"{path}: {DELETED}"):
        verify_decision(decided, "dec-2" if table == "checks" else "dec-1")
    with pytest.raises(StorageError, match=f"{path}: {DELETED}"):
        decide(decided, make, "dec-3")


def test_what_rewrites_files_keeps_them_sound(decided: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evalflows.store.packing, "SETTLED_S", 0.0)
    decided.reopen("exp-1", EXPERIMENT_TABLES)
    decided.append("judgements", "exp-1", "p", decided.read("judgements", "exp-1")[:1])
    decided.seal("exp-1", EXPERIMENT_TABLES)
    assert verify_decision(decided, "dec-1").n_files == 5  # a later run wrote them
    erase(decided, Selection(examples=["q1"]), None)
    assert damaged(decided) == [] and verify_decision(decided, "dec-1").n_files == 5
    foreign = forge(decided, "outputs", "exp-9", [make("outputs", run_id="r", experiment_id="exp-9")])
    pack(decided)
    assert damaged(decided) == [(foreign, UNKNOWN)]  # not packed as the rows of a run
    assert StoredFile.at(decided.sealed_file("judgements", "exp-1") or "").is_packed  # type: ignore[union-attr]
    assert verify_decision(decided, "dec-1").n_files
    decide(decided, make, "dec-2")
    path = Path(decided.sealed_file("judgements", "exp-1") or "")
    owners = {OWNERS_KEY: pq.read_metadata(path).metadata[OWNERS_KEY]}
    rows = pq.ParquetFile(path).read().slice(1)
    write_file(decided.layout, decided.filesystem, str(path), schema_of(TABLES["judgements"].record), [rows], owners)
    assert (str(path), ALTERED) in damaged(decided)
    with pytest.raises(StorageError, match=f"{path}: no run wrote these bytes"):
        verify_decision(decided, "dec-1")


def test_a_packed_file_that_lists_no_owners_is_no_evidence(decided: Store, make: Make) -> None:
    path = f"{decided.layout.packed_folder('judgements')}/0123456789ab.parquet"
    row = make("judgements", judgement_id="s", experiment_id="exp-1", value=1.0)
    schema = schema_of(TABLES["judgements"].record)
    write_file(decided.layout, decided.filesystem, path, schema, [to_arrow("judgements", [row])])
    for decide_or_verify in (lambda: decide(decided, make, "dec-3"), lambda: verify_decision(decided, "dec-1")):
        with pytest.raises(StorageError, match=f"{path}: {UNKNOWN}"):
            decide_or_verify()


def test_an_early_decision_is_bound_to_open_parts(store: Store, make: Make) -> None:
    filler = Filler(store, make)
    snapshot, (example, *_) = freeze_questions(store, "questions", 3)
    filler.experiment("exp-1", snapshot, 3, 1, state="incomplete")
    filler.scores("exp-1", filler.score("exp-1", example, 0, "exact", status="scored", value=0.0))
    decide(store, make)
    assert verify_decision(store, "dec-1").manifest is not None
    (path,) = store.open_parts("judgements", "exp-1")
    row = filler.score("exp-1", example, 0, "exact", status="scored", value=1.0)
    write_file(
        store.layout, store.filesystem, path, schema_of(TABLES["judgements"].record), [to_arrow("judgements", [row])]
    )
    with pytest.raises(StorageError, match=f"{path}: no run wrote these bytes"):
        verify_decision(store, "dec-1")


def test_an_object_store_has_manifests_too(memory_root: str, make: Make) -> None:
    store = Store(memory_root)
    fill(store, make)
    assert damaged(store) == [] and verify_decision(store, "dec-1").n_files == 5
    path = forge(store, "judgements", "exp-1", store.read("judgements", "exp-1")[1:])
    assert damaged(store) == [(path, f"{ALTERED}; the decision dec-1 rests on it")]
    with pytest.raises(StorageError, match=path):
        verify_decision(store, "dec-1")


def test_many_manifests_do_not_slow_the_list_of_an_object_stores_files(memory_root: str, make: Make) -> None:
    store = Store(memory_root)
    fill(store, make)
    before = store.filesystem.states()
    for number in range(2100):
        store.filesystem.pipe_file(f"{memory_root}/{FOLDER}/exp-1.{number:012x}.json", b"{}")
    assert store.filesystem.states() == before
    assert len(store.filesystem.find(memory_root)) > 2100
