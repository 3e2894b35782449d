"""Every door at a real size: no command, page, tool, view or result of Python fails on 50,000 answers, or takes more
than ten times what it takes with 500.

Stores of other tests are small, and so are their files: for weeks, every second query of a larger one failed.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import click
import duckdb
import pytest
from real_stores import in_folder, real_store, run

import evalflows
from benchmarks.doors import (
    NAMES_NOT_ASKED,
    NOT_ASKED,
    PAGES_NOT_ASKED,
    Door,
    addresses,
    commands,
    digest,
    pages,
    results,
    tools,
)
from benchmarks.real_size import LARGE, SMALL, Made
from evalflows.cli.late_commands import LateCommand
from evalflows.cli.main import cli
from evalflows.dashboard.app import PAGES
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import view_files

pytestmark = pytest.mark.slow

MOST, LEAST_S = 10, 0.5
"""How many times as long the large store may take, and the processor seconds of a command's process."""

LONGER = {
    "sql, all rows": "prints a hundred times as many rows",
    "modes find": "groups 10,000 failed answers",
    "diff: examples": "returns a row for each of 20,000 changes, with the texts",
}
"""The doors that may take longer, and why."""

BIG_TABLES = ("--only", "results", "--only", "item_scores")

Doors = Callable[[Store, Made], Mapping[str, Door]]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Copies of a small store and of a large one."""
    folder = tmp_path_factory.mktemp("real")
    yield {size: Path(shutil.copytree(real_store(size), folder / str(size))) for size in (SMALL, LARGE)}
    shutil.rmtree(folder)


def assert_open_and_quick(copies: Mapping[int, Path], doors: Doors) -> None:
    figures, errors = {size: dict[str, float]() for size in copies}, list[str]()
    for size, folder in copies.items():
        with in_folder(folder):
            for name, door in doors(Store(), Made.of(folder / "store")).items():
                began = time.process_time()
                try:
                    door()
                except (Exception, SystemExit) as error:
                    errors.append(f"{size} examples, {name}: {type(error).__name__}: {error}")
                figures[size][name] = time.process_time() - began
    assert not errors, "\n".join(errors)
    small, large = figures[SMALL], figures[LARGE]
    times = {name: large[name] / max(small[name], LEAST_S) for name in large if name not in LONGER}
    assert {name: round(ratio, 1) for name, ratio in times.items() if ratio > MOST} == {}


def leaves(command: click.Command, *path: str) -> Iterator[str]:
    """Yield the names of all commands without commands below them."""
    command = command.load() if isinstance(command, LateCommand) else command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaves(below, *path, name)
    else:
        yield " ".join(path)


def test_commands(copies: dict[int, Path]) -> None:
    def doors(_: Store, made: Made) -> dict[str, Door]:
        given = commands(made, Path.cwd())
        assert {name.partition(",")[0] for name in given} | {*NOT_ASKED} == {*leaves(cli)}
        for name in ("export parquet", "export duckdb, --copy"):  # the same tables as `export csv` has, written alike
            given[name] = [*given[name], *BIG_TABLES]
        return {name: partial(run, *arguments) for name, arguments in given.items()}

    assert_open_and_quick(copies, doors)


def test_results_in_python(copies: dict[int, Path]) -> None:
    def doors(store: Store, made: Made) -> dict[str, Door]:
        found = results(store, made, Path.cwd())
        assert {name.partition(":")[0] for name in found} | {*NAMES_NOT_ASKED} == {*evalflows.__all__}
        return found

    assert_open_and_quick(copies, doors)


def test_pages_and_tools(copies: dict[int, Path]) -> None:
    def doors(store: Store, made: Made) -> dict[str, Door]:
        assert {*PAGES} <= {*addresses(made), *PAGES_NOT_ASKED}
        return pages(store, made) | tools(store, made)

    assert_open_and_quick(copies, doors)


def test_views(copies: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the same rows on a restricted connection, whose threads read a file at once, as on any other."""
    connect_with = duckdb.connect

    def digests(size: int, **options: bool) -> tuple[float, dict[str, tuple[int, int]]]:
        began = time.process_time()
        with connect(copies[size] / "store", **options) as catalog:
            found = {path.stem: digest(catalog, path.stem) for path in view_files()}
        return time.process_time() - began, found

    (_, wanted), (took, found) = digests(LARGE), digests(LARGE, restricted=True)
    assert sum(count for count, _ in wanted.values()) > 20 * LARGE
    assert found == wanted
    assert took < MOST * digests(SMALL, restricted=True)[0]
    monkeypatch.setattr(duckdb, "connect", lambda *given: connect_with(*given, config={"threads": 8}))
    with connect(copies[LARGE] / "store", restricted=True) as catalog:
        large = [view for view, (count, _) in wanted.items() if count > LARGE]
        assert {view: digest(catalog, view) for view in large} == {view: wanted[view] for view in large}


def test_an_export_to_postgres(copies: dict[int, Path], postgres_url: str) -> None:
    with in_folder(copies[LARGE]):
        assert "(150,035 rows)" in run("export", "postgres", postgres_url, *BIG_TABLES)
