"""The records and their keeping."""

from store.catalog import connect
from store.parquet import Store

__all__ = ["Store", "connect"]
