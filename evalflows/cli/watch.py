"""Run a command again whenever a file that it has read changes.

Each turn is a process of its own, forked from this one: it has everything imported that a run needs, and nothing of the
user's. So the user's modules are loaded anew, and nothing that a turn leaves behind reaches the next. This process has
no other thread of Python when it forks.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import source_from_cache
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from evalflows.cli.late_commands import INTERRUPTED
from evalflows.cli.output import echo_error, flush

State = tuple[int, int, int]
"""What changes with a file: the time of its last change, its size, and its inode."""

FOREIGN = frozenset({"site-packages", "node_modules", "__pycache__"})
"""Folders of files that people do not edit."""


def watch(turn: Callable[[bool], None], folders: Sequence[Path], ignored: Sequence[Path]) -> None:
    """Call `turn`, in a process of its own, now and after each change of a file that it has read, until Ctrl-C.

    `turn` is told whether an earlier turn has ended well. Only files below `folders` and not below `ignored` count, and
    none that it writes. Ctrl-C or SIGTERM during a turn goes to its process, whose exit code this one then ends with.
    """
    files: dict[str, State] = {}
    has_ended_well = False
    while True:
        files = {path: _state(path) or before for path, before in files.items()}
        code, read = _in_a_process(partial(turn, has_ended_well), _FilesRead(folders, ignored))
        if code == INTERRUPTED:
            sys.exit(code)
        files, has_ended_well = files | read, has_ended_well or code == 0
        try:
            if (changed := _changed(files)) is None:
                echo_error(f"watching {len(files)} file{'s' * (len(files) != 1)}; Ctrl-C stops")
                changed = _next_change(files)
            echo_error(f"{_shown(changed)} changed")
        except KeyboardInterrupt:
            return


def _in_a_process(turn: Callable[[], None], noted: "_FilesRead") -> tuple[int, dict[str, State]]:
    """Run a turn in a forked process. Return its exit code, and the files that it read, as they were then."""
    with TemporaryFile("w+", encoding="utf-8") as told:
        flush()
        pid = os.fork()
        if pid == 0:
            sys.addaudithook(noted.note)
            sys.dont_write_bytecode = True  # it is found by the second of the last change: two edits may be quicker
            try:
                turn()
            finally:
                json.dump(noted.files, told)
                told.flush()
            sys.exit()
        code = _exit_code(pid)
        told.seek(0)
        text = told.read()
    return code, {path: (state[0], state[1], state[2]) for path, state in json.loads(text or "{}").items()}


def _exit_code(pid: int) -> int:
    """Wait for a process, and return its exit code: INTERRUPTED if this one got a signal to end meanwhile.

    The terminal sends Ctrl-C to both; SIGTERM is passed on. The process decides how to end.
    """
    is_interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        if number == signal.SIGTERM:
            os.kill(pid, number)

    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return INTERRUPTED if is_interrupted else code


class _FilesRead:
    """The files below some folders that this process opens, modules among them, each as it was when first read."""

    def __init__(self, folders: Sequence[Path], ignored: Sequence[Path]) -> None:
        self._roots, self._ignored = ([f"{path.resolve()}{os.sep}" for path in given] for given in (folders, ignored))
        self._states: dict[str, State] = {}
        self._written: set[str] = set()

    @property
    def files(self) -> Mapping[str, State]:
        return {path: state for path, state in self._states.items() if path not in self._written}

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a file that is about to be opened: a hook for `sys.addaudithook`."""
        if event != "open" or not isinstance(arguments[0], str):
            return
        path, _, flags = arguments
        if "__pycache__" in path:
            try:
                path = source_from_cache(path)
            except ValueError:
                return
        path = os.path.realpath(path)
        root = next((root for root in self._roots if path.startswith(root)), None)
        if root is None or path.startswith(tuple(self._ignored)):
            return
        if any(name in FOREIGN or name.startswith(".") for name in Path(path[len(root) :]).parts):
            return
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._written.add(path)
        elif path not in self._states and (state := _state(path)) is not None:
            self._states[path] = state


def _state(path: str | Path) -> State | None:
    """Return the state of a file; None if there is none, as for a moment while an editor saves it."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _changed(files: Mapping[str, State]) -> str | None:
    """Return a file that is another now than when it was read."""
    return next((path for path, before in files.items() if (now := _state(path)) is not None and now != before), None)


def _next_change(files: Mapping[str, State]) -> str:
    """Wait until a file changes, and return it."""
    from watchfiles import watch as changes  # late: only --watch needs it

    folders = {folder for path in files if (folder := Path(path).parent).is_dir()}
    while True:
        for _ in changes(*folders, watch_filter=None, recursive=False, yield_on_timeout=True):
            if (changed := _changed(files)) is not None:
                return changed


def _shown(path: str) -> str:
    """Return a path as seen from the current folder, if it is below it."""
    return os.path.relpath(path) if path.startswith(f"{Path.cwd().resolve()}{os.sep}") else path
