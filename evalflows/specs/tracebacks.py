"""What a program prints of an exception that ends it: one of ours without the frames by which it came."""

import sys
from collections.abc import Collection
from types import TracebackType

from evalflows.specs.errors import GateFailedError, IncompleteError, InputError, StorageError

FOR_USERS = (InputError, IncompleteError, GateFailedError, StorageError)
"""Exceptions whose message is complete: the frames of ours that raised them say no more."""

PREFECTS = ("prefect", "anyio", "asyncio", "concurrent", "contextlib")
"""Prefect, and the packages by which it calls our code."""

OTHERS = (*PREFECTS, "evalflows", "importlib")
"""Packages whose frames say nothing about the cause of an exception for users."""


def without_frames(traceback: TracebackType | None, packages: Collection[str]) -> TracebackType | None:
    """Return a traceback without the frames of these packages."""
    frames = []
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in packages:
            frames.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _print_unhandled(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an exception that ends a program: one of ours, and an interrupt, without frames that are not the user's."""
    if isinstance(error, (*FOR_USERS, KeyboardInterrupt)):
        traceback = without_frames(traceback, (*OTHERS, "threading"))
        error.__traceback__ = traceback
    sys.__excepthook__(kind, error, traceback)


if sys.excepthook is sys.__excepthook__:  # the user's own stays
    sys.excepthook = _print_unhandled
