"""Querying the store with SQL: an in-memory DuckDB with a view per question (marts, in the schema `main`, the user's
own among them) and per table (in `staging`, where queries find them by their names)."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from evalflows.specs.errors import InputError
from evalflows.store.arrow import duckdb, pa, with_relations
from evalflows.store.checksums import unreadable_error
from evalflows.store.database import restrict, time_limit
from evalflows.store.layout import quoted
from evalflows.store.leases import held_leases
from evalflows.store.store import Store, duckdb_error, duckdb_errors, texts_in
from evalflows.store.views import grain, own_views, reads_states, tables_of, view_statement, views_of

if TYPE_CHECKING:
    from evalflows.store.read_only_files import ReadOnlyFiles

Record = TypeVar("Record")
Result = TypeVar("Result")

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

_AFTER_COLUMN = (",", "using", "group", "order", "limit", ";")
_NO_VALUE = " in ('') "

_creating = threading.Lock()  # threads share the database, and DuckDB refuses to create a view twice at the same time


def check_query(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return SQL that runs one query, or explains one.

    Raise InputError for more than one statement, for one that may change something, and for SQL that DuckDB rejects.
    """
    kind = _kind(connection, sql)
    if kind == "SELECT":
        _check_query(connection, sql)
        return sql
    if kind == "MULTI":  # PIVOT makes a type of the values that it finds, then selects
        if not _is_select(connection, with_values := _with_values(sql)):
            raise InputError(
                "sql: got a PIVOT that cannot be checked, wanted `pivot VIEW on COLUMN`, or values: `on COLUMN in (…)`"
            )
        _check_query(connection, with_values)
        return sql
    if kind == "EXPLAIN":
        explain, query = _split_explain(connection, sql)
        _check_query(connection, query)
        return f"{explain} {query}"
    raise InputError(f"sql: got {kind}, wanted one query (select, from, with, pivot, describe, explain)")


def _with_values(sql: str) -> str:
    """Return a PIVOT with `in ('')` after each of its columns without values: only so does DuckDB parse it whole."""
    raw, depth = sql.encode(), 0
    element: list[str] | None = None  # the words of the column that the loop is in
    parts: list[str] = []
    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(raw)]
    for (start, kind), end in zip(tokens, ends, strict=True):
        text = raw[start:end].decode()
        word = "" if kind == duckdb.token_type.comment else text.strip().lower()
        if depth == 0 and element is not None and word in _AFTER_COLUMN:
            parts.append("" if "in" in element else _NO_VALUE)
            element = [] if word == "," else None
        elif depth == 0 and word == "on":
            element = []
        elif depth == 0 and element is not None:
            element.append(word)
        if kind == duckdb.token_type.operator:
            depth += word.count("(") - word.count(")")
        parts.append(text)
    return "".join(parts) + (_NO_VALUE if element is not None and "in" not in element else "")


def _kind(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise InputError(f"sql: {' '.join(str(error).split())}") from error
    return ", ".join(kinds) or "nothing"


def _split_explain(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, str]:
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
    raise InputError("sql: got EXPLAIN of something that is not a query, wanted a query (select, from, with) after it")


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
        if kind == "BASE_TABLE" and "://" in str(node.get("table_name")):
            raise InputError("sql: got a file's address, wanted a view")
        name = str(node["function"]["function_name"]).lower() if kind == "TABLE_FUNCTION" else None
        if name is not None and name not in _TABLE_FUNCTIONS:
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


def connect(root: str | os.PathLike[str] | None = None, *, restricted: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB with all views over the store's files, as of each query; which leases are held, as of now.

    Args:
        root: As in `Store`.
        restricted: For queries of others: read nothing but the store, load no extension, use half the memory at most.
            The settings are locked. Frames are found only if they are registered: `connection.register("name", frame)`.

    Raise InputError if the store cannot be created or read, or for a mart of the user's that cannot be created.
    """
    store = Store(root)
    if restricted:
        return with_relations(_restricted(store, store.read_only_files()))
    connection = with_relations(store.connect())
    note_leases(store, connection)
    create_own_marts(connection)
    return connection


def _restricted(
    store: Store,
    files: ReadOnlyFiles,
    memory_bytes: int | None = None,
    own: frozenset[str] | None = None,
    *,
    with_final: bool = True,
) -> duckdb.DuckDBPyConnection:
    """The user's own marts come last: DuckDB opens the files that a new view reads."""
    connection = store.connect(files=files, with_final=with_final, views=own or ())
    note_leases(store, connection)
    restrict(connection, memory_bytes)
    create_own_marts(connection, own)
    return connection


def select_from(
    store: Store,
    query: str,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    *,
    with_final: bool = True,
) -> duckdb.DuckDBPyRelation:
    """Run one read-only query over the views, as `select`, on a connection that is restricted to the store.

    It misses no owner that is sealed meanwhile, and leaves out those of damaged files. Raise StorageError for a file
    that cannot be read, and if files never rest.
    """
    return _answered(
        store, query, memory_bytes, lambda connection: select(connection, query, timeout_s), with_final=with_final
    )


def rows_from(store: Store, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, run as in `select_from`, but planned once, which takes most of the time of many."""

    def rows(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
        return _run(connection, query, None, lambda statement: connection.execute(statement).fetchall())

    return _answered(store, query, None, rows)


def _answered(
    store: Store,
    query: str,
    memory_bytes: int | None,
    run: Callable[[duckdb.DuckDBPyConnection], Result],
    *,
    with_final: bool = True,
) -> Result:
    def answer() -> Result:
        files = store.read_only_files()
        try:
            return run(_restricted(store, files, memory_bytes, views_of(query) or None, with_final=with_final))
        except (InputError, *duckdb_errors()) as error:
            if files.failures and duckdb_error(error):
                raise unreadable_error(files.failures[0]) from error
            raise

    return store.steady(answer, tables_of(query), may_grow=True)


def order_by(sort: str, columns: Mapping[str, str], then: str) -> str:
    """Return the order of a list by one of the named columns, with a minus before it downwards: what lacks it last.

    Raise InputError for another name.
    """
    if (column := columns.get(sort.removeprefix("-"))) is None:
        raise InputError(f"sort: got {sort!r}, wanted one of {', '.join(columns)}, or - before it: downwards")
    return f"order by {column} {'desc' if sort.startswith('-') else 'asc'} nulls last, {then}"


def ask(store: Store, *queries: tuple[str, Sequence[object] | Mapping[str, object]]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query (SQL and its values, of `?` or of `$name`) over the views, from one consistent
    state of the store.

    Unlike a plain connection, this misses no experiment that is sealed meanwhile, and verifies the files of owners
    among the values before. Raise StorageError for a damaged one.
    """

    tables = frozenset().union(*(tables_of(sql) for sql, _ in queries))

    def read() -> list[list[tuple[Any, ...]]]:
        for sql, values in queries:
            store.verify(texts_in(values.values() if isinstance(values, Mapping) else values), tables_of(sql))
        with viewing(store, *(sql for sql, _ in queries)) as catalog:
            return [catalog.execute(sql, values).fetchall() for sql, values in queries]

    return store.answered(queries, read, tables)


def ask_records(store: Store, record: type[Record], query: str, values: Sequence[object] = ()) -> list[Record]:
    """Return the rows of one query as records, as `ask` and `records_of` do."""
    return records_of(record, ask(store, (query, values))[0])


def records_of(record: type[Record], rows: Iterable[Sequence[Any]]) -> list[Record]:
    """Return rows as records of a dataclass with slots, whose fields are the columns in order."""
    return [record_of(record, row) for row in rows]


def record_of(record: type[Record], row: Sequence[Any], **last: Any) -> Record:
    """Return a row as a record, whose `last` fields are no columns."""
    return record(**dict(zip(_names(record), row, strict=not last)), **last)


def fields_of(record: type) -> str:
    """Return the columns that are the fields of a record, in order, for SQL."""
    return ", ".join(_names(record))


def _names(record: type) -> Sequence[str]:
    return [*record.__dataclass_fields__]  # type: ignore[attr-defined]


def ask_arrow(store: Store, sql: str, values: Sequence[object]) -> pa.Table:
    """Return the rows of one query as an Arrow table, from one consistent state of the store, verified as in `ask`."""
    return _ask(
        store, sql, values, lambda catalog: with_relations(catalog).sql(sql, params=list(values)).to_arrow_table()
    )


def ask_columns(store: Store, sql: str, values: Sequence[object]) -> dict[str, Any]:
    """Return the same as numpy arrays by column; a list in one is an array, too."""
    return _ask(store, sql, values, lambda catalog: catalog.execute(sql, values).fetchnumpy())


def _ask(
    store: Store, sql: str, values: Sequence[object], run: Callable[[duckdb.DuckDBPyConnection], Result]
) -> Result:
    def read() -> Result:
        store.verify(texts_in(values), tables_of(sql))
        with viewing(store, sql) as catalog:
            return run(catalog)

    return store.steady(read, tables_of(sql))


@contextmanager
def viewing(store: Store, *queries: str, may_write: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The store's own DuckDB, with those of the user's own marts that the queries read. It may write files elsewhere
    only if that is wanted."""
    tables = frozenset().union(*map(tables_of, queries))
    with store.writing_cursor() if may_write else store.cursor(tables) as catalog:
        wanted = frozenset().union(*map(views_of, queries))
        with _creating:
            create_own_marts(catalog, wanted)
        if any(map(reads_states, queries)):
            note_leases(store, catalog)
        yield catalog


def note_leases(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    """Tell a connection which run groups and comparisons a process works on now."""
    names = ", ".join(map(quoted, held_leases(store)))
    connection.execute(f"set variable held_leases = [{names}]::varchar[]")


def create_own_marts(connection: duckdb.DuckDBPyConnection, names: frozenset[str] | None = None) -> None:
    """Create the user's own marts of these names; all by default. Raise InputError for one that cannot be created."""
    for path in own_views(names):
        try:
            statements = connection.extract_statements(path.read_text(encoding="utf-8"))
            kinds = [statement.type for statement in statements]
            if kinds != [duckdb.StatementType.SELECT]:
                got = ", ".join(kind.name for kind in kinds) or "nothing"
                raise InputError(f"{path}: got {got}, wanted one query (select, from, with)")
            connection.execute(view_statement(path))
            columns = connection.execute(f"from main.{path.stem} limit 0").description or []
        except duckdb.Error as error:
            raise InputError(f"{path}: {_one_line(error)}") from error
        if absent := [key for key in grain(path) if key not in {name for name, *_ in columns}]:
            raise InputError(f"{path}: got 'one row per {absent[0]}', wanted columns that it selects")


def select(
    connection: duckdb.DuckDBPyConnection, query: str, timeout_s: float | None = None
) -> duckdb.DuckDBPyRelation:
    """Run one read-only query, at most for `timeout_s` seconds.

    Raise InputError for any other statement, for SQL that DuckDB rejects, and when the time is over.
    """
    return _run(connection, query, timeout_s, lambda statement: with_relations(connection).sql(statement).materialize())


def _run(
    connection: duckdb.DuckDBPyConnection, query: str, timeout_s: float | None, run: Callable[[str], Result]
) -> Result:
    statement = check_query(connection, query)
    try:
        with time_limit(connection, timeout_s):
            return run(statement)
    except duckdb.OutOfMemoryException as error:
        first, *_ = str(error).splitlines()  # the others advise settings that are locked
        raise InputError(f"sql: {first}, wanted a query that needs less") from error
    except duckdb_errors() as error:
        raise InputError(f"sql: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    text = str(error)
    if type(error) is duckdb.Error:  # raised in Python, by the files of a restricted connection
        text = text.partition("\n\nLINE ")[0].strip().rpartition("\n")[2]
    return " ".join(text.split())
