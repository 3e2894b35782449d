"""Which SQL statements only read, told by DuckDB's own parse tree, since a query may contain statements that write."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from evalflows.specs.errors import InputError

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""The nodes of queries that read. The body of a CTE may also be a COPY, INSERT, UPDATE or DELETE node."""

_TABLE_FUNCTIONS = frozenset(
    {
        *("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"),
        *("histogram", "histogram_values", "summary", "changes_between"),
        *("duckdb_columns", "duckdb_databases", "duckdb_functions", "duckdb_keywords", "duckdb_schemas"),
        *("duckdb_tables", "duckdb_types", "duckdb_views", "pragma_show", "pragma_table_info", "pragma_version"),
    }
)
"""The functions that a query may select from. Others run SQL from a text, change settings, or read other files."""

_EXPLAIN = ("explain", "explain analyze", "explain ( format json )", "explain ( analyze , format json )")


def checked(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return SQL that runs one query, or explains one.

    Raise InputError for more than one statement, for one that may change something, and for SQL that DuckDB rejects.
    """
    kind = _kind(connection, sql)
    if kind == "SELECT":
        _check_query(connection, sql)
        return sql
    if kind == "EXPLAIN":
        explain, query = _explained(connection, sql)
        _check_query(connection, query)
        return f"{explain} {query}"
    raise InputError(f"sql: got {kind}, wanted one query (select, from, with, describe, explain)")


def _kind(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise InputError(f"sql: {' '.join(str(error).split())}") from error
    return ", ".join(kinds) or "nothing"


def _explained(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, str]:
    """Split EXPLAIN with its options from its query, by DuckDB's tokens."""
    raw = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(raw)]
    words: list[str] = []
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind == duckdb.token_type.comment:
            continue
        explain, query = " ".join(words), raw[start:].decode()
        if explain in _EXPLAIN and _is_select(connection, query):
            return explain, query
        words.append(raw[start:end].decode().strip().lower())
    raise InputError(f"sql: got EXPLAIN of something else, wanted a query after {' or '.join(_EXPLAIN)}")


def _is_select(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    try:
        return _kind(connection, sql) == "SELECT"
    except InputError:
        return False


def _check_query(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    ((text,),) = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchall()
    tree = json.loads(text)
    if tree["error"]:
        raise InputError(f"sql: {tree['error_message']}")
    for node in _dicts(tree["statements"]):
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _QUERY_NODES:
            statement = kind.removesuffix("_NODE").removesuffix("_QUERY")
            raise InputError(f"sql: got {statement} within a query, wanted a query that only reads")
        if kind == "TABLE_FUNCTION":
            _check_table_function(node)


def _check_table_function(node: dict[str, Any]) -> None:
    name = str(node["function"]["function_name"]).lower()
    if name not in _TABLE_FUNCTIONS:
        raise InputError(f"sql: got {name}(), wanted a view or a function that reads no file and runs no SQL")


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON tree. Iterative: the nesting of a query is not limited by Python's stack."""
    pending = [tree]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
