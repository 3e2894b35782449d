"""The plan of an erasure, on disk before the first row changes, so that an interrupted one can be finished.

The rows that named what to erase may be the first to lose their texts, so the plan has the keys of all rows.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import file_mode, storage_errors
from evalflows.store.records import new_id, now

FOLDER = "erasing"

Keys = Mapping[str, Sequence[Sequence[str]]]
"""Keys of rows, by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which rows an erasure changes, and what is recorded of it. Neither has texts or names."""

    erasure_id: str
    at: str
    secret: str
    kind: str  # of the selection
    selector_hash: str
    erased_by: str | None
    kept: Sequence[str] = ()
    keys: Keys = field(default_factory=dict)  # of rows about what is erased
    written: Keys = field(default_factory=dict)  # of rows that an erased person wrote
    owners: Sequence[str] = ()  # the experiments, comparisons and trace evaluations that they belong to
    leases: Mapping[str, str] = field(default_factory=dict)  # of those owners
    snapshots: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def day(self) -> str:
        return self.at[:10]

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)

    @property
    def recorded_at(self) -> datetime:
        return datetime.fromisoformat(self.at)


def new_plan(kind: str, selector_hash: str, erased_by: str | None, **fields: Any) -> Plan:
    """Return a plan with a new id and key."""
    at = now()
    return Plan(
        erasure_id=new_id("erasure", at),
        at=at.astimezone(UTC).isoformat(),
        secret=secrets.token_hex(32),
        kind=kind,
        selector_hash=selector_hash,
        erased_by=erased_by,
        **fields,
    )


def keep_plan(store: Store, plan: Plan) -> None:
    """Write a plan; in a folder, it is on disk when this returns. Raise StorageError if that fails."""
    path, content = _path(store.layout, plan.erasure_id), json.dumps(asdict(plan)).encode()
    with storage_errors(path):
        if store.layout.is_local:
            _write(Path(path), content, file_mode(Path(store.layout.root)))
        else:
            store.filesystem.pipe_file(path, content)


def remove_plan(store: Store, plan: Plan) -> None:
    """Remove a plan, and with it the key of its markers."""
    path = _path(store.layout, plan.erasure_id)
    with storage_errors(path):
        store.filesystem.rm_file(path)


def plans(store: Store) -> list[Plan]:
    """Return the plans of erasures that have not ended, the oldest first. Raise StorageError for a damaged one."""
    fs = store.filesystem
    fs.invalidate_cache()
    found = []
    for path in sorted(fs.glob(f"{store.layout.root}/{FOLDER}/*.json")):
        try:
            found.append(Plan(**json.loads(fs.cat_file(path))))
        except FileNotFoundError:  # the erasure has just ended
            continue
        except (ValueError, TypeError) as error:
            raise StorageError(f"{path}: cannot be read; delete it and erase again") from error
    return found


def _path(layout: Layout, identity: str) -> str:
    return f"{layout.root}/{FOLDER}/{identity}.json"


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
