"""What the commands print of a kept store, at 80 columns and some at 120: tests/cli/printed/NAME_COLUMNS.txt.

After a change that is meant: `EVALFLOWS_KEEP_PRINTED=1 pytest tests/cli/test_printed.py`, and read the difference.
"""

import os
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from evalflows.cli.gates import _print_decided
from evalflows.cli.main import cli
from evalflows.cli.run import _print_results
from evalflows.reports.decisions import find_decision
from evalflows.reports.markdown_pages import gate_report
from evalflows.store.copies import TableCopies
from evalflows.store.files import FORMAT
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import Store

KEPT = Path(__file__).parent.parent / "store" / "kept" / f"format_{FORMAT}.zip"
PRINTED = Path(__file__).parent / "printed"
COMMANDS = {
    "ls": ("ls",),
    "ls_all": ("ls", "--all"),
    "show": ("show", "kept"),
    "show_all": ("show", "kept", "--all"),
    "show_wide": ("show", "kept", "--wide"),
    "show_comparison": ("show", "cmp-"),
    "explain": ("explain", "release"),
    "baselines": ("baseline", "ls"),
    "diff": ("diff", "kept-long", "kept-brief"),
    "diff_all": ("diff", "kept-long", "kept-brief", "--limit", "1"),
    "plan": ("plan", "kept"),
}
LINES = {"show": 40, "show_comparison": 40, "diff": 24}
"""The most lines of what is printed by default, at 80 columns."""
COPIED = re.compile(r"^(next|all of them|not shown): |^select |^/")
"""Lines that are to be copied, and so are not wrapped."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kept") / "store"
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(root)
    return root


@pytest.fixture(autouse=True)
def of_the_kept_store(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLOWS_STORE", str(kept))


def printed(*arguments: str) -> list[str]:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "width"),
    [*((name, 80) for name in COMMANDS if name != "show_wide"), ("show_wide", 120), ("diff_all", 120)],
)
def test_a_command_prints_this(name: str, width: int, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(*COMMANDS[name])
    assert [line for line in lines if len(line) > width and not COPIED.match(line)] == []
    assert width > 80 or len(lines) <= LINES.get(name, len(lines))
    text = re.sub(r"plan-\w{26}", "plan-ID", "\n".join(lines).replace(str(kept), "/store")) + "\n"
    keep_or_compare(f"{name}_{width}", text)


def test_results_of_experiments_copy_no_answers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, follow = set[str](), TableCopies.follow

    def noted(self: TableCopies, states: Mapping[str, object], tables: Collection[str]) -> None:
        copied.update(tables)
        follow(self, states, tables)

    monkeypatch.setattr(TableCopies, "follow", noted)
    assert printed("show", "kept", "--all")
    assert "experiments" in copied
    assert not copied & {"outputs", "calls"}


def test_gate_and_run_print_the_same_in_at_most_24_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store = Store()
    decision = find_decision(store, "release")
    experiments = find_experiments(store, "kept")
    runner = CliRunner()
    printed_by = {
        "gate": lambda: _print_decided(gate_report(store, [decision], {}), detail=None, form="table"),
        "run": lambda: _print_results(experiments, {}),
    }
    for name, print_it in printed_by.items():
        done = runner.invoke(click.Command(name, callback=print_it))
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert len(lines) <= 24
        keep_or_compare(f"{name}_80", "\n".join(lines) + "\n")


def keep_or_compare(name: str, text: str) -> None:
    path = PRINTED / f"{name}.txt"
    if os.environ.get("EVALFLOWS_KEEP_PRINTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_id_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = " ".join(" ".join(printed(*COMMANDS[name])) for name in ("ls_all", "show_all", "explain", "baselines"))
    ids = {*re.findall(r"(?:exp|dec|cmp)-\w+", shown)}
    assert {len(identity) for identity in ids} == {30}
    assert len(ids) == 4, "two experiments, a decision, a comparison"
