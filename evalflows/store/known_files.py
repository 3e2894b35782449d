"""Which snapshot a file's content became, so that an unchanged file is not read and hashed again."""

import hashlib
import re
from contextlib import suppress
from pathlib import Path

from evalflows.specs import columns, files, values
from evalflows.specs.dataset import DatasetSpec
from evalflows.store import conversations, file_formats, records, snapshots
from evalflows.store.layout import KNOWN_FILES as FOLDER
from evalflows.store.store import Store

READ_BY = (columns, files, values, conversations, file_formats, snapshots, records)
"""The modules that make examples of a file's rows: other code may make others."""

_SNAPSHOT = re.compile("snap-[0-9a-f]{24}")


def key_of(spec: DatasetSpec) -> str | None:
    """Return a hash of a dataset file's bytes and of how they are read; None if the file cannot be read."""
    where = files.located(spec.path or "")
    how = spec.model_dump_json(include={"columns", "turns"})
    digest = hashlib.blake2b(f"{where.name} {how}".encode(), digest_size=16)
    try:
        files.check_regular(where)
        for module in READ_BY:
            digest.update(Path(module.__file__ or "").read_bytes())
        with where.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (OSError, ValueError):  # reading it says why
        return None
    return digest.hexdigest()


def known_snapshot(store: Store, key: str) -> str | None:
    """Return the snapshot that the file became when it was frozen; None if it was not, or the snapshot is gone."""
    with suppress(OSError, UnicodeDecodeError):
        text = store.filesystem.cat_file(_path(store, key)).decode()
        if _SNAPSHOT.fullmatch(text) and store.is_sealed("snapshots", text):
            return str(text)
    return None


def note_snapshot(store: Store, key: str, identity: str) -> None:
    """Note the snapshot that a file became. Nothing is lost if that fails: the file is then read again."""
    with suppress(OSError):
        store.filesystem.makedirs(_path(store, "").rstrip("/"), exist_ok=True)
        store.filesystem.pipe_file(_path(store, key), identity.encode())


def _path(store: Store, key: str) -> str:
    return f"{store.layout.root}/{FOLDER}/{key}"
