"""Where a store's files lie, whatever its root is called."""

import json
from pathlib import Path
from typing import Any

import pytest

import evalflows.store.marker
from evalflows.specs.errors import InputError
from evalflows.store.files import FORMAT, PACKED_FORMAT
from evalflows.store.layout import DEFAULT_ROOT, Layout
from evalflows.store.sql import connect
from evalflows.store.store import Store


def test_a_root_is_the_named_one_the_environments_or_below_the_current_folder(
    store_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Layout.at(tmp_path / "other").root == str(tmp_path / "other")
    assert Layout.at().root == str(store_root)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALFLOWS_STORE", "")
    assert Layout.at().root == str(tmp_path / DEFAULT_ROOT)
    monkeypatch.delenv("EVALFLOWS_STORE")
    assert Layout.at().root == str(tmp_path / DEFAULT_ROOT)
    for root, is_local in (("/data/store", True), ("s3://bucket/evals/", False), ("memory://evals", False)):
        layout = Layout.at(root)
        assert layout.is_local is is_local
        assert layout.sealed("outputs", "exp-1").startswith(f"{root.rstrip('/')}/outputs/sealed/")
        assert layout.open_folder("outputs", "exp-1").startswith(f"{root.rstrip('/')}/outputs/open/")
    for name in ("runs [1]", "a*b", "what?"):
        with pytest.raises(InputError, match=r"wanted a path without \* \? \["):
            Store(tmp_path / name / "store")


def test_a_store_from_before_a_table_was_added_gets_it(any_store: Store) -> None:
    any_store._fs.rm(f"{any_store.layout.root}/labels", recursive=True)
    any_store._fs.pipe_file(any_store.layout.marker, json.dumps({"format": FORMAT}).encode())
    with connect(any_store.layout.root) as catalog:
        assert catalog.execute("select count(*) from labels").fetchall() == [(0,)]


def test_a_store_whose_making_broke_off_is_made_whole(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_root.mkdir()  # where there is a folder, a new store is no copy
    write, written = evalflows.store.marker.write_file, list[str]()

    def break_off(layout: Layout, fs: Any, path: str, *rows: Any) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        write(layout, fs, path, *rows)

    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.marker, "write_file", break_off)
        with pytest.raises(KeyboardInterrupt):
            Store(store_root)
    assert len(written) == 3
    with connect(store_root) as catalog:
        assert catalog.execute("select count(*) from limits").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (f'{{"format": {PACKED_FORMAT + 1}}}', "a newer evalflows wrote it"),
        ('{"format": 1}', f"got format 1, wanted {FORMAT}"),
        ("garbage", "got b'garbage' in evalflows.json"),
        ('{"format": "x"}', "wanted the format of a store"),
    ],
)
def test_a_store_of_another_format_is_refused(store: Store, marker: str, message: str) -> None:
    Path(store.layout.marker).write_text(marker)
    with pytest.raises(InputError, match=message):
        Store()
