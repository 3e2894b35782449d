"""Paths of the store's files, and the SQL that reads them."""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from evalflows.specs.errors import InputError
from evalflows.store.schemas import TABLES, Table, schema_of

DEFAULT_ROOT = "data/store"

SEALED = "rows.parquet"
"""The name of a sealed file."""
_EMPTY = r"_\.parquet"
_PART = re.compile(r"[^.].*\.[0-9a-f]{12}\.parquet")

_OWNERS = {table.owner for table in TABLES.values()}


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under one root: a folder, or an fsspec URL such as `s3://bucket/evals`."""

    root: str

    @classmethod
    def at(cls, root: str | os.PathLike[str] | None = None) -> "Layout":
        """Return the layout of `root`, else of EVALFLOWS_STORE, else of data/store in the current folder."""
        path = os.fspath(root) if root is not None else os.environ.get("EVALFLOWS_STORE") or DEFAULT_ROOT
        text = path.removeprefix("file://")
        if "://" not in text:
            text = str(Path(text).absolute())
        elif not text.endswith("://"):
            text = text.rstrip("/")
        refused = [part for part in text.split("/") if set(part) & set("*?[") or part.partition("=")[0] in _OWNERS]
        if refused:
            raise InputError(
                f"store {path!r}: got {refused[0]!r}, wanted a path without * ? [ and without column= of an owner"
            )
        return cls(text)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    @property
    def marker(self) -> str:
        """The file that marks the root as a store."""
        return f"{self.root}/evalflows.json"

    def sealed(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/sealed/{_table(table).owner}={_safe(owner)}/{SEALED}"

    def open_folder(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/open/{_table(table).owner}={_safe(owner)}"

    def empties(self, table: str) -> tuple[str, str]:
        """Return the paths of empty files with the schema: in DuckDB, a view over no files fails."""
        owner = _table(table).owner
        return f"{self.root}/{table}/sealed/{owner}=_/_.parquet", f"{self.root}/{table}/open/{owner}=_/_.parquet"

    def lease(self, name: str) -> str:
        """Return the path of a lease."""
        folder, ending = self.lease_files
        return f"{folder}/{_safe(name)}{ending}"

    @property
    def lease_files(self) -> tuple[str, str]:
        """The folder of the leases, and how their names end: a lock in a folder, an object in an object store."""
        return f"{self.root}/leases", ".lock" if self.is_local else ".json"

    def every_row(self, table: str, without: Collection[str] = ()) -> str:
        """Return SQL for all rows of a table, each key once: sealed files directly, open files de-duplicated.

        De-duplication costs ten times a plain read, so only open files are de-duplicated. The owner is in the folder's
        name, so a query for one owner opens only its files, and the files of the owners in `without` are never opened.
        """
        owner = _table(table).owner
        sealed, unsealed = (
            # the empty file comes first, since DuckDB takes the columns of the first one
            f"read_parquet([{quoted(empty)}, {quoted(f'{self.root}/{table}/{state}/{owner}=*/*.parquet')}], "
            # DuckDB before 1.3, which reads exported views too, has `filename` only if asked for it
            "hive_partitioning = true, hive_types_autocast = false, filename = true)"
            for state, empty in zip(("sealed", "open"), self.empties(table), strict=True)
        )
        left_out = f" and {owner} not in ({', '.join(map(quoted, sorted(without)))})" if without else ""
        columns = ", ".join(schema_of(_table(table).record).names)  # in order: DuckDB puts the owner last
        owners = f"select parse_path(file)[-2] from glob({quoted(f'{self.root}/{table}/sealed/{owner}=*/{SEALED}')})"
        is_part = f"regexp_full_match(parse_path(filename)[-1], {quoted(f'{_EMPTY}|{_PART.pattern}')})"
        still_open = (
            f"(select * from {unsealed} where parse_path(filename)[-2] not in ({owners}) and {is_part}{left_out})"
        )
        return (
            f"select {columns} from {sealed} where parse_path(filename)[-1] in ('{SEALED}', '_.parquet'){left_out} "
            f"union all ({newest(table, still_open)})"
        )


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file with rows, by its path. Only files of exactly these names are read: copies and others are ignored."""

    path: str
    table: str
    is_sealed: bool
    owner: str

    @classmethod
    def at(cls, path: str) -> "StoredFile | None":
        """Return the file at a path; None for a copy, a temporary, empty or foreign file."""
        *_, table, state, folder, name = ("", "", "", *path.split("/"))
        column, _, owner = folder.partition("=")
        if table not in TABLES or column != TABLES[table].owner or not owner or owner == "_":
            return None
        if name == SEALED if state == "sealed" else state == "open" and _PART.fullmatch(name):
            return cls(path, table, state == "sealed", owner)
        return None


def newest(table: str, source: str) -> str:
    """Return SQL for the rows of a source, each key once: success beats failure, then the latest row wins."""
    columns = ", ".join(schema_of(_table(table).record).names)
    return f"select {columns} from {source} qualify row_number() over ({latest_first(table)}) = 1"


def latest_first(table: str) -> str:
    """Return the SQL of a window over the rows of one key, the row that wins first."""
    statuses = ", ".join(map(quoted, TABLES[table].settled))
    settled = f"(status in ({statuses})) desc, " if statuses else ""
    # The owner does not change the result, but lets DuckDB push a filter on the owner below the window.
    key = ", ".join(dict.fromkeys((TABLES[table].owner, *TABLES[table].key)))
    return f"partition by {key} order by {settled}recorded_at desc"


def files(urls: list[str]) -> str:
    """Return SQL for the rows of Parquet files."""
    return f"read_parquet([{', '.join(map(quoted, urls))}], hive_partitioning = false)"


def quoted(text: str) -> str:
    """Return a SQL literal of a text."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a SQL name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def _table(name: str) -> Table:
    if name not in TABLES:
        raise KeyError(f"table {name!r}: wanted one of {', '.join(TABLES)}")
    return TABLES[name]


def _safe(owner: str) -> str:
    if not owner or owner.startswith(("_", ".")) or any(c in owner for c in "/\\*?[]=%"):
        raise InputError(f"got {owner!r}, wanted an id that is valid in a file name")
    return owner
