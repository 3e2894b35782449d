"""The user's own marts: views from the files of a folder, and one line for a file that cannot be one."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from pathlib import Path

import pytest

from evalflows.specs.errors import InputError
from evalflows.store.sql import ask, connect, select, select_from
from evalflows.store.store import Store
from evalflows.store.views import is_mart, is_own, view_files, views_of

GOOD = (
    "-- one row per name: experiments of each name\nselect name, count(*) as n from staging.experiments group by name"
)


@pytest.fixture
def marts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my marts"
    folder.mkdir()
    monkeypatch.setenv("EVALFLOWS_MARTS", str(folder))
    return folder


def write(folder: Path, name: str, text: str = GOOD) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_mart_is_a_view_beside_ours(store: Store, marts: Path) -> None:
    path = write(marts, "by_name.sql")
    write(marts, "notes.txt", "no mart")
    assert [found for found in view_files() if is_own(found)] == [path]
    assert is_mart(path)
    for restricted in (False, True):
        with connect(restricted=restricted) as catalog:
            assert catalog.execute("select * from by_name").fetchall() == []
            tables = "select table_schema from information_schema.tables where table_name = 'by_name'"
            assert catalog.execute(tables).fetchall() == [("main",)]
    assert select_from(store, "from by_name").fetchall() == []
    assert ask(store, ("from by_name", []), ("FROM by_name", [])) == [[], []]


def test_marts_read_marts_in_any_order(store: Store, marts: Path) -> None:
    write(marts, "a_most.sql", "-- one row per name\nselect name from z_by_name where n > 1")
    write(marts, "z_by_name.sql", GOOD)
    write(marts, "changed.sql", "-- one row per metric\nselect distinct metric from changes_between('a', 'b')")
    write(marts, "bare.sql", "-- one row per score_id\nfrom scores")
    assert views_of("from a_most") >= {"a_most", "z_by_name", "experiments"}
    for name in ("a_most", "changed", "bare"):
        assert select_from(store, f"from {name}").fetchall() == []
        assert ask(store, (f"from {name}", [])) == [[]]


def test_a_changed_file_counts_at_once(store: Store, marts: Path) -> None:
    path = write(marts, "mine.sql", "-- one row per a\nselect 1 as a")
    assert select_from(store, "from mine").fetchall() == [(1,)]
    write(marts, "mine.sql", "-- one row per a\nselect 23 as a")
    assert select_from(store, "from mine").fetchall() == [(23,)]
    path.unlink()
    with pytest.raises(InputError, match="mine does not exist"):
        select_from(store, "from mine")


def test_what_cannot_be_a_mart_is_one_line_with_its_path_and_does_not_end_queries_of_others(
    store: Store, marts: Path
) -> None:
    for name, text, problem in (
        ("scores.sql", GOOD, "got the name 'scores', wanted another"),
        ("changes_between.sql", GOOD, "got the name 'changes_between', wanted another"),
        ("my-mart.sql", GOOD, "got the name 'my-mart', wanted a-z, 0-9 and _ only"),
        ("mine.sql", "select 1 as a", "got 'select 1 as a' as its first line, wanted '-- one row per"),
        ("mine.sql", "-- one row per b\nselect 1 as a", "got 'one row per b', wanted columns that it selects"),
        ("mine.sql", "-- one row per a\nselec 1 as a", "syntax error"),
        ("mine.sql", "-- one row per a\nselect 1 as a; select 2", "got SELECT, SELECT, wanted one query"),
        ("mine.sql", "-- one row per a\nselect 1 as a; drop view main.results", "got SELECT, DROP, wanted one query"),
        ("mine.sql", "-- one row per a\nselect a from mine", "got a circle, mine reads mine, wanted none"),
        ("mine.sql", "-- one row per a\nselect a from nowhere", "nowhere does not exist"),
    ):
        path = write(marts, name, text)
        with pytest.raises(InputError) as caught:
            connect()
        assert str(caught.value).startswith(f"{path}: ")
        assert problem in str(caught.value) and "\n" not in str(caught.value)
        path.unlink()
    write(marts, name, text)
    assert select_from(store, "from results").fetchall() == []


def test_a_mart_reads_nothing_but_the_store_on_a_restricted_connection(store: Store, marts: Path) -> None:
    secret = write(marts, "secret.csv", "a,b\nkey,1\n")
    path = write(marts, "mine.sql", f"-- one row per a\nfrom '{secret}'")
    with pytest.raises(InputError, match=r"mine\.sql: Permission Error") as caught:
        connect(restricted=True)
    with pytest.raises(InputError, match=r"mine\.sql: Permission Error"):
        select_from(store, "from mine")
    assert "key" not in str(caught.value)
    path.write_text(f"-- one row per a\nselect content as a from read_text('{secret}')", encoding="utf-8")
    with pytest.raises(InputError, match="Permission Error"), connect(restricted=True) as catalog:
        select(catalog, "from mine")
