"""The statements of docs/guides/bi.md give the same figures in the store, in a DuckDB file, and in PostgreSQL."""

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest
from exported import comparable

from evalflows.store.exports import export_views
from evalflows.store.postgres import export_postgres
from evalflows.store.sql import select_from
from evalflows.store.store import Store

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "bi.md"
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
SCHEMA = "bi_page"


@pytest.fixture(scope="module")
def file(filled: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bi") / "bi.duckdb"
    export_views(filled, path)
    return path


@pytest.fixture(scope="module")
def tables(filled: Store, postgres_url: str) -> str:
    """The database that has the tables."""
    tables = {name for statement in STATEMENTS for name in re.findall(r"\b(?:from|join) (\w+)", statement)}
    export_postgres(filled, postgres_url, SCHEMA, sorted(tables))
    return postgres_url


def of_postgres(url: str, statement: str) -> list[Any]:
    async def fetch() -> list[Any]:
        connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


@pytest.mark.slow
def test_statements_give_the_same_figures_everywhere(filled: Store, file: Path, tables: str) -> None:
    assert len(STATEMENTS) == 9
    with duckdb.connect(str(file), read_only=True) as connection:
        for statement in STATEMENTS:
            wanted = comparable(select_from(filled, statement).fetchall())
            assert wanted, statement
            assert comparable(connection.execute(statement).fetchall()) == wanted, statement
            assert comparable(of_postgres(tables, statement)) == wanted, statement
