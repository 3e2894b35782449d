"""Environment variables in what a spec says: paths, and the headers of an HTTP target."""

import os
import re
from pathlib import Path

from specs.errors import InputError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled(text: str, where: str) -> str:
    """A text with each `${NAME}` replaced by that environment variable. Raises InputError for one that is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{where}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)


def located(path: str | os.PathLike[str]) -> Path:
    """A path with its environment variables filled in, and `~` as the home folder."""
    text = os.fspath(path)
    try:
        return Path(filled(text, text)).expanduser()
    except RuntimeError as error:
        raise InputError(f"{text}: {error}") from error
