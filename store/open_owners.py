"""The owners of a table, by the names of their folders."""

from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES


def open_owners(store: Store, table: str, prefix: str = "") -> list[str]:
    """Return the owners with open parts whose id begins with a prefix, sorted."""
    return _owners(store, table, "open", prefix)


def last_owner(store: Store, table: str) -> str | None:
    """Return the last owner of a table in the order of their ids, such as the last day; None if it has none."""
    return max((one for state in ("open", "sealed") for one in _owners(store, table, state)), default=None)


def _owners(store: Store, table: str, state: str, prefix: str = "") -> list[str]:
    column, fs = TABLES[table].owner, store.filesystem
    paths = fs.glob(f"{store.layout.root}/{table}/{state}/{column}={prefix}*")
    names = (str(path).rstrip("/").rpartition("=")[2] for path in paths)
    return sorted(name for name in names if name and name != "_")
