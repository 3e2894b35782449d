"""The store: records, Parquet files, and SQL views."""

from typing import TYPE_CHECKING

from evalflows.specs.late_names import lazy_names

if TYPE_CHECKING:
    from evalflows.store.sql import connect, select
    from evalflows.store.store import Store

__all__ = ["Store", "connect", "select"]


__getattr__, __dir__ = lazy_names(__name__, {"sql": ("connect", "select"), "store": ("Store",)})
