"""A file that was frozen before is not read again, and one that changed is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import StorageError
from evalflows.specs.home import home_root
from evalflows.store import ingest
from evalflows.store.doctor import examine
from evalflows.store.erasing import Selection
from evalflows.store.evidence import evidence_on
from evalflows.store.ingest import load_dataset
from evalflows.store.known_files import FOLDER, key_of, known_snapshot
from evalflows.store.retention import erase
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
    for damaged in (b"\xff", b"snap-" + b"0" * 24, b"../experiments"):
        (home_root() / FOLDER / key).write_bytes(damaged)
        assert known_snapshot(store, key) is None
        assert keep(store, file) == first == known_snapshot(store, key)


def test_the_file_is_read_again_where_the_store_has_other_rows_under_its_name(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to the store replaces the examples, with their checksum and manifest."""
    first = keep(store, file)
    examples = store.read("examples", first)
    assert not [path for path in Path(store.layout.root).rglob("*") if "known" in path.name], "no note is in the store"
    others = [replace(one, inputs='{"q":"easy"}') for one in examples]
    store.publish("examples", first, others)
    read = read_again(monkeypatch)
    forged = load_dataset(store, DatasetSpec(path=str(file)))
    assert read == ["q.jsonl"] and [one.inputs for one in forged.examples] == [one.inputs for one in examples]
    refused = f"{store.layout.sealed('examples', first)}: the hash of its examples is not {first}"
    with pytest.raises(StorageError, match=refused):
        forged.keep(store)
    with pytest.raises(StorageError, match=refused):
        evidence_on(store, [first])
    assert f"the hash of its examples is not {first}" in {one.problem for one in examine(store).findings}
    store.publish("examples", first, examples)
    assert evidence_on(store, [first]).owners == [first] and forged.keep(store) == first
    erase(store, Selection(examples=[examples[0].example_id]), None)  # then the id tells nothing, but the file does
    assert evidence_on(store, [first]).owners == [first] and forged.keep(store) == first
    store.publish("examples", first, [store.read("examples", first)[0], others[1]])
    with pytest.raises(StorageError, match=refused):
        load_dataset(store, DatasetSpec(path=str(file))).keep(store)
