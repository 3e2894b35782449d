"""Paths of the store's files, and the SQL that reads them."""

import os
from dataclasses import dataclass
from pathlib import Path

from evalflows.specs.errors import InputError
from evalflows.store.schemas import TABLES, Table, schema_of

DEFAULT_ROOT = "data/store"

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
        return f"{self.root}/{table}/sealed/{_table(table).owner}={_safe(owner)}/rows.parquet"

    def open_folder(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/open/{_table(table).owner}={_safe(owner)}"

    def empties(self, table: str) -> tuple[str, str]:
        """Return the paths of empty files with the schema: in DuckDB, a view over no files fails."""
        owner = _table(table).owner
        return f"{self.root}/{table}/sealed/{owner}=_/_.parquet", f"{self.root}/{table}/open/{owner}=_/_.parquet"

    def lease(self, name: str) -> str:
        """Return the path of a lease, without its suffix."""
        return f"{self.root}/leases/{_safe(name)}"

    def every_row(self, table: str) -> str:
        """Return SQL for all rows of a table, each key once: sealed files directly, open files de-duplicated.

        De-duplication costs ten times a plain read, so only open files are de-duplicated. The owner is in the folder's
        name, so a query for one owner opens only its files.
        """
        sealed, unsealed = (quoted(f"{self.root}/{table}/{state}/*/*.parquet") for state in ("sealed", "open"))
        options = "hive_partitioning = true, hive_types_autocast = false"
        columns = ", ".join(schema_of(_table(table).record).names)  # in order: DuckDB puts the owner last
        owners = f"select parse_path(file)[-2] from glob({sealed})"
        every_open = f"select * from read_parquet({unsealed}, {options})"
        still_open = f"({every_open} where parse_path(filename)[-2] not in ({owners}))"
        return f"select {columns} from read_parquet({sealed}, {options}) union all ({newest(table, still_open)})"


def newest(table: str, source: str) -> str:
    """Return SQL for the rows of a source, each key once: success beats failure, then the latest row wins."""
    columns = ", ".join(schema_of(_table(table).record).names)
    statuses = ", ".join(map(quoted, TABLES[table].settled))
    settled = f"(status in ({statuses})) desc, " if statuses else ""
    # The owner does not change the result, but lets DuckDB push a filter on the owner below the window.
    key = ", ".join(dict.fromkeys((TABLES[table].owner, *TABLES[table].key)))
    return (
        f"select {columns} from {source} "
        f"qualify row_number() over (partition by {key} order by {settled}recorded_at desc) = 1"
    )


def files(urls: list[str]) -> str:
    """Return SQL for the rows of Parquet files."""
    return f"read_parquet([{', '.join(map(quoted, urls))}], hive_partitioning = false)"


def quoted(text: str) -> str:
    """Return a SQL literal of a text."""
    return "'" + text.replace("'", "''") + "'"


def _table(name: str) -> Table:
    if name not in TABLES:
        raise KeyError(f"table {name!r}: wanted one of {', '.join(TABLES)}")
    return TABLES[name]


def _safe(owner: str) -> str:
    if not owner or owner.startswith(("_", ".")) or any(c in owner for c in "/\\*?[]=%"):
        raise InputError(f"got {owner!r}, wanted an id that is valid in a file name")
    return owner
