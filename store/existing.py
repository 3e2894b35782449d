"""Stores that exist: what only reads creates none."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from evalflows.specs.errors import InputError
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.roots import files_at
from evalflows.store.schemas import TABLES


def is_store(layout: Layout) -> bool:
    """Whether there is a store, even if it has lost its marker. Raise InputError if its root cannot be read."""
    try:
        fs = files_at(layout)
        return bool(fs.exists(layout.marker)) or any(fs.exists(f"{layout.root}/{table}") for table in TABLES)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"store {layout.root!r}: {error}") from error


def existing_store(root: str | os.PathLike[str] | None = None) -> Store:
    """Return a store, as `Store`. Raise InputError if there is none."""
    layout = Layout.at(root)
    if not is_store(layout):
        raise InputError(no_store(layout))
    return Store(layout.root)


@contextmanager
def store_or_empty() -> Iterator[Store]:
    """Yield the store, or an empty temporary one if there is none."""
    layout = Layout.at()
    if is_store(layout):
        yield Store(layout.root)
        return
    with TemporaryDirectory(prefix="evalflows-") as folder:
        yield Store(folder)


def no_store(layout: Layout) -> str:
    """Say that there is no store, and how to begin or name another."""
    return f"no store at {layout.root}: `evalflows run SPEC` creates one, and EVALFLOWS_STORE names another"


def no_experiments(layout: Layout) -> str:
    return f"no experiments in the store {layout.root}: `evalflows run SPEC` creates one"
