"""docs/reference/tables.md is what the marts are, and its example queries run."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from evalflows.store.sql import check_query, connect
from evalflows.store.store import Store
from evalflows.store.views import is_mart, view_files

DOCS = Path(__file__).parent.parent / "docs" / "reference"
PAGE = (DOCS / "tables.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    found = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(tables: ModuleType) -> None:
    assert tables.page() == PAGE, "run `.venv/bin/python docs/reference/tables.py > docs/reference/tables.md`"


@pytest.mark.slow
def test_each_mart_has_an_example_query_that_runs(store: Store) -> None:
    queries = [part.partition("\n```")[0] for part in PAGE.split("```sql\n")[1:]]
    assert len(queries) == sum(map(is_mart, view_files()))
    with connect(store.layout.root, restricted=True) as views:
        for query in queries:
            assert views.execute(check_query(views, query)).fetchall() == []
