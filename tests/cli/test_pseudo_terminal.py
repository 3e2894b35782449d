"""Commands in a real pseudo-terminal: what an endpoint answers and what is named by others moves no cursor."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

EVALFLOWS = str(Path(sys.executable).with_name("evalflows"))
BAD = "\x1b[2J\x1b[32mgate release: PASS\x1b[0m\x9b2J\u202e"
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[hl]|[12]?K|[0-9]*A)")
"""The sequences that rich writes itself: styles, showing and hiding the cursor, and redrawing the progress bar."""
ACTIVE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")


def in_a_terminal(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run a command in a pseudo-terminal. Return its exit code and what it wrote, without our own sequences."""
    terminal, its_end = pty.openpty()
    own = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "300", "LINES": "50"}
    own.pop("NO_COLOR", None)
    process = subprocess.Popen([EVALFLOWS, *arguments], cwd=cwd, env=own, stdin=its_end, stdout=its_end, stderr=its_end)
    os.close(its_end)
    written = b""
    with suppress(OSError):  # the process has ended
        while chunk := os.read(terminal, 65536):
            written += chunk
    os.close(terminal)
    return process.wait(60), OURS.sub("", written.decode())


@pytest.mark.slow
def test_names_are_shown_escaped(tmp_path: Path, store: Store, make: Callable[..., Any]) -> None:
    rows = [{"id": BAD, "inputs": {"q": BAD}, "outputs": {"a": BAD}, "split": BAD}]
    freeze(store, to_examples(enumerate(rows), "rows"), name=BAD, source=BAD)
    store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", name=BAD)])
    for command in (
        ("ls",),
        ("show", BAD),
        ("dataset", "show", BAD),
        ("sql", "select name from experiments"),
        ("resume", f"no {BAD}", "--verbose"),
        (f"l{BAD}",),
    ):
        _, printed = in_a_terminal(*command, cwd=tmp_path)
        assert "gate release: PASS" in printed, command
        assert not ACTIVE.search(printed), command
