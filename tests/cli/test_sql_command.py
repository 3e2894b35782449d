"""`evalflows sql` reads the store only, for a limited time and with limited memory."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

from evalflows.cli.main import cli

BEGINNINGS = ("evalflows: sql: ", '{"error": {"kind": "bad_input", "message": "sql: ')
"""Of an error, as a line and as a document."""


def sql(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sql", *arguments])


def refused(done: Result) -> str:
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.startswith(BEGINNINGS) and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.usefixtures("store")
def test_files_and_extensions_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nkey\n")
    for query in (
        f"from read_text('{secret}')",
        f"from '{secret}'",
        f"copy (select 1) to '{tmp_path}/new.csv'",
        f"attach '{tmp_path}/new.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
    ):
        assert "key" not in refused(sql(query))
    assert {path.name for path in tmp_path.iterdir()} <= {"secret.csv", "store"}


@pytest.mark.usefixtures("store")
def test_a_slow_query_is_stopped_after_a_timeout_that_is_a_positive_number() -> None:
    message = refused(sql("select count(*) from range(1000000000000)", "--timeout", "0.3"))
    assert "sql: stopped after 0.3 s, wanted a faster query or a longer timeout" in message
    for seconds in ("0", "-1", "soon"):
        done = sql("select 1", "--timeout", seconds)
        assert done.exit_code == 2 and "--timeout" in done.stderr
    done = sql("select 1 as one", "--timeout", "5", "--format", "csv")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "one\n1\n", "")


@pytest.mark.parametrize(
    ("limits", "message"),
    [("0.2, 2**60", "sql: stopped after 0.2 s, wanted a faster query"), ("60, 2**20", "GiB of memory, wanted a query")],
)
def test_a_query_that_cannot_be_interrupted_ends_the_process(limits: str, message: str) -> None:
    program = (
        f"import time\nfrom evalflows.cli.store import _ended_at_once\nwith _ended_at_once({limits}): time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(BEGINNINGS) and message in done.stderr and done.stderr.count("\n") == 1


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 80 columns."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.usefixtures("store", "terminal")
def test_a_terminal_shows_at_most_forty_rows_and_how_many_there_are() -> None:
    *rows, last = sql("select range as n from range(1234)").stdout.splitlines()
    assert len(rows) == 1 + 40
    assert last == "40 of 1,234 rows; all of them: --format csv, or json"
    assert len(sql("select range as n from range(40)").stdout.splitlines()) == 1 + 40


@pytest.mark.usefixtures("store", "terminal")
def test_without_a_query_each_view_is_a_line() -> None:
    lines = sql().stdout.splitlines()
    described = sql("--format", "csv").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [line.split(",")[0] for line in described]
    assert all(len(line) <= 80 for line in lines) and any(line.endswith("…") for line in lines)


@pytest.mark.usefixtures("store")
def test_tables_show_six_digits_and_the_other_formats_all() -> None:
    query = "select 1 / 3 as a, 1234567.891::double as b, 1e-9 as c, 1e300 as d, 'nan'::double as e, 0.5::double as f"
    values = ["0.333333", "1234568", "1e-09", "1e+300", "nan", "0.5"]
    assert sql(query).stdout.splitlines()[1].split() == values
    assert sql(query, "--format", "md").stdout.splitlines()[-1] == f"| {' | '.join(values)} |"
    assert "0.3333333333333333,1234567.891" in sql(query, "--format", "csv").stdout


@pytest.mark.usefixtures("store")
def test_markdown_is_a_table_with_escaped_cells() -> None:
    query = """select '=1|2<b>' as "a|<script>", null as "none", chr(27) || chr(8238) || chr(10) || 'x' as c"""
    done = sql(query, "--format", "md")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        r"| a\|&lt;script> | none | c |",
        "|---|---|---|",
        r"| =1\|2&lt;b> |  | \x1b\u202e x |",
    ]


@pytest.mark.usefixtures("store")
def test_parquet_has_the_types_and_values_of_the_query(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    query = "select range as n, '=x' as t, null::double as none, ['a'] as l, {'b': 1} as s from range(20000)"
    assert sql(query, "--format", "parquet", "--output", str(out)).output == ""
    with duckdb.connect() as plain:
        described = plain.execute(f"describe from '{out}'").fetchall()
        assert [(name, kind) for name, kind, *_ in described] == [
            *(("n", "BIGINT"), ("t", "VARCHAR"), ("none", "DOUBLE"), ("l", "VARCHAR[]"), ("s", "STRUCT(b INTEGER)"))
        ]
        counted = plain.execute(f"select count(*), sum(n), any_value(t), any_value(l), count(none) from '{out}'")
        assert counted.fetchall() == [(20000, sum(range(20000)), "=x", ["a"], 0)]


@pytest.mark.usefixtures("store")
def test_output_is_what_would_be_printed(tmp_path: Path) -> None:
    query = "select '=x' as t, range as n from range(50)"
    for form, arguments in (("table", [query]), ("csv", [query]), ("json", [query]), ("md", [query]), ("csv", [])):
        printed = sql(*arguments, "--format", form).stdout
        assert printed
        assert sql(*arguments, "--format", form, "--output", str(tmp_path / "out")).output == ""
        assert (tmp_path / "out").read_text(encoding="utf-8") == printed
    assert len(sql("select range as n from range(1234)").stdout.splitlines()) == 1 + 1234, "all rows, elsewhere"


@pytest.mark.usefixtures("store")
def test_no_format_reads_or_writes_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    queries = ("from read_text('/etc/passwd')", "copy (select 1) to 'evil.csv'", "attach 'evil.db'")
    for form in ("table", "csv", "json", "md", "parquet"):
        for query in (*queries, "create table evil as select 1"):
            refused(sql(query, "--format", form, "--output", "out", "--timeout", "0.3"))
    slow = "select count(*) from range(1000000000000)"
    refused(sql(slow, "--format", "parquet", "--output", "out", "--timeout", "0.3"))
    assert [*folder.iterdir()] == []
    unwritten = ("--format", "parquet", "--output")
    for arguments, message in (
        (("select 1", "--format", "parquet"), "sql: got --format parquet, which needs a query and --output FILE"),
        ((*unwritten, "x"), "sql: got --format parquet, which needs a query and --output FILE"),
        (("select interval 1 day", *unwritten, "x"), "wanted columns of types that Parquet has"),
        (("select 1", "--output", "nowhere/x"), "nowhere/x: cannot be written: No such file or directory"),
        (("select 1", *unwritten, "nowhere/x"), "nowhere/x: cannot be written: "),
    ):
        done = sql(*arguments)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1) and message in done.stderr
    assert [*folder.iterdir()] == []
