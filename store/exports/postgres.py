"""Exports to PostgreSQL: a table per view in one schema, in one transaction."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

from evalflows.specs.errors import InputError
from evalflows.store.exports.postgres_tables import Schema, Shape
from evalflows.store.exports.postgres_types import converter_of, expression_of, type_of
from evalflows.store.exports.relations import Exported, Relation, relations, stage
from evalflows.store.exports.staged import staged_rows
from evalflows.store.parquet import Store

DEFAULT_SCHEMA = "evalflows"


def export_postgres(store: Store, url: str, schema: str = DEFAULT_SCHEMA, only: Sequence[str] = ()) -> list[Exported]:
    """Write every view of the store, or those of these names, to tables of a schema, which is created if needed.

    All in one transaction: readers see the former rows until it ends. A table whose view is unchanged is left alone; of
    the others, only rows that differ are written. What the URL leaves out is taken from libpq's environment variables.

    Raise InputError, without the URL's password, if the database cannot be used, for an unknown name, and if the schema
    has tables of something else.
    """
    wanted = relations(store, only)
    if not url.startswith(("postgresql://", "postgres://")):
        raise InputError("export postgres: got another URL, wanted postgresql://user@host:port/database")
    try:
        return asyncio.run(_export(store, url, schema, wanted, is_whole=not only))
    except asyncpg.PostgresError as error:
        raise InputError(f"postgres: {error}") from error
    except (asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise InputError(
            f"postgres: cannot connect: {getattr(error, 'strerror', None) or error or 'timeout'}"
        ) from error


async def _export(store: Store, url: str, schema: str, wanted: Sequence[Relation], *, is_whole: bool) -> list[Exported]:
    connection = await _connect(url)
    try:
        async with connection.transaction():
            tables = await Schema.opened(connection, schema, store.layout.root)
            if is_whole:
                await tables.remove(tables.states.keys() - {relation.name for relation in wanted})
            return [await _write(store, tables, relation) for relation in wanted]
    finally:
        await connection.close()


async def _connect(url: str) -> Any:
    try:
        return await asyncpg.connect(url, server_settings={"application_name": "evalflows", "timezone": "UTC"})
    except ValueError:  # its message may hold a part of the password
        raise InputError(
            "export postgres: the URL cannot be read, wanted postgresql://user@host:port/database, with special "
            "characters of a password as %XX, or the password in PGPASSWORD"
        ) from None


async def _write(store: Store, schema: Schema, relation: Relation) -> Exported:
    if await schema.has(relation.name, relation.state):
        return Exported(name=relation.name, rows=schema.states[relation.name][1], is_written=False)
    columns = {name: type_of(kind) for name, kind in relation.columns.items()}
    shape = Shape(name=relation.name, key=relation.key, about=relation.about, columns=columns)
    with TemporaryDirectory(prefix="evalflows-") as scratch:
        staged = Path(scratch) / "staged.parquet"
        stage(store, relation, staged)
        rows = await schema.replace(shape, relation.state, _rows(staged, relation))
    return Exported(name=relation.name, rows=rows, is_written=True)


def _rows(staged: Path, relation: Relation) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a staged file with values that PostgreSQL can hold."""
    expressions = {name: expression_of(name, kind) for name, kind in relation.columns.items()}
    converters = [converter_of(kind) for kind in relation.columns.values()]
    for row in staged_rows(staged, expressions):
        yield tuple(
            convert(value) if convert and value is not None else value
            for convert, value in zip(converters, row, strict=True)
        )
