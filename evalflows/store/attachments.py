"""The contents of examples, each once in the store: kept until their examples are frozen, read to be sent, and removed
when no example refers to them any more."""

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evalflows.specs.attachments import MAX_BYTES, Attachment, Content, has_reference, opened_text
from evalflows.specs.errors import InputError
from evalflows.specs.permitted import permitted_path
from evalflows.store.file_states import states_of
from evalflows.store.file_systems import storage_errors
from evalflows.store.leases import hold_lease
from evalflows.store.manifests import remove_manifests
from evalflows.store.records import AttachmentRow, ExampleRow
from evalflows.store.spilled import SpilledRows
from evalflows.store.store import Store

LEASE = "attachments"

_WITH_FILES = ("inputs", "reference_outputs", "attachments")
_REFERENCE = re.compile(rb'\\"attachment:[a-z]+/[a-z]+(?:;name=[\w.%~-]+)?;size=[0-9]+;sha256=([0-9a-f]{64})\\"')
"""A reference in a line of an example, whose fields are JSON within JSON."""

_UNUSED = """select attachment_id from source.attachments where attachment_id not in (
    select unnest(regexp_extract_all(concat_ws(' ', inputs, reference_outputs, attachments),
                                     '"attachment:[^"]*;sha256=([0-9a-f]{64})"', 1))
    from source.examples anti join (select unnest($1::varchar[]) as snapshot_id, unnest($2::varchar[]) as example_id)
         using (snapshot_id, example_id))
order by 1"""


class _Held:
    """Contents of examples that are not frozen yet, on disk."""

    def __init__(self) -> None:
        self._rows, self._lock = SpilledRows[str, AttachmentRow](), threading.Lock()

    def keep(self, content: Content) -> None:
        of = content.attachment
        row = AttachmentRow(attachment_id=of.digest, media_type=of.media_type, n_bytes=of.size, content=content.base64)
        with self._lock:
            if of.digest not in self._rows:
                self._rows[of.digest] = row

    def get(self, digest: str) -> AttachmentRow | None:
        with self._lock:
            return self._rows.get(digest)

    @property
    def has_any(self) -> bool:
        return len(self._rows) > 0

    def drop(self, digests: Iterable[str]) -> None:
        with self._lock:
            self._rows.drop(digests)


_held = _Held()
keep = _held.keep
"""Keep a content until an example that refers to it is frozen."""


class FilesBeside:
    """Reads the files beside a dataset: those in its folder, and in folders within. Links there may lead out of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.normpath(folder.absolute()))
        self.were_read = False  # whether the examples depend on more than the file of the dataset

    def __call__(self, name: str) -> bytes:
        from evalflows.specs.files import check_regular  # late: it loads pydantic, which a query does not need

        self.were_read = True
        path = permitted_path(Path(os.path.normpath(self._folder / name)), name)
        if not path.is_relative_to(self._folder):
            raise InputError(f"got a path that leads out of {self._folder}, wanted a file in it")
        try:
            check_regular(path)
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise InputError(f"cannot be read in {self._folder}: {error.strerror or error}") from error


@contextmanager
def storing(store: Store, lines: Iterable[bytes]) -> Iterator[None]:
    """Store the contents that lines of examples refer to, before the block, which stores the examples.

    Raise InputError for a reference to a content that is neither in the store nor was just read.
    """
    digests = {found.decode() for line in lines if b"attachment:" in line for found in _REFERENCE.findall(line)}
    if not digests:
        yield
        return
    with hold_lease(store, LEASE, "storing attachments", wait=True):
        for digest in sorted(digests):
            if not store.is_sealed("attachments", digest):
                if (row := _held.get(digest)) is None:
                    raise InputError(f"attachment {digest[:12]}…: got no content, wanted a path, a data URL or base64")
                store.publish("attachments", digest, [row])
        yield
    _held.drop(digests)


def content_in(store: Store, attachment: Attachment) -> str | None:
    """Return the content of an attachment as base64; None if it is neither in the store nor held for a new example.

    Raise StorageError if its file is damaged.
    """
    if not store.is_sealed("attachments", attachment.digest):
        return None if (held := _held.get(attachment.digest)) is None else held.content
    row: AttachmentRow = store.read("attachments", attachment.digest)[0]
    return row.content


def opened_row(store: Store, row: ExampleRow) -> ExampleRow:
    """Return an example with contents in place of references, as it was given; those that are gone stay references."""
    texts = {name: text for name in _WITH_FILES if (text := getattr(row, name)) and has_reference(text)}
    opened: dict[str, Any] = {name: opened_text(text, partial(content_in, store)) for name, text in texts.items()}
    return replace(row, **opened) if opened else row


def has_any(store: Store) -> bool:
    """Return whether a store has attachments, or gets some with examples that are not frozen yet."""
    return bool(states_of(store.layout, store.filesystem, ("attachments",))) or _held.has_any


def unused(store: Store, without: Sequence[Sequence[str]] = ()) -> list[str]:
    """Return the contents to which no example refers, or none but those `without`: keys of examples.

    None while files are left out as damaged: their examples may refer to any.
    """
    if not has_any(store) or store.left_out():
        return []
    keys = [[key[n] for key in without] for n in (0, 1)]
    return [digest for (digest,) in store.query(_UNUSED, keys)]


def remove_unused(store: Store) -> None:
    """Remove the contents to which no example refers any more. Raise StorageError if that fails."""
    if not has_any(store):
        return
    with hold_lease(store, LEASE, "removing attachments", wait=True):
        removed = unused(store)
        for digest in removed:
            folder = store.layout.sealed("attachments", digest).rpartition("/")[0]
            with storage_errors(folder), suppress(FileNotFoundError):
                store.filesystem.rm(folder, recursive=True)
        if removed:
            remove_manifests(store.layout, store.filesystem, removed)
