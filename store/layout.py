"""Where the files lie, and the SQL that reads them."""

import os
from dataclasses import dataclass
from pathlib import Path

from specs.errors import InputError
from store.schemas import TABLES

DEFAULT_ROOT = "data/store"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under one root: a folder, or an fsspec URL such as `s3://bucket/evals`."""

    root: str

    @classmethod
    def at(cls, root: str | os.PathLike[str] | None = None) -> "Layout":
        """The named root, else EVALFLOWS_STORE, else data/store below the current folder."""
        text = os.fspath(root) if root is not None else os.environ.get("EVALFLOWS_STORE") or DEFAULT_ROOT
        return cls(text.rstrip("/") if "://" in text else str(Path(text).absolute()))

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    @property
    def protocol(self) -> str | None:
        """The fsspec protocol of an object store, None for a folder."""
        return None if self.is_local else self.root.partition("://")[0]

    def sealed(self, table: str, owner: str) -> str:
        return f"{self.root}/{_known(table)}/sealed/{_safe(owner)}.parquet"

    def open_folder(self, table: str, owner: str) -> str:
        return f"{self.root}/{_known(table)}/open/{_safe(owner)}"

    def empties(self, table: str) -> tuple[str, str]:
        """Files without rows that bear the schema: a view over no file at all fails in DuckDB."""
        return f"{self.root}/{table}/sealed/_.parquet", f"{self.root}/{table}/open/_/_.parquet"

    def every_row(self, table: str) -> str:
        """SQL for all rows of a table, each key once: sealed files as they are, open ones without their doubles.

        De-duplicating costs ten times a plain read, so only what is open pays for it.
        """
        sealed = _quoted(f"{self.root}/{table}/sealed/*.parquet")
        unsealed = (
            f"(select * from read_parquet({_quoted(f'{self.root}/{table}/open/*/*.parquet')}) "
            f"where parse_path(filename)[-2] not in (select parse_filename(file, true) from glob({sealed})))"
        )
        return f"select * from read_parquet({sealed}) union all ({newest(table, unsealed)})"


def newest(table: str, source: str) -> str:
    """SQL for the rows of a source, each key once: success beats failure, then the later one wins."""
    statuses = ", ".join(map(_quoted, TABLES[table].settled))
    settled = f"(status in ({statuses})) desc, " if statuses else ""
    key = ", ".join(TABLES[table].key)
    return (
        f"select * from {source} qualify row_number() over (partition by {key} order by {settled}recorded_at desc) = 1"
    )


def files(urls: list[str]) -> str:
    """SQL for the rows of some Parquet files."""
    return f"read_parquet([{', '.join(map(_quoted, urls))}])"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _known(table: str) -> str:
    if table not in TABLES:
        raise KeyError(f"table {table!r}: wanted one of {', '.join(TABLES)}")
    return table


def _safe(owner: str) -> str:
    if not owner or owner.startswith(("_", ".")) or any(c in owner for c in "/\\*?[]"):
        raise InputError(f"{owner!r}: not an id that a file can be named by")
    return owner
