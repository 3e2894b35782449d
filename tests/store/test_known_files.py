"""A file that was frozen before is not read again, and one that changed is."""

import json
from pathlib import Path

import pytest

from evalflows.specs.dataset import DatasetSpec
from evalflows.store import ingest, known_files
from evalflows.store.ingest import load_dataset
from evalflows.store.known_files import key_of, known_snapshot
from evalflows.store.snapshots import current_snapshot
from evalflows.store.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "q.jsonl", "one", "two")


def write(path: Path, *questions: str) -> Path:
    path.write_text("".join(json.dumps({"inputs": {"q": text}}) + "\n" for text in questions))
    return path


def keep(store: Store, path: Path, **fields: object) -> str:
    return load_dataset(store, DatasetSpec.model_validate({"path": str(path), **fields})).keep(store)


def read_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of files that are read from now on."""
    read, original = list[str](), ingest.read_rows
    monkeypatch.setattr(ingest, "read_rows", lambda path: read.append(Path(path).name) or original(path))
    return read


def test_an_unchanged_file_is_read_once_and_another_content_or_way_to_read_it_anew(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_again(monkeypatch)
    first = keep(store, file)
    again = load_dataset(store, DatasetSpec(path=str(file)))
    assert (again.keep(store), read) == (first, ["q.jsonl"])
    assert [example.inputs for example in again.examples] == ['{"q":"one"}', '{"q":"two"}']
    sample = load_dataset(store, DatasetSpec(path=str(file), sample=1)).keep(store)
    assert sample != first and read == ["q.jsonl"]
    mapped = keep(store, file, columns={"inputs": {"question": "inputs"}})
    changed = keep(store, write(file, "one", "2"))
    assert len({first, mapped, changed}) == 3 and len(read) == 3
    assert current_snapshot(store, "q") == changed
    assert keep(store, write(file, "one", "two")) == current_snapshot(store, "q") == first, "going back"


def test_a_note_that_is_damaged_or_names_no_snapshot_does_not_count(store: Store, file: Path) -> None:
    first = keep(store, file)
    key = key_of(DatasetSpec(path=str(file))) or ""
    for note in (b"\xff", b"snap-" + b"0" * 24):
        Path(known_files._path(store, key)).write_bytes(note)
        assert known_snapshot(store, key) is None
        assert keep(store, file) == first == known_snapshot(store, key)
