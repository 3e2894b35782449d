"""Exports to PostgreSQL: a table per view in one schema, in one transaction."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

from evalflows.specs.errors import InputError
from evalflows.specs.values import is_deep
from evalflows.store.exports import Exported, Relation, relations, stage, staged_rows
from evalflows.store.layout import identifier, quoted
from evalflows.store.store import Store

MARK = "evalflows_export"
"""The table that says of which store and state the others are."""

MAX_NAME = 63
"""Bytes of the longest name in PostgreSQL, which cuts others without an error."""

_MARK_COLUMNS = "table_name text primary key, state text, rows bigint, store text, written_at timestamptz default now()"
_NO_KEY = (asyncpg.UniqueViolationError, asyncpg.NotNullViolationError, asyncpg.ProgramLimitExceededError)
"""Why columns cannot be a table's key: a repeated or missing value, or texts that are too long for an index."""

PARENTS = {
    "experiment_id": ("experiment_overview", "experiments"),
    "comparison_id": ("comparison_overview", "comparison_sets"),
    "decision_id": ("gate_decisions", "decisions"),
    "incident_id": ("incidents",),
    "trace_id": ("traces",),
    "run_id": ("outputs",),
    "snapshot_id": ("snapshots",),
}
"""The tables that columns of these names, such as `baseline_experiment_id`, refer to: the first one that is there."""

DEFAULT_SCHEMA = "evalflows"


_NO_REFERENCE = (
    asyncpg.ForeignKeyViolationError,
    asyncpg.InvalidForeignKeyError,
    asyncpg.DatatypeMismatchError,
    asyncpg.UndefinedTableError,
)
"""Why columns cannot refer to a table: a value that it does not have, or a table that is not there or has no key."""


class Schema:
    """A schema that belongs to exports of one store. `states` has the state of the rows and their number, by table."""

    def __init__(self, connection: Any, name: str, root: str, states: dict[str, tuple[str, int]]) -> None:
        self._connection, self._name, self._root, self.states = connection, name, root, states

    @classmethod
    async def open(cls, connection: Any, name: str, root: str) -> "Schema":
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
                f"schema {self._name!r}: got {found!r}, which no export wrote, wanted a new or empty schema"
            )
        await self._connection.execute(f"create table {self.full(MARK)} ({_MARK_COLUMNS})")
        about = quoted("one row per table_name: the state of a table, and when it was written")
        await self._connection.execute(f"comment on table {self.full(MARK)} is {about}")

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
                    await self.unrelate(table)
                    await self._connection.execute(f"drop table if exists {self.full(table)}")
                    await self._connection.execute(f"delete from {self.full(MARK)} where table_name = $1", table)

    async def replace(self, shape: Relation, rows: Iterable[tuple[Any, ...]]) -> int:
        """Make these the rows of a table, whose columns have PostgreSQL's types. Return their number.

        A table with the same columns keeps equal rows.
        """
        if shape.name in self.states and await self._columns(shape.name) == shape.columns:
            count = await self._merge(shape, rows)
        else:
            count = await self._create(shape, rows)
        await self._connection.execute(
            f"insert into {self.full(MARK)} (table_name, state, rows, store) values ($1, $2, $3, $4) "
            "on conflict (table_name) do update set state = excluded.state, rows = excluded.rows, written_at = now()",
            *(shape.name, shape.state, count, self._root),
        )
        return count

    async def _create(self, shape: Relation, rows: Iterable[tuple[Any, ...]]) -> int:
        table = self.full(shape.name)
        if shape.name in self.states:
            await self.unrelate(shape.name)
            await self._connection.execute(f"drop table if exists {table}")
        columns = ", ".join(f"{identifier(name)} {kind}" for name, kind in shape.columns.items())
        await self._connection.execute(f"create table {table} ({columns})")
        await self._connection.execute(f"comment on table {table} is {quoted(shape.about)}")
        for column, meaning in shape.meanings.items():
            await self._connection.execute(f"comment on column {table}.{identifier(column)} is {quoted(meaning)}")
        count = await self._copy(self._name, shape.name, shape, rows)
        await self._add_key(table, shape)
        return count

    async def _merge(self, shape: Relation, rows: Iterable[tuple[Any, ...]]) -> int:
        """Delete the rows that are gone or changed, and insert those that are new or changed."""
        table, execute = self.full(shape.name), self._connection.execute
        await execute(f"create temporary table {MARK}_rows (like {table}) on commit drop")
        count = await self._copy("pg_temp", f"{MARK}_rows", shape, rows)
        key = await self._key_name(shape.name)
        if not key or not shape.key:
            await self.unrelate(shape.name)
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
                await self.unrelate(shape.name)
                await execute(f"alter table {table} drop constraint {identifier(key)}")
            await execute(f"delete from {table}")
            await execute(f"insert into {table} select * from pg_temp.{MARK}_rows")
            await self._add_key(table, shape)
        await execute(f"drop table pg_temp.{MARK}_rows")
        return count

    async def unrelate(self, table: str | None = None) -> None:
        """Drop the foreign keys of a table, and those that refer to it; without a table, all of the schema."""
        query = """select conrelid::regclass::text, conname from pg_constraint
                   where contype = 'f' and connamespace = $1::regnamespace
                     and ($2::text is null or to_regclass($2) in (conrelid, confrelid))"""
        full = None if table is None else self.full(table)
        for owner, name in await self._connection.fetch(query, identifier(self._name), full):
            await self._connection.execute(f"alter table {owner} drop constraint {identifier(name)}")

    async def relate(self, tables: Sequence[tuple[str, Iterable[str]]]) -> None:
        """Declare what the columns of tables refer to, as foreign keys that are checked at the end of a transaction.

        What has rows that refer to none is not declared. Raise ForeignKeyViolationError if rows that were written
        break what an earlier export has declared.
        """
        await self._connection.execute("set constraints all immediate")
        query = """select c.relname || ' ' || a.attname from pg_constraint f join pg_class c on c.oid = f.conrelid
                   join pg_attribute a on a.attrelid = f.conrelid and a.attnum = f.conkey[1]
                   where f.contype = 'f' and f.connamespace = $1::regnamespace"""
        declared = {name for (name,) in await self._connection.fetch(query, identifier(self._name))}
        keyed = {parent for names in PARENTS.values() for parent in names if await self._key_name(parent)}
        for table, columns in tables:
            for column in columns:
                key = next((key for key in PARENTS if column == key or column.endswith(f"_{key}")), "")
                parent = next((name for name in PARENTS.get(key, ()) if name in keyed), None)
                if parent in (None, table) or f"{table} {column}" in declared:
                    continue
                with suppress(*_NO_REFERENCE):
                    async with self._connection.transaction():
                        await self._connection.execute(
                            f"alter table {self.full(table)} add foreign key ({identifier(column)}) references "
                            f"{self.full(parent)} ({identifier(key)}) deferrable initially deferred"
                        )

    async def _copy(self, schema: str, table: str, shape: Relation, rows: Iterable[tuple[Any, ...]]) -> int:
        status = await self._connection.copy_records_to_table(
            table, schema_name=schema, columns=[*shape.columns], records=rows
        )
        return int(status.rpartition(" ")[2])

    async def _add_key(self, table: str, shape: Relation) -> bool:
        """Make the key a primary key. Return whether that is possible."""
        if not shape.key:
            return False
        try:
            async with self._connection.transaction():
                key = ", ".join(map(identifier, shape.key))
                await self._connection.execute(f"alter table {table} add primary key ({key})")
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


NUL = "\u2400"
"""What is shown for a NUL character, which no text in PostgreSQL can hold: the symbol ␀."""

_TYPES = {
    "VARCHAR": "text",
    "JSON": "jsonb",
    "BOOLEAN": "boolean",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "UUID": "uuid",
    "BLOB": "bytea",
}
_SUMS = ("HUGEINT", "UHUGEINT")  # cast to bigint when they are staged
_LISTS = ("VARCHAR", "BOOLEAN", "DOUBLE", "INTEGER", "BIGINT", "TIMESTAMP WITH TIME ZONE")

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_RARE = re.compile(r"NaN|Infinity|[eE][+-]?\d{4}|\d{1000}")
_MAX_DIGITS = 10_000


def type_of(kind: str) -> str:
    """Return PostgreSQL's type for a DuckDB type; text for one that it does not have."""
    base = kind.removesuffix("[]")
    if kind in _SUMS:
        return "bigint"
    if base != kind and base in _LISTS:
        return f"{_TYPES[base]}[]"
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        return "jsonb"
    return f"numeric{kind.removeprefix('DECIMAL')}" if kind.startswith("DECIMAL") else _TYPES.get(kind, "text")


def expression_of(name: str, kind: str) -> str:
    """Return the DuckDB SQL of a staged column whose values fit the PostgreSQL type."""
    column, wanted = identifier(name), type_of(kind)
    if wanted == "jsonb" and kind != "JSON":
        return f"to_json({column})"
    return f"{column}::varchar" if wanted == "text" and kind != "VARCHAR" else column


def converter_of(kind: str) -> Callable[[Any], Any] | None:
    """Return the function that makes values of a type fit PostgreSQL; None if all do."""
    converters: dict[str, Callable[[Any], Any]] = {
        "text": fitting_text,
        "text[]": lambda texts: [None if text is None else fitting_text(text) for text in texts],
        "jsonb": fitting_json,
    }
    return converters.get(type_of(kind))


def fitting_text(text: str) -> str:
    """Return a text in which NUL characters are shown as a symbol."""
    return text.replace("\x00", NUL)


def fitting_json(text: str) -> str:
    """Return JSON that PostgreSQL reads. JSON with NaN, with a huge number or nested too deep becomes a JSON string."""
    text = _ESCAPED_NUL.sub(rf"\g<1>{NUL}", text)
    is_plain = not is_deep(text) and (not _RARE.search(text) or _is_readable(text))
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _is_readable(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse, parse_float=_number, parse_int=_number)
    except ValueError:
        return False
    return True


def _number(text: str) -> None:
    _, _, exponent = text.lower().partition("e")
    if len(text) > _MAX_DIGITS or (exponent and abs(int(exponent[:10])) > _MAX_DIGITS):
        raise ValueError(text[:20])


def _refuse(text: str) -> None:
    raise ValueError(text)


def export_postgres(
    store: Store, url: str, schema: str = DEFAULT_SCHEMA, only: Sequence[str] = (), *, is_all: bool = False
) -> list[Exported]:
    """Write the views of the store, or those of these names, to tables of a schema, which is created if needed.

    Internal tables and empty ones, marts apart, are left out unless they are named or `is_all`; a table that was
    exported before stays.

    All in one transaction: readers see the former rows until it ends. A table whose view is unchanged is left alone; of
    the others, only rows that differ are written. What the URL leaves out is taken from libpq's environment variables.

    Raise InputError, without the URL's password, if the database cannot be used, for an unknown name, and if the schema
    has tables of something else.
    """
    wanted = relations(store, only, is_all=is_all)
    if not url.startswith(("postgresql://", "postgres://")):
        raise InputError("export postgres: got another URL, wanted postgresql://user@host:port/database")
    try:
        return asyncio.run(_export(store, url, schema, wanted, is_whole=not only, with_empty=is_all or bool(only)))
    except asyncpg.PostgresError as error:
        raise InputError(f"postgres: {error}") from error
    except (asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise InputError(
            f"postgres: cannot connect: {getattr(error, 'strerror', None) or error or 'timeout'}"
        ) from error


async def _export(
    store: Store, url: str, schema: str, wanted: Sequence[Relation], *, is_whole: bool, with_empty: bool
) -> list[Exported]:
    connection = await _connect(url)
    try:
        with suppress(asyncpg.ForeignKeyViolationError):  # the store has changed meanwhile: without references, then
            return await _written(connection, store, schema, wanted, is_whole=is_whole, with_empty=with_empty)
        return await _written(
            connection, store, schema, wanted, is_whole=is_whole, with_empty=with_empty, is_related=False
        )
    finally:
        await connection.close()


async def _written(
    connection: Any,
    store: Store,
    schema: str,
    wanted: Sequence[Relation],
    *,
    is_whole: bool,
    with_empty: bool,
    is_related: bool = True,
) -> list[Exported]:
    async with connection.transaction():
        tables = await Schema.open(connection, schema, store.layout.root)
        if not is_related:
            await tables.unrelate()
        if is_whole:
            await tables.remove(tables.states.keys() - {relation.name for relation in wanted})
        exported = [await _write(store, tables, relation, with_empty=with_empty) for relation in wanted]
        if is_related and any(table.is_written for table in exported):
            left_out = {table.name for table in exported if table.is_left_out}
            await tables.relate([(table.name, table.columns) for table in wanted if table.name not in left_out])
        return exported


async def _connect(url: str) -> Any:
    try:
        return await asyncpg.connect(url, server_settings={"application_name": "evalflows", "timezone": "UTC"})
    except ValueError:  # its message may hold a part of the password
        raise InputError(
            "export postgres: the URL cannot be read, wanted postgresql://user@host:port/database, with special "
            "characters of a password as %XX, or the password in PGPASSWORD"
        ) from None


async def _write(store: Store, schema: Schema, relation: Relation, *, with_empty: bool) -> Exported:
    if await schema.has(relation.name, relation.state):
        return Exported(name=relation.name, rows=schema.states[relation.name][1], is_written=False)
    shape = replace(relation, columns={name: type_of(kind) for name, kind in relation.columns.items()})
    with TemporaryDirectory(prefix="evalflows-") as scratch:
        staged = Path(scratch) / "staged.parquet"
        is_kept = with_empty or relation.is_mart or relation.name in schema.states
        if not stage(store, relation, staged) and not is_kept:
            return Exported(name=relation.name, rows=0, is_written=False, is_left_out=True)
        rows = await schema.replace(shape, _rows(staged, relation))
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
