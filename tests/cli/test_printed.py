"""What the commands print of a kept store, at 80 columns and some at 120: tests/cli/printed/NAME_COLUMNS.txt.

After a change that is meant: `EVALFLOWS_KEEP_PRINTED=1 pytest tests/cli/test_printed.py`, and read the difference.
"""

import os
import re
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalflows.cli.main import cli
from evalflows.cli.output import WIDTH_ELSEWHERE
from evalflows.store.files import FORMAT

KEPT = Path(__file__).parent.parent / "store" / "kept" / f"format_{FORMAT}.zip"
PRINTED = Path(__file__).parent / "printed"
COMMANDS = {
    "ls": ("ls",),
    "show": ("show", "kept"),
    "show_wide": ("show", "kept", "--wide"),
    "show_comparison": ("show", "cmp-"),
    "explain": ("explain", "release"),
    "baselines": ("baseline", "ls"),
    "diff": ("diff", "kept-long", "kept-brief", "--limit", "1"),
}
COPIED = re.compile(r"^(next|all of them): |^select |^/")
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
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "width"),
    [*((name, 80) for name in COMMANDS if name != "show_wide"), ("show", 120), ("show_wide", 120), ("diff", 120)],
)
def test_a_command_prints_this(name: str, width: int, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(*COMMANDS[name])
    assert [line for line in lines if len(line) > width and not COPIED.match(line)] == []
    text = "\n".join(lines).replace(str(kept), "/store") + "\n"
    path = PRINTED / f"{name}_{width}.txt"
    if os.environ.get("EVALFLOWS_KEEP_PRINTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_id_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = " ".join(" ".join(printed(*COMMANDS[name])) for name in ("ls", "show", "explain", "baselines"))
    ids = {*re.findall(r"(?:exp|dec|cmp)-\w+", shown)}
    assert {len(identity) for identity in ids} == {30}
    assert len(ids) == 4, "two experiments, a decision, a comparison"


def test_without_a_terminal_the_width_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = printed("show", "kept")
    monkeypatch.setenv("COLUMNS", str(WIDTH_ELSEWHERE))
    assert printed("show", "kept") == lines
