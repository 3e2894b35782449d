"""The catalog's views, created once per worker, then copied: DuckDB takes half a second to bind all, 10 ms to copy."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb

Names = frozenset[str] | None
Views = frozenset[tuple[str, str]]
"""The schema and the name of each."""

_VIEWS = """select schema_name, view_name from duckdb_views()
            where not internal and schema_name in ('main', 'staging') and database_name = current_database()"""
_MACROS = """select if(function_type = 'macro', 'macro', 'macro table'), schema_name, function_name
             from duckdb_functions() where not internal and database_name = current_database()"""


class ViewCopies:
    """Creates views as `create` does. Views of the same names, beside the same others, are copied from then on."""

    def __init__(self, folder: Path, create: Callable[[duckdb.DuckDBPyConnection, Names], None]) -> None:
        self._folder, self._create = folder, create
        self._templates: dict[tuple[Names, Views], Path] = {}
        self._lock = threading.Lock()

    def create(self, connection: duckdb.DuckDBPyConnection, names: Names) -> None:
        before: Views = frozenset(connection.execute(_VIEWS).fetchall())
        key = names and frozenset(names), before
        if template := self._templates.get(key):
            _copy(connection, template)
            return
        macros = connection.execute(_MACROS).fetchall()
        self._create(connection, names)
        if names is not None or not before:  # otherwise some were replaced
            with self._lock:
                if key not in self._templates:
                    template = self._folder / f"{len(self._templates)}.duckdb"
                    _keep(connection, [*(("view", *view) for view in before), *macros], template)
                    self._templates[key] = template


def _copy(connection: duckdb.DuckDBPyConnection, template: Path) -> None:
    connection.execute(f"attach '{template}' as template (read_only)")
    connection.execute(f"copy from database template to {_database(connection)}")
    connection.execute("detach template")


def _keep(connection: duckdb.DuckDBPyConnection, before: Iterable[tuple[str, ...]], template: Path) -> None:
    """Write all but what was there `before` (the kind, the schema and the name of each) to a file."""
    connection.execute(f"attach '{template}' as template")
    connection.execute(f"copy from database {_database(connection)} to template")
    connection.execute("drop schema template.source cascade")
    for kind, schema, name in before:
        connection.execute(f'drop {kind} template.{schema}."{name}"')
    connection.execute("detach template")


def _database(connection: duckdb.DuckDBPyConnection) -> str:
    ((name,),) = connection.execute("select current_database()").fetchall()
    return str(name)
