"""Read the results of other harnesses from a file, a folder, a glob or standard input, whatever their format."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalflows.harnesses.benchmarks import INSPECT, LM_EVAL
from evalflows.harnesses.content import content_of
from evalflows.harnesses.found import Format, NoResultsError, assembled, rows_in
from evalflows.harnesses.results import SystemResults
from evalflows.harnesses.runners import JUNIT, PROMPTFOO, PYTEST_JSON
from evalflows.harnesses.tables import TABLE
from evalflows.specs.errors import InputError, describe, short
from evalflows.specs.files import located
from evalflows.store.file_formats import READERS, open_file, suffix

FORMATS: Mapping[str, Format] = {each.name: each for each in (PROMPTFOO, INSPECT, LM_EVAL, JUNIT, PYTEST_JSON, TABLE)}
"""By the names that `--format` takes, in the order in which they are tried."""

ENDINGS = (*READERS, ".eval", ".xml")
"""Of the files of a folder that are read."""


def read_results(source: str, format: str | None = None) -> list[SystemResults]:  # noqa: A002 (its name for users)
    """Return the results of each system in each file of a source: a file, a folder, a glob, or `-` (standard input).

    `format` is a key of FORMATS; by default, the content tells it. Of a folder, all files that are results are read.
    Raise InputError, in one line, if there are none, or if a file of results is not whole.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format: got {format!r}, wanted one of {', '.join(FORMATS)}")
    if source == "-":
        return _read(sys.stdin.buffer.read(), "standard input", format)
    path = located(source)
    if path.is_dir():
        return _read_folder(path, source, format)
    if path.exists() or not glob.has_magic(source):
        return _read_file(path, source, format)
    paths = [each for each in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if each.is_file()]
    if not paths:
        raise InputError(f"{source}: got no file of that pattern, wanted results")
    return [results for each in paths for results in _read_file(each, str(each), format)]


def _read_folder(folder: Path, source: str, named: str | None) -> list[SystemResults]:
    """Return the results of all files of a folder that are results. Raise InputError if none is."""
    found: list[SystemResults] = []
    problems: list[InputError] = []
    for path in _visible(folder):
        try:
            found += _read_file(path, str(Path(source) / path.relative_to(folder)), named)
        except NoResultsError as error:
            problems.append(error)
    if len(problems) == 1 and not found:
        raise problems[0]
    if not found:
        got = f"{len(problems)} files without results" if problems else f"no file ending in {', '.join(ENDINGS)}"
        raise InputError(f"{source}: got {got}, wanted results")
    return found


def _visible(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if suffix(path) in ENDINGS and path.is_file() and not is_hidden:
            yield path


def _read_file(path: Path, where: str, named: str | None) -> list[SystemResults]:
    try:
        with open_file(path) as file:
            raw = file.read()
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return _read(raw, where, named)


def _read(raw: bytes, where: str, named: str | None) -> list[SystemResults]:
    content = content_of(raw, where)
    kind = _format_of(content, where, named)
    try:
        unfinished = kind.unfinished(content)
        found = [*kind.read(content, where)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not as {kind.title} writes it: {describe(error)}") from error
    if not found:
        why = f" ({unfinished})" if unfinished else ""
        raise InputError(f"{where}: got no results of {kind.title}{why}, wanted at least one")
    return assembled(found, kind, where, unfinished)


def _format_of(content: Any, where: str, named: str | None) -> Format:
    """Return the format that a content is in. Raise InputError if it is none, or not the one that is named."""
    kind = next((each for each in FORMATS.values() if each.recognises(content)), None)
    if named is not None and not FORMATS[named].recognises(content):
        got = kind.title if kind else _described(content)
        raise InputError(f"{where}: got {got}, wanted {FORMATS[named].title}: {FORMATS[named].mark}")
    if kind is None:
        raise NoResultsError(f"{where}: got {_described(content)}, wanted results: {', '.join(FORMATS)}")
    return FORMATS[named] if named else kind


def _described(content: Any) -> str:
    """Return what a content is that is in no known format."""
    if rows := rows_in(content):
        return f"an object of {short(', '.join(map(str, rows[0])))}" if rows[0] else "an empty object"
    return f"XML of <{content.tag}>" if hasattr(content, "tag") else short(content)
