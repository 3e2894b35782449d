"""The store: records, Parquet files, and SQL views."""

from evalflows.store.catalog import connect
from evalflows.store.parquet import Store

__all__ = ["Store", "connect"]
