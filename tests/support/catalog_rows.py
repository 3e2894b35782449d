"""Rows that a query of the views gives."""

from typing import Any

from evalflows.store import connect


def rows(query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with connect() as catalog:
        return catalog.execute(query, list(parameters)).fetchall()


def one(query: str, *parameters: object) -> tuple[Any, ...]:
    (row,) = rows(query, *parameters)
    return row
