"""Parse a user's JSON and JSONL strictly, with the position in every error message."""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.unique_keys import unique_object


def read_lines(lines: Iterable[bytes], where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSONL with their line numbers, from 1. Empty lines are skipped.

    Raises InputError, in one line, if a line is not a JSON object.
    """
    for number, line in enumerate(lines, start=1):
        if line.removeprefix(codecs.BOM_UTF8).strip():
            row = parse_json(line, f"{where}:{number}")
            if not isinstance(row, dict):
                raise InputError(f"{where}:{number}: got {type(row).__name__}, wanted an object")
            yield number, row


def parse_json(text: bytes, where: str) -> Any:
    """Parse a JSON value. Raises InputError, in one line, if the text is not JSON (NaN is not)."""
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse, object_pairs_hook=unique_object)
    except UnicodeDecodeError as error:
        at = f"{error.reason} at byte {error.start} of the line"
        raise InputError(f"{where}: not UTF-8: {at}; save the file as UTF-8") from error
    except RecursionError as error:
        raise InputError(f"{where}: not JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error.msg} at {_place(error)}") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error


def _place(error: json.JSONDecodeError) -> str:
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    return f"{line}character {error.colno}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")
