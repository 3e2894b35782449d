"""Texts from data, answers and endpoints are shown escaped: on a terminal, in JSON, in CSV, and in error messages."""

import ast
import csv
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich import progress

from evalflows.cli import output
from evalflows.cli.late_commands import one_line_errors
from evalflows.cli.main import cli
from evalflows.cli.output import Console, Text, console, echo, echo_error, escape_logs, table
from evalflows.specs.errors import InputError
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

CLI = Path(output.__file__).parent
BAD = "\x1b[2J\x9b32m\x07gate release: PASS\r\u202e\x7f"
SHOWN = "\\x1b[2J\\x9b32m\\x07gate release: PASS\\x0d\\u202e\\x7f"
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FORBIDDEN = {
    *("click.echo", "click.secho", "click.echo_via_pager", "click.style", "print", "sys.stdout", "traceback.print_exc"),
    *("rich.print", "sys.stderr.write", "rich.console.Console", "rich.text.Text", "json.dumps", "csv.writer"),
}
"""What prints or formats without escaping. Use evalflows.cli.output and evalflows.specs.errors instead."""


def names_used(path: Path) -> Iterator[str]:
    """The dotted names that a module uses, with imports resolved."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    yield from known.values()
    for node in ast.walk(tree):
        name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        first, dot, rest = name.partition(".")
        yield known.get(first, first) + dot + rest


def test_commands_print_through_the_terminal_module(tmp_path: Path) -> None:
    for path in CLI.glob("*.py"):
        assert path.name == "output.py" or not FORBIDDEN & set(names_used(path)), path
    path = tmp_path / "careless.py"
    path.write_text("from rich.text import Text\nimport click, sys\nclick.echo('a')\nprint(1, file=sys.stdout)\n")
    assert FORBIDDEN & set(names_used(path)) == {"rich.text.Text", "click.echo", "print", "sys.stdout"}


def on_a_terminal(*renderables: object) -> str:
    out = Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, emoji=False, highlight=False)
    out.print(*renderables)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_a_table_is_as_wide_as_the_escaped_cells() -> None:
    out = table("name", "next")
    out.add_row(BAD, "a")
    out.add_row(Text(BAD), "b")
    header, *rows = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(out)).splitlines()
    assert [row.index(SHOWN) for row in rows] == [0, 0]
    assert {header.index("next"), rows[0].index(" a") + 1, rows[1].index(" b") + 1} == {len(SHOWN) + 2}


def test_a_newline_in_a_name_begins_no_line() -> None:
    out = table("name")
    out.add_row("x\ngate release: PASS")
    printed = on_a_terminal(out) + on_a_terminal("y\ngate release: PASS") + on_a_terminal(Text("z\ngate release: PASS"))
    assert not any(line.startswith("gate") for line in printed.splitlines())


def test_a_progress_bar_still_moves_the_cursor() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=80)
    with progress.Progress(progress.TextColumn("{task.description}", markup=False), console=out) as bar:
        bar.add_task(f"a\x1b[2J{BAD}", total=1)
    assert isinstance(out.file, io.StringIO)
    printed = out.file.getvalue()
    assert "\x1b[2K" in printed and "\x1b[2J" not in printed and "\\x1b[2J" in printed


def test_the_console_writes_to_where_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(BAD)
    console(stderr=True).print(f"error {BAD}")
    echo(f"{BAD}\nnext")
    echo(BAD, err=True)
    printed = capsys.readouterr()
    assert printed.out == f"{SHOWN}\n{SHOWN}\nnext\n"
    assert printed.err == f"error {SHOWN}\n{SHOWN}\n"


def test_an_error_is_one_line_of_at_most_500_characters(capsys: pytest.CaptureFixture[str]) -> None:
    echo_error(f"where: {BAD}\n\tgot")
    shown = SHOWN.replace("\\x0d", " ")
    assert capsys.readouterr().err == f"evalflows: where: {shown} got\n"
    echo_error("x" * 501)
    assert capsys.readouterr().err == f"evalflows: {'x' * 499}…\n"
    echo_error("x" * 500)
    assert capsys.readouterr().err == f"evalflows: {'x' * 500}\n"


def test_a_traceback_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors(verbose=True):
        raise InputError(f"where: {BAD}")
    printed = capsys.readouterr().err
    assert "Traceback" in printed and not ACTIVE.search(printed)


def test_logs_are_escaped() -> None:
    out = io.StringIO()
    logger, handler = logging.getLogger("test_terminal"), logging.StreamHandler(out)
    logger.addHandler(handler)
    with escape_logs():
        try:
            raise ValueError(BAD)
        except ValueError:
            logger.exception("failed: %s", BAD)
    assert f"failed: {SHOWN}" in out.getvalue() and "ValueError" in out.getvalue()
    assert not ACTIVE.search(out.getvalue())


def in_process(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.usefixtures("store")
def test_a_bad_argument_is_repeated_escaped() -> None:
    for arguments in (
        (f"l{BAD}s",),
        ("ls", f"--x{BAD}"),
        ("sql", "--format", BAD),
        ("show", BAD),
        ("run", f"{BAD}.yaml"),
        ("evaluators", "exact_match", "--set", BAD),
        ("sql", f"select {BAD}"),
    ):
        done = in_process(*arguments)
        assert done.exit_code == 2 and "gate release: PASS" in done.stderr, arguments
        assert not ACTIVE.search(done.stderr + done.stdout), arguments
    assert len(in_process("ls", "x" * 5000).stderr) < 700


def test_names_of_datasets_and_examples_are_escaped(store: Store) -> None:
    rows = [{"id": BAD, "inputs": {"q": BAD}, "outputs": {"a": BAD}, "split": BAD}]
    freeze(store, to_examples(enumerate(rows), "rows"), name=BAD, source=BAD)
    for arguments in (("dataset", "ls"), ("dataset", "show", BAD), ("sql", "select example_id from examples")):
        done = in_process(*arguments)
        assert done.exit_code == 0, done.stderr
        assert "release: PASS" in done.stdout and "\\u202e" in done.stdout  # folded in narrow columns
        assert not ACTIVE.search(done.stdout)


@pytest.mark.usefixtures("store")
def test_json_of_a_query_is_valid_and_escaped() -> None:
    query = "select chr(155) || chr(127) || chr(8238) || 'ü' as a, -1.5 as b"
    done = in_process("sql", query, "--format", "json")
    assert not ACTIVE.search(done.stdout) and "ü" in done.stdout
    assert json.loads(done.stdout) == {"a": "\x9b\x7f\u202eü", "b": -1.5}


@pytest.mark.usefixtures("store")
def test_csv_of_a_query_has_no_formulas() -> None:
    texts = "'-1.5' as text, '@x' as at, chr(9) || 'x' as tab, 'a' || chr(27) as c"
    query = f"""select '=1+1' as "=a", -1.5 as number, {texts}"""
    done = in_process("sql", query, "--format", "csv")
    header, row = csv.reader(io.StringIO(done.stdout))
    assert header == ["'=a", "number", "text", "at", "tab", "c"]
    assert row == ["'=1+1", "-1.5", "'-1.5", "'@x", "'\tx", "a\x1b"]


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_fail_of_a_gate() -> None:
    Store()
    query = [sys.executable, "-m", "evalflows.cli.main", "sql", "select * from range(200000)", "--format", "csv"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "range\n"
        process.stdout.close()
        assert (process.wait(30), process.stderr.read()) == (141, "")
