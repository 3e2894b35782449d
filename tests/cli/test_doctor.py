"""evalflows doctor: every kind of damage is named with what to do, and a sound store is said to be sound."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from gated import drawn, gated

import evalflows.store.files
from evalflows.cli.main import cli
from evalflows.store import connect
from evalflows.store.files import FORMAT, write_file
from evalflows.store.records import to_json
from evalflows.store.store import Store

Make = Callable[..., Any]


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


SNAPSHOT = "snap-5892a96e9add15a7ed003e9c"
"""A hash of the two examples."""


@pytest.fixture
def filled(store: Store, make: Make) -> Store:
    """A completed experiment of two runs, and an open one."""
    examples = [make("examples", snapshot_id=SNAPSHOT, example_id=f"q{i}") for i in range(2)]
    store.publish("examples", SNAPSHOT, examples)
    store.publish("snapshots", SNAPSHOT, [make("snapshots", snapshot_id=SNAPSHOT, n_examples=2)])
    planned = {"snapshot_id": SNAPSHOT, "n_examples": 2, "repetitions": 1, "evaluators": to_json([{"name": "exact"}])}
    row = make("experiments", experiment_id="exp-1", state="completed", **planned)
    store.publish("experiments", "exp-1", [row])
    store.publish("outputs", "exp-1", [make("outputs", run_id=f"r{i}", experiment_id="exp-1") for i in range(2)])
    store.publish(
        "judgements", "exp-1", [make("judgements", judgement_id=f"s{i}", experiment_id="exp-1") for i in range(2)]
    )
    store.append("outputs", "exp-2", "p", [make("outputs", run_id="r", experiment_id="exp-2")])
    return store


def findings(code: int) -> list[tuple[str, str, str, str]]:
    done = asked("doctor", "--format", "json")
    assert done.exit_code == code, done.output
    return [tuple(one.values()) for one in json.loads(done.stdout)["findings"]]


def test_a_sound_store(filled: Store) -> None:
    done = asked("doctor")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "read 6 files: sound\n"


def test_a_flipped_bit_is_damage_with_advice(filled: Store) -> None:
    path = Path(filled.layout.sealed("judgements", "exp-1"))
    data = bytearray(path.read_bytes())
    data[50] ^= 4
    path.write_bytes(data)
    done = asked("doctor")
    assert done.exit_code == 4
    assert done.stdout.splitlines() == [
        f"damaged: {path}: its content does not match its checksum; restore rows.parquet from a backup, or delete it "
        "and `evalflows resume exp-1`: calls already paid come from the ledger",
        "read 6 files: 1 damaged",
    ]


@pytest.mark.parametrize("size", [0, 11, 60, -1])
def test_a_truncated_file_is_damage(filled: Store, size: int) -> None:
    (path,) = Path(filled.layout.open_folder("outputs", "exp-2")).glob("*.parquet")
    path.write_bytes(path.read_bytes()[:size])
    ((severity, where, _, advice),) = findings(4)
    assert (severity, where) == ("damaged", str(path))
    assert "resume exp-2" in advice


@pytest.mark.parametrize(
    ("table", "owner", "problem"),
    [
        ("outputs", "exp-1", "exp-1 is completed, but has 0 rows here, wanted 2"),
        ("judgements", "exp-1", "exp-1 is completed, but has 0 rows here, wanted 1"),
        ("examples", SNAPSHOT, "exp-1 is completed, but has 0 rows here, wanted 2"),
    ],
)
def test_a_deleted_file_is_damage(filled: Store, table: str, owner: str, problem: str) -> None:
    path = Path(filled.layout.sealed(table, owner))
    path.unlink()
    ((severity, where, said, _),) = findings(4)
    assert (severity, where, said) == ("damaged", str(path), problem)


def test_a_key_that_repeats_in_a_sealed_file_is_damage(filled: Store, make: Make) -> None:
    row = make("judgements", judgement_id="s0", experiment_id="exp-1")
    filled.publish("judgements", "exp-1", [row, row])
    assert [said for _, _, said, _ in findings(4)] == ["1 rows repeat a key, such as s0"]


def test_a_file_of_another_owner_is_damage(filled: Store) -> None:
    other = Path(filled.layout.sealed("judgements", "exp-9"))
    other.parent.mkdir()
    shutil.copy(filled.layout.sealed("judgements", "exp-1"), other)
    assert [said for _, _, said, _ in findings(4)] == [
        "has rows of experiment_id exp-1, wanted only exp-9",
        "no run wrote this file: no manifest names it",
    ]


def test_another_format_and_other_columns_are_damage(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled.layout.sealed("outputs", "exp-1")
    table = pq.read_table(path).drop_columns(["status"])
    table = table.set_column(table.column_names.index("attempts"), "attempts", pa.array(["1", "1"]))
    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.files, "FORMAT", 4)
        write_file(filled.layout, filled.filesystem, path, table.schema, [table])
    assert [said for _, _, said, _ in findings(4)] == [
        f"got format 4, wanted {FORMAT}",
        "has no column status",
        "column attempts: got string, wanted int64",
        "no run wrote these bytes: the file was altered or replaced",
    ]


def test_missing_empty_files_are_written_again(filled: Store) -> None:
    shutil.rmtree(Path(filled.layout.root) / "ratings")
    repaired = [Path(path).name for severity, path, _, _ in findings(0) if severity == "repaired"]
    assert repaired == ["_.parquet"]
    assert findings(0) == []


def test_foreign_and_left_over_files_are_notes(filled: Store, make: Make) -> None:
    sealed = Path(filled.layout.sealed("outputs", "exp-1"))
    shutil.copy(sealed, sealed.with_name("rows (copy).parquet"))
    sealed.with_name(".rows.parquet.abc.tmp").write_bytes(b"half")
    filled.append("outputs", "exp-1", "p", [make("outputs", run_id="r0", experiment_id="exp-1")])
    assert {(severity, Path(path).name[:6], said) for severity, path, said, _ in findings(0)} == {
        ("note", "rows (", "not a file of the store"),
        ("note", ".rows.", "left by an interrupted write"),
        ("note", next(Path(filled.layout.open_folder("outputs", "exp-1")).iterdir()).name[:6],
         "an open part of a sealed owner, left by an interrupted seal"),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_commands_go_on_beside_a_damaged_experiment_and_the_advice_repairs_it(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    right = drawn(40, 0.8)
    gates = [{"name": "release", "non_inferiority": {"exact_match": 0.4}}]
    spec.write_text(yaml.safe_dump(gated(tmp_path, gates, old=right, new=right)))
    assert asked("gate", str(spec)).exit_code == 0
    with connect() as catalog:
        (new,) = catalog.execute("select experiment_id from experiments where target = 'new'").fetchone() or ("",)
        (old,) = catalog.execute("select experiment_id from experiments where target = 'old'").fetchone() or ("",)
    another = tmp_path / "another.yaml"
    another.write_text(yaml.safe_dump(gated(tmp_path, [], {"name": "another"}, third=right[:5])))
    path = Path(Store().layout.sealed("judgements", new))
    sound = path.read_bytes()
    for damaged in (_flipped(sound), sound[: len(sound) // 2], b""):
        path.unlink()
        path.write_bytes(damaged)
        for command in ("ls", f"show {old}", "sql from\texperiments"):
            done = asked(*(part.replace("\t", " ") for part in command.split(" ")))
            assert done.exit_code == 0, (command, done.output)
        for command in (f"show {new}", f"resume {new}", "explain release --again"):
            done = asked(*command.split())
            assert done.exit_code == 4, (command, done.output)
            assert str(path) in done.stderr.splitlines()[-1]
            assert "evalflows doctor" in done.stderr
        assert asked("run", str(another)).exit_code == 0
        assert asked("doctor").exit_code == 4
    path.unlink()
    assert asked("doctor").exit_code == 4
    assert asked("resume", new).exit_code == 0
    assert path.exists()
    assert asked("doctor").exit_code == 0
    assert asked("explain", "release", "--again").exit_code == 0


def _flipped(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]
