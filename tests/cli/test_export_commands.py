"""evalflows export duckdb, parquet, csv and postgres, as a command prints them."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evalflows.cli.main import cli


@pytest.fixture(autouse=True)
def new_views_are_copies() -> None:
    """Views are made one after the other: an export writes them in that order, which copies do not keep."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def export(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["export", *arguments])


FIRST = "start with results and item_scores (docs/guides/bi.md)"


def refused(*arguments: str) -> str:
    done = export(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.startswith("evalflows: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_folder() -> None:
    form = "parquet"
    names = ("--only", "labels", "--only", "results")
    first = f"start with results.{form} (docs/guides/bi.md)"
    assert export(form, "out", *names).output == f"out: 2 tables written (0 rows), 0 unchanged; {first}\n"
    assert export(form, "out", *names).output == f"out: 0 tables written, 2 unchanged; {first}\n"
    assert {path.name for path in Path("out").iterdir()} == {
        f"labels.{form}",
        f"results.{form}",
        "evalflows_export.json",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_duckdb_file() -> None:
    first, again = export("duckdb", "bi.duckdb").output, export("duckdb", "bi.duckdb").output
    count = first.split()[1]
    assert first == f"bi.duckdb: {count} views written, 0 unchanged; {FIRST}\n"
    assert again == f"bi.duckdb: 0 views written, {count} unchanged; {FIRST}\n"
    copied = export("duckdb", "bi.duckdb", "--copy", "--only", "labels").output
    assert copied == "bi.duckdb: 1 tables written (0 rows), 0 unchanged\n"


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    Path("notes.txt").write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}
    for arguments, message in (
        (("duckdb", "bi.duckdb", "--only", "labels"), "got --only, which needs --copy"),
        (("duckdb", "notes.txt"), "notes.txt: got a file that evalflows did not export"),
        (("duckdb", "nowhere/bi.duckdb"), "nowhere/bi.duckdb: cannot be written"),
        (("csv", "notes.txt"), "notes.txt: cannot be written: File exists"),
        (("csv", "."), ".: got a folder with other files"),
        (("parquet", "out", "--only", "no\nthing"), "export: got 'no\\nthing', wanted a view"),
        (("postgres", "postgresql://u:secret@host:port/x"), "the URL cannot be read"),
    ):
        message_printed = refused(*arguments)
        assert message in message_printed and "secret" not in message_printed
    assert {path.name for path in tmp_path.iterdir()} == before
    assert Path("notes.txt").read_text() == "mine"
