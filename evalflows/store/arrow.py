"""pyarrow, numpy and DuckDB, which are imported when first used: few commands need all of them, and importing them
takes longer than most queries. Of DuckDB its engine, without its interface for relations, which is most of its import.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:

    class _Late:
        """A module that is imported when one of its names is first used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            if self._name.startswith("pyarrow"):  # mimalloc, its default, holds 20 to 70 MB of a run, in huge pages
                os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # also where Arrow takes no other pool
                arrow = import_module("pyarrow")
                arrow.set_memory_pool(arrow.system_memory_pool())  # if the program has imported it before
            module = import_module(self._name)
            setattr(self, name, value := getattr(module, name))
            return value

    np, pa, pc, pq = map(_Late, ("numpy", "pyarrow", "pyarrow.compute", "pyarrow.parquet"))
    duckdb = _Late("_duckdb" if find_spec("_duckdb") else "duckdb")  # which some versions do not have apart

__all__ = ("duckdb", "np", "pa", "pc", "pq", "with_relations")


def with_relations(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    """Return a connection with `sql` and what else DuckDB's package adds to all connections when it is imported."""
    import_module("duckdb")
    return connection
