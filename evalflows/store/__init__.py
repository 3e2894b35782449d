"""The store: records, Parquet files, and SQL views."""

from typing import TYPE_CHECKING

from evalflows.specs.lazy_names import lazy_names

if TYPE_CHECKING:
    from evalflows.store.catalog import connect, select
    from evalflows.store.parquet import Store

__all__ = ["Store", "connect", "select"]

__getattr__, __dir__ = lazy_names(__name__, {"catalog": ("connect", "select"), "parquet": ("Store",)})
