"""Environment variables in specs: in paths, and in the headers of an HTTP target."""

import os
import re
from pathlib import Path

from evalflows.specs.errors import InputError
from evalflows.specs.permitted import permitted_path

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled(text: str, where: str) -> str:
    """Replace each `${NAME}` by that environment variable. Raise InputError if it is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{where}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)


def located(path: str | os.PathLike[str]) -> Path:
    """Return a path of a spec with its environment variables and `~` expanded.

    Raise InputError if a variable is not set, or if a deployment's run may not name the path: see `permitted.py`.
    """
    return permitted_path(expanded(path), os.fspath(path))


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with its environment variables and `~` expanded. Raise InputError if a variable is not set."""
    text = os.fspath(path)
    try:
        return Path(filled(text, text)).expanduser()
    except RuntimeError as error:
        raise InputError(f"{text}: {error}") from error
