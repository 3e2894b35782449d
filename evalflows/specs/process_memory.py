"""Memory of this process: Python's search for cycles of objects, and what the allocator keeps of freed memory."""

import atexit
import ctypes
import gc
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FunctionType
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

_PROGRAM = sys.modules.get("__main__")
"""Kept here, in a module that is imported before DuckDB, so that Python clears the program's names at its end:
Prefect's threads keep some, and DuckDB would report on standard error that a connection among them leaks."""

QUIET = frozenset({"_asyncio", "_io", "asyncio", "builtins", "socket", "tempfile"})
"""Modules of the objects with `__del__` that a run leaves, which need not end before the process does."""

WRITERS = io.BufferedWriter, io.BufferedRandom
"""What keeps bytes that are not in a file yet, also beneath a file of text."""

MANY_OBJECTS = 50_000
"""New objects after which Python looks for cycles: after 700, as by default, it takes a tenth of the time of rules."""

FRAMES = 1 << 16
"""Words for Python's frames below a function `with_one_stack`: a thousand calls deep."""

_ends_quickly = False
"""Whether `end_quickly` was called."""

_ALLOCATOR = ((-1, 16 << 20), (-3, 16 << 20), (-8, 2))
"""Options of `mallopt` and their values: the thresholds of trim and mmap, in bytes, and the number of arenas."""


@cache
def return_memory() -> None:
    """Let the allocator return freed memory to the system: glibc keeps much of what many threads have freed.

    Below thresholds of 16 MB, statistics would take several times as long: each array of draws would be memory that the
    kernel clears anew.
    """
    with suppress(OSError, AttributeError, TypeError):  # only glibc has it
        for option, value in _ALLOCATOR:
            ctypes.CDLL(None).mallopt(option, value)


def search_rarely() -> None:
    """Search for cycles less often, which takes much of the time of calls and rules.

    At the start of a process, this saves an eighth of the time of its imports.
    """
    gc.set_threshold(MANY_OBJECTS, *gc.get_threshold()[1:])


def with_one_stack(function: Function) -> Function:
    """Decorate a function so that the frames of all calls below it are in one piece of memory.

    Python maps memory for them in pieces of 16 KB. Each call that begins a new piece maps it and unmaps it when it
    returns, which takes a hundred times as long as another call, and loops at such a depth do so thousands of times.
    """
    plain = cast("FunctionType", function)
    plain.__code__ = plain.__code__.replace(co_stacksize=FRAMES)
    return function


@contextmanager
def without_collection() -> Iterator[None]:
    """Exclude what a block makes from garbage collection, as for imports, which leave hardly any cycles.

    Each search through their objects takes a tenth of a second.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _freeze()
        gc.enable()


def _freeze() -> None:
    gc.freeze()
    atexit.unregister(_search_if_needed)
    atexit.register(_search_if_needed)


def _search_if_needed() -> None:
    """Spare Python its searches through all objects at exit, which take half a second after a run.

    A program needs them if it uses DuckDB, which would report that its objects leak, and if parts of cycles may have
    something to do at their end. Collecting what the run has made suffices otherwise.
    """
    gc.collect()
    if _ends_quickly:
        return
    gc.unfreeze()
    gc.disable()
    with suppress(ValueError):  # of a file that was detached
        if "duckdb" not in sys.modules and not _has_ends():
            gc.freeze()


def _has_ends() -> bool:
    """Return whether there is a file open for writing, or an object with `__del__` that is not of QUIET modules."""
    counts = Counter(map(type, gc.get_objects()))
    if any(hasattr(kind, "__del__") and str(kind.__module__).partition(".")[0] not in QUIET for kind in counts):
        return True
    buffers = [getattr(stream, "buffer", None) for stream in (sys.stdout, sys.stderr)]
    streams = {id(buffer) for buffer in buffers if type(buffer) in WRITERS}
    if sum(counts[kind] for kind in WRITERS) <= len(streams):  # as a rule: looking through all objects again takes long
        return False
    writers = [one for one in gc.get_objects() if type(one) in WRITERS]
    return any(not one.closed and id(one) not in streams for one in writers)


@cache
def collect_rarely() -> None:
    """Exclude objects that exist before the first calls from garbage collection, and collect less often.

    Prefect, DuckDB and others create so many that each full collection would stall every call for a third of a second.
    """
    _freeze()
    search_rarely()


def end_quickly() -> None:
    """Let the process end without its last searches for cycles, which take half a second after a run.

    Call this before anything else registers what to do at exit, so that this is done last. Objects without cycles, such
    as open files, still end as usual. What DuckDB then says of its own on standard error, that it leaks, is dropped.
    """
    global _ends_quickly
    _ends_quickly = True
    atexit.register(_end_quickly)


@cache
def flush_at_exit() -> None:
    """At exit, write what open files have not yet: without the last searches, those in cycles would lose it."""
    atexit.register(_flush)


def _flush() -> None:
    for one in gc.get_objects():
        if type(one) in (io.TextIOWrapper, *WRITERS):
            with suppress(ValueError, OSError):  # it is closed, or its file cannot be written
                one.flush()


def _end_quickly() -> None:
    gc.freeze()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
