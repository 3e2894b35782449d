"""An experiment's outputs in a store, as files, rows and views show them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.store.store import Store

Make = Callable[..., Any]
EARLY = datetime(2026, 1, 1, tzinfo=UTC)
LATE = EARLY + timedelta(hours=1)
OWNER = "exp-1"


def runs(store: Store, parts: list[str] | None = None) -> list[str]:
    return sorted(row.run_id for row in store.read("outputs", OWNER, parts))


def seen(store: Store, column: str = "run_id") -> list[Any]:
    """What the view gives."""
    return [row[0] for row in store.query(f"select {column} from source.outputs order by 1")]


def open_parts(store: Store) -> list[str]:
    return sorted(store._fs.glob(f"{store.layout.open_folder('outputs', OWNER)}/*.parquet"))
