"""Where the user's own code raised: the frames of a traceback that are neither ours nor of an installed package."""

import linecache
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType

from evalflows.specs.errors import CallError, describe
from evalflows.specs.module_source import OURS, is_users

PLACES = 3
"""Frames of each exception that a one-line text names: the innermost ones."""

FRAMES = 5
"""Frames of each exception in a trace: the outermost one, and the innermost ones."""

LINKED = 4
"""Exceptions of a chain that are described: the last ones raised, and the root cause."""

MEMBERS = 3
"""Exceptions of a group that are described."""

LINE_CHARS = 120

_SECRET = re.compile(r"""(?<=["'\s])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{20,}(?=["'])""")
"""The end of a text in source code that looks like a key or token."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """One line of the user's code that was being executed."""

    place: str  # such as `app.py:14 in parse`; the path is relative to the working folder
    line: str  # the source; empty if it is not known


def fault_text(error: BaseException) -> str:
    """Format an exception of the user's code as one line: type, message, the user's innermost frames, and its causes.

    Such as `ValueError: no digits in 'abc' (app.py:14 in parse, from app.py:9 in answer)`.
    """
    return "; ".join(f"{link}{_with_places(one)}" for link, one in _chain(error))


def trace_of(error: BaseException) -> str | None:
    """Return the user's frames of an exception with their source, outermost first, and then those of its causes.

    None if neither passed a frame of the user's.
    """
    chain = [(link, one, _user_frames(one)) for link, one in _chain(error)]
    if not any(frames for _, _, frames in chain):
        return None
    lines = [line for link, one, frames in chain for line in (f"{link}{_with_members(one)}", *_traced(frames))]
    return "\n".join(lines[1:])  # the text of the error itself stands beside it


def _with_places(error: BaseException) -> str:
    places = [frame.place for frame in reversed(_user_frames(error)[-PLACES:])]
    return f"{_with_members(error)} ({', from '.join(places)})" if places else _with_members(error)


def _with_members(error: BaseException) -> str:
    """Describe an exception with its notes, and a group of exceptions with its members."""
    notes = [" ".join(str(note).split()) for note in getattr(error, "__notes__", ())]
    members = error.exceptions[:MEMBERS] if isinstance(error, BaseExceptionGroup) else ()
    what = f"{error.kind}: {error}" if isinstance(error, CallError) else describe(error)
    described = "; ".join((what, *notes))
    return f"{described}: {', '.join(map(_with_places, members))}" if members else described


def _chain(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return an exception and what caused it, each with the words that link it to the one before."""
    links, seen = [("", error)], {id(error)}
    while (linked := _cause(links[-1][1])) is not None and id(linked[1]) not in seen:
        seen.add(id(linked[1]))
        links.append(linked)
    return links if len(links) <= LINKED else [*links[: LINKED - 1], links[-1]]


def _cause(error: BaseException) -> tuple[str, BaseException] | None:
    """Return the cause of an exception, if it says more.

    What a library handled inside itself is left out: only an explicit cause, or one that passed the user's code, tells
    something. The message of a CallError is complete, and its cause may quote a key.
    """
    if isinstance(error, CallError):
        return None
    if error.__cause__ is not None:
        return "caused by ", error.__cause__
    context = error.__context__
    if context is None or error.__suppress_context__ or not _user_frames(context):
        return None
    return "while handling ", context


def _traced(frames: list[_Frame]) -> Iterator[str]:
    """Yield the lines of a trace, outermost frame first."""
    if left_out := max(0, len(frames) - FRAMES):
        frames = [frames[0], _Frame(f"… {left_out} more", ""), *frames[1 - FRAMES :]]
    for frame in frames:
        yield f"  {frame.place}"
        if frame.line:
            yield f"    {frame.line}"


def _user_frames(error: BaseException) -> list[_Frame]:
    return [_frame(frame, line) for frame, line in _walked(error.__traceback__) if _is_users(frame)]


def _walked(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _is_users(frame: FrameType) -> bool:
    names = frame.f_globals
    module = names.get("__package__") if names.get("__name__") == "__main__" else names.get("__name__")
    return str(module or "").partition(".")[0] != OURS and _is_users_file(frame.f_code.co_filename)


@lru_cache(maxsize=4096)
def _is_users_file(name: str) -> bool:
    """Whether code of this file name is the user's; code without a file was typed in, unless Python made it."""
    return not name.startswith("<frozen") if name.startswith("<") else is_users(Path(os.path.realpath(name)))


def _frame(frame: FrameType, line: int) -> _Frame:
    code = frame.f_code
    linecache.checkcache(code.co_filename)  # the file may have been edited since it was read
    source = _SECRET.sub("…", linecache.getline(code.co_filename, line, frame.f_globals).strip())
    name = code.co_qualname.rpartition("<locals>.")[2]
    shortened = source if len(source) <= LINE_CHARS else source[: LINE_CHARS - 1] + "…"
    return _Frame(f"{_shown(code.co_filename)}:{line} in {name}", shortened)


def _shown(name: str) -> str:
    """Return a file's path relative to the working folder if it lies there, and a notebook's cell by its number."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and (shell := ipython.get_ipython()) is not None:
        cell = getattr(shell.compile, "format_code_name", lambda _: None)(name)
        if cell:
            return str(cell[1])
    try:
        return str(Path(name).relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or the working folder is gone
        return name
