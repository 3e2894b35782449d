"""Which snapshot a file's content became, so that an unchanged file is not read and made examples of again.

That is noted in the user's own folder. In the store, whoever can write there could name another snapshot.
"""

import hashlib
from pathlib import Path

from evalflows.specs import attachments, columns, files, values
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.home import keep_note, note
from evalflows.store import conversations, file_formats, records, snapshots
from evalflows.store.snapshots import is_content_known
from evalflows.store.store import Store

FOLDER = "known_files"

READ_BY = (attachments, columns, files, values, conversations, file_formats, snapshots, records)
"""The modules that make examples of a file's rows: other code may make others."""


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
    """Return the snapshot that the file became when this user froze it, if the store has its very examples."""
    identity = note(FOLDER, key)
    return identity if identity and is_content_known(store, identity) else None


def note_snapshot(key: str, identity: str) -> None:
    """Note the snapshot that a file became."""
    keep_note(FOLDER, key, identity)
