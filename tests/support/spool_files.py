"""The files of the spool of one experiment, as a dead process leaves them."""

from pathlib import Path

import pytest

from evalflows.store.parquet import Store
from evalflows.store.spool import Spool, spool_folder

OWNER = "exp-1"


def spooled() -> list[Path]:
    """The files that are there now."""
    return sorted((spool_folder(Store()) / OWNER).glob("*.jsonl"))


def lines() -> int:
    return sum(path.read_bytes().count(b"\n") for path in spooled())


def runs(store: Store) -> list[str]:
    return sorted(row.run_id for row in store.read("outputs", OWNER))


def leave_behind(part: str, content: bytes) -> Path:
    """What a dead process has left."""
    path = spool_folder(Store()) / OWNER / f"{part}.dead.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def content_of(store: Store, *rows: tuple[str, object]) -> bytes:
    """What the spool holds of rows on disk before their block is left. Their part is not written."""
    with pytest.MonkeyPatch.context() as patch, Spool(store, "elsewhere", "p") as spool:
        patch.setattr(Store, "append", lambda *_: None)
        for table, row in rows:
            spool.add(table, row)
        (path,) = (spool_folder(Store()) / "elsewhere").glob("*.jsonl")
        return path.read_bytes()
