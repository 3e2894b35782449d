"""The owners of a table that are still open."""

from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES


def open_owners(store: Store, table: str, prefix: str = "") -> list[str]:
    """Return the owners with open parts whose id begins with a prefix, sorted."""
    column, fs = TABLES[table].owner, store.filesystem
    fs.invalidate_cache()
    paths = fs.glob(f"{store.layout.root}/{table}/open/{column}={prefix}*")
    names = (str(path).rstrip("/").rpartition("=")[2] for path in paths)
    return sorted(name for name in names if name and name != "_")
