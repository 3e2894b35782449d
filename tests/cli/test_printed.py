"""What the commands print of a kept store, at 80 and 120 columns: tests/cli/printed/NAME_COLUMNS.txt.

After a change that is meant: `EVALFLOWS_KEEP_PRINTED=1 pytest tests/cli/test_printed.py`, and read the difference.
"""

import os
import re
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalflows.cli.main import cli
from evalflows.cli.terminal import WIDTH_ELSEWHERE
from evalflows.store.parquet_files import FORMAT

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
    "diff_wide": ("diff", "kept-long", "kept-brief", "--limit", "0", "--wide"),
    "sql": ("sql", "from verdicts order by verdict_id limit 2"),
}
COPIED = re.compile(r"^(next|all of them): |^select |^/")
"""Lines that are to be copied, and so are not wrapped."""


@pytest.fixture(autouse=True)
def kept(store_root: Path) -> None:
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(store_root)


def printed(*arguments: str) -> list[str]:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_this(name: str, width: int, store_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(*COMMANDS[name])
    assert [line for line in lines if len(line) > width and not COPIED.match(line)] == []
    text = "\n".join(lines).replace(str(store_root), "/store") + "\n"
    path = PRINTED / f"{name}_{width}.txt"
    if os.environ.get("EVALFLOWS_KEEP_PRINTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_id_is_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = " ".join(" ".join(printed(*COMMANDS[name])) for name in ("ls", "show", "explain", "baselines"))
    ids = {*re.findall(r"(?:exp|dec|cmp)-\w+", shown)}
    assert {len(identity) for identity in ids} == {30}
    assert len(ids) == 4, "two experiments, a decision, a comparison"


def test_without_a_terminal_the_width_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = printed("show", "kept")
    monkeypatch.setenv("COLUMNS", str(WIDTH_ELSEWHERE))
    assert printed("show", "kept") == lines


@pytest.mark.slow
def test_the_narrow_tables_lack_counts_and_p_values_which_wide_has() -> None:
    header = printed("show", "kept")[0].split()
    assert header == ["metric", "system", "mean", "difference", "verdict"]
    wide = " ".join(printed("show", "kept", "--wide")[0].split())
    assert wide == "metric system mean interval scored missing n/a difference pairs p p adj. verdict"
    assert "1 of 24 values of contains, quality, short, latency, length are missing in long" in printed("show", "kept")
