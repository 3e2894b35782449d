"""The user's own marts: SQL files in the folder that EVALFLOWS_MARTS names, each a view beside ours."""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from evalflows.specs.errors import InputError

FOLDER = "EVALFLOWS_MARTS"


@dataclass(frozen=True, slots=True)
class OwnMart:
    """A file, and when it was changed: what was read of it is valid until then."""

    path: Path
    changed_ns: int
    size: int


def own_marts(taken: Collection[str]) -> tuple[OwnMart, ...]:
    """Return the user's marts, by name; none if the variable is not set.

    Raise InputError, in one line, if the folder is missing, or if a file cannot be a mart.
    """
    named = os.environ.get(FOLDER)
    if not named:
        return ()
    try:
        paths = sorted(path for path in Path(named).absolute().iterdir() if path.suffix == ".sql")
        return tuple(_mart(path, taken) for path in paths)
    except OSError as error:
        raise InputError(f"{FOLDER}={named}: {error}, wanted a folder of .sql files") from error


def _mart(path: Path, taken: Collection[str]) -> OwnMart:
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", path.stem):
        raise InputError(f"{path}: got the name {path.stem!r}, wanted a-z, 0-9 and _ only")
    if path.stem in taken:
        raise InputError(f"{path}: got the name {path.stem!r}, wanted another: evalflows has a view of that name")
    try:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {error}, wanted UTF-8") from error
    if not re.fullmatch(r"-- one row per [a-z0-9_]+(?:, [a-z0-9_]+)*(?:: .*)?", first):
        raise InputError(f"{path}: got {first!r} as its first line, wanted '-- one row per column, column: what it is'")
    state = path.stat()
    return OwnMart(path, state.st_mtime_ns, state.st_size)
