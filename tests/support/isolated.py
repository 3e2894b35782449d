"""Judging in another process, for tests: what an isolated evaluator says, and whether its processes live."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalflows.engine.isolated import IsolatedEvaluator
from evalflows.evaluators.score import Judgement
from evalflows.specs.errors import CallError, ErrorKind

Make = Callable[..., IsolatedEvaluator]


def judged(one: IsolatedEvaluator, outputs: Any = None, **asks: Callable[..., Any]) -> Judgement:
    """What it says of one answer."""
    available: dict[str, Any] = {"inputs": {"question": "q"}, "outputs": outputs, "complete": None, "embed": None}
    (judgement,) = one.judge(available, {"complete": None, "embed": None} | asks)
    return judgement


def failed(one: IsolatedEvaluator, outputs: Any = None, **asks: Callable[..., Any]) -> tuple[ErrorKind, str]:
    """How it failed."""
    with pytest.raises(CallError) as caught:
        judged(one, outputs, **asks)
    return caught.value.kind, str(caught.value)


def pid_of(one: IsolatedEvaluator) -> int:
    """Of an evaluator whose comment is the id of its process."""
    return int(judged(one).comment or 0)


def is_running(pid: int) -> bool:
    """Whether a process is there, and has not ended unburied."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether a process ends in the time."""
    until = time.monotonic() + within_s
    while is_running(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def read_when_there(path: Path, within_s: float = 20.0) -> int:
    """The number in a file that another process will write."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")
