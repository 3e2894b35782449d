"""Reading JSONL files, with each row's line number for messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specs.errors import InputError


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a JSONL file with their line numbers, from 1. Empty lines are passed over.

    Raises InputError, in one line, for a file that cannot be read and for a line that is no JSON object.
    """
    try:
        with Path(path).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _row(line, f"{path}:{number}")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8: {error.reason} at byte {error.start} of the line") from error
    except RecursionError as error:
        raise InputError(f"{where}: not JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"{where}: got {type(row).__name__}, wanted an object")
    return row


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")
