"""Output files that are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalflows.specs.errors import InputError


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside the target. What the block wrote there is synced to disk and then takes its name.

    Raise InputError if a file cannot be written; the target is then left as it was.
    """
    temporary = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary.is_file():
            temporary.unlink()


def write_whole(target: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raise InputError if it cannot be written."""
    with whole_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
