"""docs/tables.md is what the marts are, and its example queries run."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from evalflows.reports.results import conclusion_text
from evalflows.store.catalog import is_mart, select_from, view_files
from evalflows.store.parquet import Store
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import Conclusion

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "tables.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    found = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(tables: ModuleType) -> None:
    assert tables.page() == PAGE, "run `.venv/bin/python docs/tables.py > docs/tables.md`"


def test_no_meaning_is_left_over(tables: ModuleType) -> None:
    told = tables.yaml.safe_load((DOCS / "tables.yaml").read_text(encoding="utf-8"))
    parts = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
    assert parts.keys() == {"Verdicts", "Reason codes", *told["marts"]}
    assert [name for name in told["columns"] if f"\n| {name} | " not in PAGE] == []
    for mart, own in told["marts"].items():
        assert [name for name in own.get("columns", {}) if f"\n| {name} | " not in parts[mart]] == []


def test_all_codes_have_a_meaning_and_verdicts_are_called_as_in_reports(tables: ModuleType) -> None:
    told = tables.yaml.safe_load((DOCS / "tables.yaml").read_text(encoding="utf-8"))
    assert told["codes"].keys() == {*get_args(ReasonCode)}
    assert told["verdicts"].keys() == {*get_args(Conclusion)}
    assert {code: conclusion_text(code, None, 0.05) for code in told["verdicts"]} == {
        code: shown for code, (shown, _) in told["verdicts"].items()
    }


@pytest.mark.slow
def test_each_mart_has_an_example_query_that_runs(store: Store) -> None:
    queries = [part.partition("\n```")[0] for part in PAGE.split("```sql\n")[1:]]
    assert len(queries) == sum(map(is_mart, view_files()))
    for query in queries:
        assert select_from(store, query).fetchall() == []
