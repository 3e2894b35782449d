"""Where the files lie, and the SQL that reads them."""

import os
from dataclasses import dataclass
from pathlib import Path

from specs.errors import InputError
from store.schemas import TABLES, Table, schema_of

DEFAULT_ROOT = "data/store"


_OWNERS = {table.owner for table in TABLES.values()}


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under one root: a folder, or an fsspec URL such as `s3://bucket/evals`."""

    root: str

    @classmethod
    def at(cls, root: str | os.PathLike[str] | None = None) -> "Layout":
        """The named root, else EVALFLOWS_STORE, else data/store below the current folder."""
        given = os.fspath(root) if root is not None else os.environ.get("EVALFLOWS_STORE") or DEFAULT_ROOT
        text = given.removeprefix("file://")
        if "://" not in text:
            text = str(Path(text).absolute())
        elif not text.endswith("://"):
            text = text.rstrip("/")
        refused = [part for part in text.split("/") if set(part) & set("*?[") or part.partition("=")[0] in _OWNERS]
        if refused:
            raise InputError(f"store {given!r}: got {refused[0]!r} in it, wanted none with * ? [ or an owner's column=")
        return cls(text)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    @property
    def marker(self) -> str:
        """The file that says that a store is here."""
        return f"{self.root}/evalflows.json"

    def sealed(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/sealed/{_table(table).owner}={_safe(owner)}/rows.parquet"

    def open_folder(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/open/{_table(table).owner}={_safe(owner)}"

    def empties(self, table: str) -> tuple[str, str]:
        """Files without rows that bear the schema: a view over no file at all fails in DuckDB."""
        owner = _table(table).owner
        return f"{self.root}/{table}/sealed/{owner}=_/_.parquet", f"{self.root}/{table}/open/{owner}=_/_.parquet"

    def every_row(self, table: str) -> str:
        """SQL for all rows of a table, each key once: sealed files as they are, open ones without their doubles.

        De-duplicating costs ten times a plain read, so only what is open pays for it. The owner is in the folder's
        name, so that a query for one owner opens that one's files only.
        """
        sealed, unsealed = (_quoted(f"{self.root}/{table}/{state}/*/*.parquet") for state in ("sealed", "open"))
        options = "hive_partitioning = true, hive_types_autocast = false"
        columns = ", ".join(schema_of(_table(table).record).names)  # in order: DuckDB puts the owner last
        owners = f"select parse_path(file)[-2] from glob({sealed})"
        every_open = f"select * from read_parquet({unsealed}, {options})"
        still_open = f"({every_open} where parse_path(filename)[-2] not in ({owners}))"
        return f"select {columns} from read_parquet({sealed}, {options}) union all ({newest(table, still_open)})"


def newest(table: str, source: str) -> str:
    """SQL for the rows of a source, each key once: success beats failure, then the later one wins."""
    columns = ", ".join(schema_of(_table(table).record).names)
    statuses = ", ".join(map(_quoted, TABLES[table].settled))
    settled = f"(status in ({statuses})) desc, " if statuses else ""
    # The owner decides nothing here, but a filter on it then passes below the window.
    key = ", ".join(dict.fromkeys((TABLES[table].owner, *TABLES[table].key)))
    return (
        f"select {columns} from {source} "
        f"qualify row_number() over (partition by {key} order by {settled}recorded_at desc) = 1"
    )


def files(urls: list[str]) -> str:
    """SQL for the rows of some Parquet files."""
    return f"read_parquet([{', '.join(map(_quoted, urls))}], hive_partitioning = false)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _table(name: str) -> Table:
    if name not in TABLES:
        raise KeyError(f"table {name!r}: wanted one of {', '.join(TABLES)}")
    return TABLES[name]


def _safe(owner: str) -> str:
    if not owner or owner.startswith(("_", ".")) or any(c in owner for c in "/\\*?[]=%"):
        raise InputError(f"{owner!r}: not an id that a file can be named by")
    return owner
