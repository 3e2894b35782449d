"""The store: records, Parquet files, and SQL views."""

from evalflows.store.catalog import connect, select
from evalflows.store.parquet import Store

__all__ = ["Store", "connect", "select"]
