"""Migrating stores of older formats to the current one: `evalflows migrate`.

Each Parquet file records its format in its metadata, so an interrupted migration resumes with the remaining files. The
store's marker is written last.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from evalflows.specs.errors import InputError
from evalflows.store.erasing.files import ERASED_KEY
from evalflows.store.existing import no_store
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import name_file
from evalflows.store.marker import note_packed
from evalflows.store.packs import OWNERS_KEY
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import FORMAT, FORMAT_KEY, format_of, storage_errors, write_file
from evalflows.store.roots import files_at
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.verification import read_verified

Step = Mapping[str, Callable[[pa.Table], pa.Table]]

STEPS: dict[int, Step] = {}
"""For each older format, the functions that convert tables to the next one: {format: {table: change}}.

A change converts all rows of a file to the next format. A new nullable column needs no change: it is null in older
rows.
"""


def migrate(root: str | os.PathLike[str] | None = None) -> tuple[int, int]:
    """Rewrite a store in the current format. Return its old format, and the number of rewritten files.

    Nothing else may use the store meanwhile. Raise InputError if there is no store, if it is too old or newer than this
    version, or if rows of an interrupted run are still in its spool.
    """
    layout = Layout.at(root)
    fs = files_at(layout)
    if not fs.exists(layout.marker):
        raise InputError(no_store(layout))
    try:
        written = format_of(fs.cat_file(layout.marker))
    except ValueError as error:
        raise InputError(f"store {layout.root!r}: {error}") from error
    if written == FORMAT:
        return written, 0
    _check_spool(layout, fs)
    rewritten = sum(
        _migrate_file(layout, fs, path, written) for path in sorted(fs.glob(f"{layout.root}/*/*/*/*.parquet"))
    )
    fs.rm(layout.marker)
    Store(layout.root)  # writes the empty files, and the marker last
    if fs.glob(f"{layout.root}/*/packed/all/[0-9a-f]*.parquet"):
        note_packed(layout, fs)
    return written, rewritten


def _check_spool(layout: Layout, fs: Any) -> None:
    spooled = fs.glob(f"{layout.root}/spool/*/*.jsonl")
    if spooled:
        owner = spooled[0].split("/")[-2]
        raise InputError(
            f"store {layout.root!r}: got rows of {owner} in its spool, wanted the run resumed first,"
            " by the version of evalflows that started it"
        )


def _migrate_file(layout: Layout, fs: Any, path: str, written: int) -> bool:
    """Rewrite one file; copies and foreign files stay as they are. Return whether it was necessary.

    Raise StorageError for a damaged file.
    """
    name = path.removeprefix(fs._strip_protocol(layout.root)).lstrip("/").partition("/")[0]
    if name not in TABLES or not (StoredFile.at(path) or path.endswith("=_/_.parquet")):
        return False
    rows = read_verified(fs, path)
    since = int((rows.schema.metadata or {}).get(FORMAT_KEY, written))
    if since == FORMAT:
        return False
    stays = {key: value for key, value in (rows.schema.metadata or {}).items() if key in (OWNERS_KEY, ERASED_KEY)}
    for number in range(since, FORMAT):
        rows = STEPS.get(number, {}).get(name, _unchanged)(rows)
    with storage_errors(path):
        write_file(
            layout,
            fs,
            path,
            schema_of(TABLES[name].record),
            [_conformed(name, rows)],
            stays,
            replaces=True,
            before=partial(name_file, layout, fs),
        )
    return True


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows


def _conformed(table: str, rows: pa.Table) -> pa.Table:
    """Return the columns of the current schema; missing ones are null."""
    schema = schema_of(TABLES[table].record)
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)
