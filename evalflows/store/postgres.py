"""The tables of an export to PostgreSQL, within one transaction: of which store and state they are, and their rows."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from evalflows.specs.errors import InputError
from evalflows.store.layout import identifier, quoted

MARK = "evalflows_export"
"""The table that says of which store and state the others are."""

MAX_NAME = 63
"""Bytes of the longest name in PostgreSQL, which cuts others without an error."""

_MARK_COLUMNS = "table_name text primary key, state text, rows bigint, store text, written_at timestamptz default now()"
_NO_KEY = (asyncpg.UniqueViolationError, asyncpg.NotNullViolationError, asyncpg.ProgramLimitExceededError)
"""Why columns cannot be a table's key: a repeated or missing value, or texts that are too long for an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table's name, its key, what a row is, and its columns with their PostgreSQL types."""

    name: str
    key: tuple[str, ...]
    about: str
    columns: dict[str, str]

    @property
    def columns_sql(self) -> str:
        return ", ".join(f"{identifier(name)} {kind}" for name, kind in self.columns.items())

    @property
    def key_sql(self) -> str:
        return ", ".join(map(identifier, self.key))


class Schema:
    """A schema that belongs to exports of one store. `states` has the state of the rows and their number, by table."""

    def __init__(self, connection: Any, name: str, root: str, states: dict[str, tuple[str, int]]) -> None:
        self._connection, self._name, self._root, self.states = connection, name, root, states

    @classmethod
    async def opened(cls, connection: Any, name: str, root: str) -> "Schema":
        """Return the schema, created if needed, and locked against other exports until the transaction ends.

        Raise InputError if it has tables that no export made, or those of another store.
        """
        if not 0 < len(name.encode()) <= MAX_NAME or "\x00" in name:
            raise InputError(f"schema {name!r}: wanted a name of 1 to {MAX_NAME} bytes")
        schema = cls(connection, name, root, {})
        if not await connection.fetchval("select true from pg_namespace where nspname = $1", name):
            await connection.execute(f"create schema {identifier(name)}")
        if not await connection.fetchval("select to_regclass($1)::text", schema.full(MARK)):
            await schema._mark()
        await connection.execute(f"lock table {schema.full(MARK)} in share row exclusive mode")
        for table, state, rows, store in await connection.fetch(
            f"select table_name, state, rows, store from {schema.full(MARK)}"
        ):
            if store != root:
                raise InputError(
                    f"schema {name!r}: got an export of the store {store}, wanted one of {root}, or a new schema"
                )
            schema.states[table] = (state, rows)
        return schema

    async def _mark(self) -> None:
        query = "select relname from pg_class where relnamespace = $1::regnamespace order by relname limit 1"
        if found := await self._connection.fetchval(query, identifier(self._name)):
            raise InputError(
                f"schema {self._name!r}: got {found!r} of something else in it, wanted a new or empty schema"
            )
        await self._connection.execute(f"create table {self.full(MARK)} ({_MARK_COLUMNS})")
        about = quoted("one row per table_name: the state of a table, and when it was written")
        await self._connection.execute(f"comment on table {self.full(MARK)} is {about}")

    async def _read_mark(self) -> None:
        query = f"select table_name, state, rows, store from {self.full(MARK)}"
        for table, state, rows, store in await self._connection.fetch(query):
            if store != self._root:
                raise InputError(
                    f"schema {self._name!r}: got an export of the store {store}, wanted one of {self._root}"
                )
            self.states[table] = (state, rows)

    def full(self, table: str) -> str:
        """Return the SQL name of a table of the schema."""
        return f"{identifier(self._name)}.{identifier(table)}"

    async def has(self, table: str, state: str) -> bool:
        """Return whether a table is there, with the rows of this state."""
        known, _ = self.states.get(table, ("", 0))
        return known == state and bool(await self._columns(table))

    async def remove(self, tables: Iterable[str]) -> None:
        """Remove tables of earlier exports. One that other objects need, such as a view of the user's, stays."""
        for table in tables:
            with suppress(asyncpg.DependentObjectsStillExistError):
                async with self._connection.transaction():
                    await self._connection.execute(f"drop table if exists {self.full(table)}")
                    await self._connection.execute(f"delete from {self.full(MARK)} where table_name = $1", table)

    async def replace(self, shape: Shape, state: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Make these the rows of a table. Return their number. A table with the same columns keeps equal rows."""
        if shape.name in self.states and await self._columns(shape.name) == shape.columns:
            count = await self._merge(shape, rows)
        else:
            count = await self._create(shape, rows)
        await self._connection.execute(
            f"insert into {self.full(MARK)} (table_name, state, rows, store) values ($1, $2, $3, $4) "
            "on conflict (table_name) do update set state = excluded.state, rows = excluded.rows, written_at = now()",
            *(shape.name, state, count, self._root),
        )
        return count

    async def _create(self, shape: Shape, rows: Iterable[tuple[Any, ...]]) -> int:
        table = self.full(shape.name)
        if shape.name in self.states:
            await self._connection.execute(f"drop table if exists {table}")
        await self._connection.execute(f"create table {table} ({shape.columns_sql})")
        await self._connection.execute(f"comment on table {table} is {quoted(shape.about)}")
        count = await self._copy(self._name, shape.name, shape, rows)
        await self._add_key(table, shape)
        return count

    async def _merge(self, shape: Shape, rows: Iterable[tuple[Any, ...]]) -> int:
        """Delete the rows that are gone or changed, and insert those that are new or changed."""
        table, execute = self.full(shape.name), self._connection.execute
        await execute(f"create temporary table {MARK}_rows (like {table}) on commit drop")
        count = await self._copy("pg_temp", f"{MARK}_rows", shape, rows)
        key = await self._key_name(shape.name)
        if await self._add_key(f"pg_temp.{MARK}_rows", shape) and key:
            await execute(f"analyze pg_temp.{MARK}_rows")
            same = " and ".join(f"new.{column} = old.{column}" for column in map(identifier, shape.key))
            await execute(
                f"delete from {table} as old where not exists (select from pg_temp.{MARK}_rows as new "
                f"where {same} and row(new.*) is not distinct from row(old.*))"
            )
            await execute(f"insert into {table} select * from pg_temp.{MARK}_rows on conflict do nothing")
        else:
            if key:
                await execute(f"alter table {table} drop constraint {identifier(key)}")
            await execute(f"delete from {table}")
            await execute(f"insert into {table} select * from pg_temp.{MARK}_rows")
            await self._add_key(table, shape)
        await execute(f"drop table pg_temp.{MARK}_rows")
        return count

    async def _copy(self, schema: str, table: str, shape: Shape, rows: Iterable[tuple[Any, ...]]) -> int:
        status = await self._connection.copy_records_to_table(
            table, schema_name=schema, columns=[*shape.columns], records=rows
        )
        return int(status.rpartition(" ")[2])

    async def _add_key(self, table: str, shape: Shape) -> bool:
        """Make the key a primary key. Return whether that is possible."""
        if not shape.key:
            return False
        try:
            async with self._connection.transaction():
                await self._connection.execute(f"alter table {table} add primary key ({shape.key_sql})")
        except _NO_KEY:
            return False
        return True

    async def _key_name(self, table: str) -> str | None:
        query = "select conname from pg_constraint where conrelid = to_regclass($1) and contype = 'p'"
        name: str | None = await self._connection.fetchval(query, self.full(table))
        return name

    async def _columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table, with their types; none if there is no such table."""
        query = """select attname, format_type(atttypid, atttypmod) from pg_attribute
                   where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum"""
        return dict(await self._connection.fetch(query, self.full(table)))
