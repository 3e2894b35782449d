"""A DuckDB over the store's files: the schema `source` has a view for every table, as they are when a query runs."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Iterable
from typing import Any

import duckdb

from store.layout import Layout
from store.schemas import TABLES


def open_duckdb(layout: Layout, filesystem: Any) -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that can read the store's files; `filesystem` is the fsspec one of an object store."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    if not layout.is_local:
        connection.register_filesystem(filesystem)
    return connection


def connect_source(layout: Layout, filesystem: Any, tables: Iterable[str] = TABLES) -> duckdb.DuckDBPyConnection:
    """The same with the schema `source`; with fewer `tables` it is made quicker."""
    connection = open_duckdb(layout, filesystem)
    connection.execute("create schema source")
    for table in tables:
        connection.execute(f"create view source.{table} as {layout.every_row(table)}")
    return connection
