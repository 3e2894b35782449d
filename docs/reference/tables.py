"""Print docs/reference/tables.md, from the marts and tables.yaml; CONTRIBUTING.md has the command."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from evalflows.store.sql import connect
from evalflows.store.views import SQL, grain, is_mart, is_own, view_files

HEAD = """# The marts

The tables for people: one for each question, in the schema `main`. They are views over the store's files, as of each
query: [Querying the store](../guides/queries.md) says how to query them, and which formulas they use. Missing values
are null with a reason, times are UTC, money is USD. This page is made by `docs/reference/tables.py`.
"""


def page() -> str:
    """Return the page's text. Raise KeyError for a column without a meaning, or a mart without an example."""
    told: dict[str, Any] = yaml.safe_load((SQL / "tables.yaml").read_text(encoding="utf-8"))
    marts = sorted(path for path in view_files() if is_mart(path) and not is_own(path))
    with TemporaryDirectory() as folder, connect(folder) as catalog:
        columns = {path.stem: catalog.execute(f"describe main.{path.stem}").fetchall() for path in marts}
    contents = [f"- [{path.stem}](#{path.stem}): {about(path)}" for path in marts]
    parts = [line for path in marts for line in part(path, columns[path.stem], told)]
    return "\n".join([HEAD, *contents, *stored_codes(told), *parts, ""])


def stored_codes(told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about the codes of verdicts and reasons."""
    yield from ("", "## Verdicts", "", "What is stored of a verdict, and what tables, pages and reports call it.", "")
    yield from ("| stored | shown | meaning |", "|---|---|---|")
    yield from (f"| {code} | {shown} | {meaning} |" for code, (shown, meaning) in told["verdicts"].items())
    yield from ("", "## Reason codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in told["codes"].items())


def part(path: Path, columns: list[tuple[Any, ...]], told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about one mart."""
    own = told["marts"][path.stem]
    yield from ("", f"## {path.stem}", "", f"One row per {', '.join(grain(path))}: {about(path)}.", "")
    yield from ("| column | type | meaning |", "|---|---|---|")
    for name, kind, *_ in columns:
        meaning = own.get("columns", {}).get(name) or told["columns"][name]
        yield f"| {name} | {kind.lower()} | {meaning.replace('|', chr(92) + '|')} |"
    yield from ("", "```sql", *textwrap.wrap(own["example"], 110, break_long_words=False), "```")


def about(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].partition(": ")[2]


if __name__ == "__main__":
    print(page(), end="")
