"""A store of an older format is rewritten whole, and a migration that was interrupted can be continued."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from evalflows.cli.main import cli
from evalflows.specs.errors import InputError, StorageError
from evalflows.store import migration, parquet_files
from evalflows.store.migration import migrate
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import FORMAT, FORMAT_KEY, PACKED_FORMAT
from evalflows.store.records import BaselineRow

OLDER = FORMAT - 2  # the one between is that of packed stores


def renamed(rows: pa.Table) -> pa.Table:
    return rows.rename_columns({"label": "name"})


@pytest.fixture
def older(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with two baselines, in a format in which `name` was called `label` and there was no `reason`."""
    store = Store()
    for number in range(2):
        row = BaselineRow(baseline_id=f"base-{number}", name=f"b{number}", experiment_id="exp-1", reason="good")
        store.publish("baselines", row.baseline_id, [row])
    for path in store_root.glob("baselines/*/*/*.parquet"):
        rows = pq.read_table(path).rename_columns({"name": "label"}).drop_columns(["reason"])
        pq.write_table(rows.replace_schema_metadata({FORMAT_KEY: str(OLDER).encode()}), path)
    marker = store_root / "evalflows.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": OLDER}))
    monkeypatch.setattr(parquet_files, "OLDEST", OLDER)
    monkeypatch.setitem(migration.STEPS, OLDER, {"baselines": renamed})
    return store_root


def names() -> list[tuple[str, str | None]]:
    return sorted((row.name, row.reason) for number in range(2) for row in Store().read("baselines", f"base-{number}"))


def test_an_older_store_is_refused_with_the_command_that_helps(older: Path) -> None:
    with pytest.raises(InputError, match=f"got format {OLDER}, wanted {FORMAT}: `evalflows migrate`"):
        Store()


def test_columns_are_renamed_and_new_ones_are_null(older: Path) -> None:
    written, files = migrate()
    assert (written, files) == (OLDER, 4)
    assert names() == [("b0", None), ("b1", None)]
    assert migrate() == (FORMAT, 0)


def test_an_interrupted_migration_is_continued(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = migration.write_file, list[str]()

    def broken(layout: object, fs: object, path: str, *content: object, **options: object) -> None:
        if len(written) == 2:
            raise OSError("No space left on device")
        written.append(path)
        write(layout, fs, path, *content, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(migration, "write_file", broken)
        with pytest.raises(StorageError, match="No space left"):
            migrate()
    assert migrate() == (OLDER, 2)
    assert names() == [("b0", None), ("b1", None)]


def test_what_an_interrupted_run_left_must_be_resumed_first(older: Path) -> None:
    left = older / "spool" / "exp-1" / "part.0.jsonl"
    left.parent.mkdir(parents=True)
    left.touch()
    with pytest.raises(InputError, match="got rows of exp-1 in its spool"):
        migrate()


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (
            f'{{"format": {PACKED_FORMAT + 1}}}',
            f"got format {PACKED_FORMAT + 1}, wanted {FORMAT}: a newer evalflows wrote it",
        ),
        ('{"format": 1}', f"got format 1, wanted {FORMAT}: too old, `evalflows migrate` starts at"),
        ("", "got b'' in evalflows.json, wanted the format of a store"),
        ("garbage", "got b'garbage' in evalflows.json"),
        ("[]", r"got b'\[\]' in evalflows.json"),
        ('{"format": "x"}', "wanted the format of a store"),
    ],
)
def test_a_store_that_cannot_be_migrated_is_refused(store_root: Path, marker: str, message: str) -> None:
    Store()
    (store_root / "evalflows.json").write_text(marker)
    for use in (Store, migrate):
        with pytest.raises(InputError, match=message):
            use()


def test_the_command(older: Path) -> None:
    done = CliRunner().invoke(cli, ["migrate"])
    assert (done.exit_code, done.output) == (0, f"rewrote 4 files from format {OLDER} to format {FORMAT}\n")
    again = CliRunner().invoke(cli, ["migrate"])
    assert again.output == f"nothing to do: the store has format {FORMAT}\n"


def test_there_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store at "):
        migrate(tmp_path / "nothing")
