"""Every door at a real size: no command, page, tool, view or result of Python fails on 10,000 answers (50,000 before a
release), or takes much longer than with 500.

Stores of other tests are small, and so are their files: for weeks, every second query of a larger one failed.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
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
    views,
)
from benchmarks.real_size import SMALL, Made
from evalflows.analysis import input_groups
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
    "sql, all rows": "prints every row",
    "modes find": "groups the failed answers",
    "diff: examples": "returns a row for each change, with the texts",
}
"""The doors that may take longer, and why."""

BIG_TABLES = ("--only", "results", "--only", "item_scores")

Doors = Callable[[Store, Made], Mapping[str, Door]]


@pytest.fixture(scope="module")
def large(examples: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a copy of the store of so many examples."""
    folder = Path(shutil.copytree(real_store(examples), tmp_path_factory.mktemp("real") / "large"))
    yield folder
    shutil.rmtree(folder)


def assert_open_and_quick(large: Path, examples: int, doors: Doors) -> None:
    """Open all doors of the large store, and those that take long again, on new copies of the large and the small one:
    the first time, what is imported and other work on this machine count too."""
    took, errors = _opened(large, doors, [])
    assert not errors, "\n".join(errors)
    if long := [name for name, seconds in took.items() if seconds > MOST * LEAST_S and name not in LONGER]:
        copies = [
            shutil.copytree(real_store(size), tempfile.mkdtemp(dir=large.parent), dirs_exist_ok=True)
            for size in (examples, SMALL)
        ]
        again, small = (_opened(Path(copy), doors, long)[0] for copy in copies)
        ratios = {name: round(again[name] / max(small[name], LEAST_S), 1) for name in long}
        assert {name: ratio for name, ratio in ratios.items() if ratio > MOST} == {}


def _opened(folder: Path, doors: Doors, only: Collection[str]) -> tuple[dict[str, float], list[str]]:
    """Open doors, all by default. Return their processor seconds, and what failed."""
    took, errors = dict[str, float](), list[str]()
    with in_folder(folder):
        for name, door in doors(Store(), Made.of(folder / "store")).items():
            if only and name not in only:
                continue
            began = time.process_time()
            try:
                door()
            except (Exception, SystemExit) as error:
                errors.append(f"{name}: {type(error).__name__}: {error}")
            took[name] = time.process_time() - began
    return took, errors


def leaves(command: click.Command, *path: str) -> Iterator[str]:
    """Yield the names of all commands without commands below them."""
    command = command.load() if isinstance(command, LateCommand) else command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaves(below, *path, name)
    else:
        yield " ".join(path)


def test_commands(large: Path, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_groups, "MOST_EMBEDDED", SMALL)  # the embedding model takes its time for each example

    def doors(_: Store, made: Made) -> dict[str, Door]:
        given = commands(made, Path.cwd())
        assert {name.partition(",")[0] for name in given} | {*NOT_ASKED} == {*leaves(cli)}
        for name in ("export csv", "export parquet", "export duckdb, --copy"):
            given[name] = [*given[name], *BIG_TABLES]
        return {name: partial(run, *arguments) for name, arguments in given.items()}

    assert_open_and_quick(large, examples, doors)


def test_results_in_python(large: Path, examples: int) -> None:
    def doors(_: Store, made: Made) -> dict[str, Door]:
        found = results(made, Path.cwd())
        assert {name.partition(":")[0] for name in found} | {*NAMES_NOT_ASKED} == {*evalflows.__all__}
        return found

    assert_open_and_quick(large, examples, doors)


def test_pages_and_tools(large: Path, examples: int) -> None:
    def doors(store: Store, made: Made) -> dict[str, Door]:
        assert {*PAGES} <= {*addresses(made), *PAGES_NOT_ASKED}
        return pages(store, made) | tools(store, made)

    assert_open_and_quick(large, examples, doors)


def test_views(large: Path, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the same rows on a restricted connection, whose threads read a file at once, as on any other."""
    connect_with = duckdb.connect
    with connect(large / "store") as catalog:
        wanted = {path.stem: digest(catalog, path.stem) for path in view_files()}
    assert sum(count for count, _ in wanted.values()) > 20 * examples
    found = dict[str, tuple[int, int]]()

    def doors(store: Store, _: Made) -> dict[str, Door]:
        return {name: lambda name=name, door=door: found.update({name: door()}) for name, door in views(store).items()}

    assert_open_and_quick(large, examples, doors)
    assert found == wanted
    monkeypatch.setattr(duckdb, "connect", lambda *given: connect_with(*given, config={"threads": 8}))
    with connect(large / "store", restricted=True) as catalog:
        many = [view for view, (count, _) in wanted.items() if count > examples]
        assert {view: digest(catalog, view) for view in many} == {view: wanted[view] for view in many}


def test_an_export_to_postgres(large: Path, examples: int, postgres_url: str) -> None:
    with in_folder(large):
        assert f"({15 * examples + 35:,} rows)" in run("export", "postgres", postgres_url, *BIG_TABLES)
