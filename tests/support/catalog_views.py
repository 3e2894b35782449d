"""The views of the store, and rows that they give."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from typing import Any

import duckdb

from evalflows.store.sql import select
from evalflows.store.views import view_files

VIEWS = view_files()


def rows(catalog: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    relation = select(catalog, query)
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
