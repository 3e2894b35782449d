"""evalflows compact packs small files, and says what it did."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import evalflows.store.packing
from evalflows.cli.main import cli
from evalflows.store.packing import pack_many
from evalflows.store.store import Store

Make = Callable[..., Any]


@pytest.fixture
def filled(store: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three sealed experiments, settled at once."""
    for number in range(3):
        identity = f"exp-{number}"
        store.publish("experiments", identity, [make("experiments", experiment_id=identity)])
        store.publish("outputs", identity, [make("outputs", experiment_id=identity, run_id=f"run-{number}")])
    monkeypatch.setattr(evalflows.store.packing, "SETTLED_S", 0.0)
    return store


def test_what_was_packed_is_said(filled: Store) -> None:
    done = CliRunner().invoke(cli, ["compact"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "packed 6 files into 2\n", "")
    again = CliRunner().invoke(cli, ["compact"])
    assert again.exit_code == 0 and again.stdout.startswith("nothing to do: ")
    assert filled.query("select count(*) from source.outputs") == [(3,)]


def test_a_damaged_packed_file_is_one_line(filled: Store) -> None:
    assert CliRunner().invoke(cli, ["compact"]).exit_code == 0
    filled.publish("outputs", "exp-0", filled.read("outputs", "exp-0"))
    filled.publish("outputs", "exp-1", filled.read("outputs", "exp-1"))
    (path,) = (path for path in Path(filled.layout.packed_folder("outputs")).iterdir() if path.name != "_.parquet")
    path.write_bytes(b"torn")
    done = CliRunner().invoke(cli, ["compact"])
    assert (done.exit_code, done.stderr.count("\n")) == (4, 1) and f"{path}: damaged: " in done.stderr


def test_runs_pack_a_store_of_many_files_only(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_many(filled)
    assert len(list(Path(filled.layout.root).glob("outputs/sealed/*/rows.parquet"))) == 3
    monkeypatch.setattr(evalflows.store.packing, "PACKED_FROM", 3)
    pack_many(filled)
    assert list(Path(filled.layout.root).glob("outputs/sealed/*/rows.parquet")) == []


def test_a_store_that_cannot_be_packed_is_only_noted(
    filled: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evalflows.store.packing, "PACKED_FROM", 3)
    folder = Path(filled.layout.packed_folder("experiments"))
    folder.parent.mkdir()
    folder.write_text("in the way")
    pack_many(filled)
    assert "the store was not packed: " in capsys.readouterr().err
    assert len(list(Path(filled.layout.root).glob("experiments/sealed/*/rows.parquet"))) == 3
