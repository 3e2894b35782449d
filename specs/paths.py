"""Environment variables in specs: in paths, and in the headers of an HTTP target."""

import os
import re
import stat
from pathlib import Path

from evalflows.specs.errors import InputError
from evalflows.specs.permitted import permitted_path
from evalflows.specs.permitted_environment import VARIABLE, check_in_paths


def filled(text: str, where: str) -> str:
    """Replace each `${NAME}` by that environment variable. Raise InputError if it is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{where}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return VARIABLE.sub(value, text)


def located(path: str | os.PathLike[str]) -> Path:
    """Return a path of a spec with its environment variables and `~` expanded.

    Raise InputError if a variable is not set, or if a deployment's run may not name the path or use the variable: see
    `permitted.py` and `permitted_environment.py`.
    """
    check_in_paths(os.fspath(path))
    return permitted_path(expanded(path), os.fspath(path))


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with its environment variables and `~` expanded. Raise InputError if a variable is not set."""
    text = os.fspath(path)
    try:
        return Path(filled(text, text)).expanduser()
    except RuntimeError as error:
        raise InputError(f"{text}: {error}") from error


def check_regular(path: Path) -> None:
    """Raise OSError unless the path is a file: a FIFO that nobody writes to, or a device, could be read for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder raises an error of its own
        raise OSError(None, "not a regular file")


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raise OSError if it cannot be read, or is not a regular file."""
    check_regular(path)
    return path.read_bytes()
