"""Read the results of other harnesses from a file, a folder, a glob or standard input, whatever their format.
The first bytes tell what a file is: JSON, JSON lines, XML, Parquet, CSV, or the zip of an Inspect log."""

import io
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import Any

from evalflows.harnesses import formats
from evalflows.harnesses.assembling import Format, NoResultsError, SystemResults, assembled, has, rows_in
from evalflows.specs.errors import InputError, describe, short
from evalflows.specs.files import located
from evalflows.store import file_formats
from evalflows.store.arrow import pa

_PROMPTFOO = "evalId results | results config shareableUrl | timestamp results stats | provider success vars"
_LANGSMITH = "run_type start_time | run_id key | example_id execution_time"
_LANGFUSE = "timestamp scores observations | timestamp project_id | data meta | traceId source | trace_id source"

FORMATS: Mapping[str, Format] = {
    "promptfoo": Format("promptfoo", _PROMPTFOO, formats.read_promptfoo, repeats=True, is_sparse=True),
    "inspect": Format("Inspect", "eval status", formats.read_inspect),
    "lm-eval": Format("lm-eval", "doc_id filtered_resps | results configs", formats.read_lm_eval),
    "helm": Format("HELM", "instance_id stats", formats.read_helm, is_sparse=True),
    "deepeval": Format("DeepEval", "testCases", formats.read_deepeval, repeats=True),
    "ragas": Format("ragas", "user_input", formats.read_ragas),
    "junit": Format("JUnit XML", "testsuites | testsuite", formats.read_junit),
    "pytest-json": Format("pytest-json-report", "tests exitcode", formats.read_pytest_json),
    "openai-evals": Format("OpenAI evals", "spec", formats.read_openai_evals),
    "mlflow": Format("MLflow", "columns data", formats.read_table),
    "langsmith": Format("LangSmith", _LANGSMITH, formats.read_langsmith, repeats=True),
    "langfuse": Format("Langfuse", _LANGFUSE, formats.read_langfuse, repeats=True),
    "braintrust": Format("Braintrust", "span_id root_span_id", formats.read_braintrust, repeats=True),
    "table": Format("table", "", formats.read_table),
}
"""By the names that `--format` takes, in the order in which they are tried."""

ENDINGS = (*file_formats.READERS, ".eval", ".xml")  # of the files of a folder that are read
_NAMED = 3  # files that a note names
_ZSTD = 93  # the compression, in zip files


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
    if path.exists() or not has_magic(source):
        return _read_file(path, source, format)
    paths = [each for each in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if each.is_file()]
    if not paths:
        raise InputError(f"{source}: no file matches, wanted results")
    return [results for each in paths for results in _read_file(each, str(each), format)]


def _read_folder(folder: Path, source: str, named: str | None) -> list[SystemResults]:
    """Return the results of all files of a folder that are results. Raise InputError if none is."""
    found, others = list[SystemResults](), list[str]()
    problem = InputError(f"{source}: got no file ending in {', '.join(ENDINGS)}, wanted results")
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if (
            file_formats.suffix(path) not in ENDINGS
            or any(part.startswith(".") for part in below.parts)
            or not path.is_file()
        ):
            continue
        try:
            found += _read_file(path, str(Path(source) / below), named)
        except NoResultsError as error:
            problem = error
            others.append(str(below))
    if not found:
        raise problem
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        note = f"{source}: left out as no results: {', '.join(others[:_NAMED])}{more}"
        found[0] = replace(found[0], notes=[*found[0].notes, note])
    return found


def _read_file(path: Path, where: str, named: str | None) -> list[SystemResults]:
    try:
        with file_formats.open_file(path) as file:
            return _read(file.read(), where, named)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _read(raw: bytes, where: str, named: str | None) -> list[SystemResults]:
    content = content_of(raw, where)
    kinds = [FORMATS[named]] if named else FORMATS.values()
    rows = rows_in(content)
    kind = next((each for each in kinds if has(rows[:1], each.marks)), None)
    if kind is None:
        got = f"columns {short(', '.join(rows[0]))}" if rows else short(content)
        wanted = f"{FORMATS[named].title}: {FORMATS[named].marks}" if named else f"results: {', '.join(FORMATS)}"
        raise NoResultsError(f"{where}: got {got}, wanted {wanted}")
    try:
        found = [*kind.read(content, where)]
        results = [*assembled(found, kind, where)] if found else []
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not in the format that {kind.title} writes: {describe(error)}") from error
    if not results:
        raise InputError(f"{where}: got no results of {kind.title}, wanted at least one")
    return results


def content_of(raw: bytes, where: str) -> Any:
    """Return the content of a file: a JSON value, rows, or the root of XML under its name.

    Raise InputError, in one line, if it is empty or cannot be read.
    """
    try:
        if raw.startswith(b"PK\x03\x04"):
            return _inspect_log(raw, where)
        if raw.startswith(b"PAR1"):
            return [row for _, row in file_formats.rows_of(io.BytesIO(raw), ".parquet", where)]
        text = file_formats.in_utf8(io.BytesIO(raw), where).read().removeprefix(b"\xef\xbb\xbf").strip(b"\r\n ")
        if text.startswith(b"<"):
            from xml.etree import ElementTree  # late: few harnesses write XML

            root = ElementTree.fromstring(text)
            return {root.tag: root}
    except (SyntaxError, zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError) as error:
        raise InputError(f"{where}: cannot be read: {error}") from error  # XML's is a SyntaxError
    if not text:
        raise InputError(f"{where}: got an empty file, wanted results")
    if text[:1] not in b"{[":
        return [row for _, row in file_formats.rows_of(io.BytesIO(text), ".csv", where)]
    head, _, rest = text.partition(b"\n")
    is_document = not (head.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{"))
    return (
        file_formats.parse_json(text, where)
        if is_document
        else [row for _, row in file_formats.read_lines(io.BytesIO(text), where)]
    )


def _inspect_log(raw: bytes, where: str) -> Any:
    """Return the log in a zip of Inspect's, as its JSON format has it. Raise InputError if it is another zip."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if sum(info.file_size for info in members.values()) > max(
            file_formats.MAX_UNPACKED, file_formats.MAX_RATIO * len(raw)
        ):
            raise InputError(
                f"{where}: unpacks to more than {file_formats.MAX_RATIO} times its size, wanted a log of Inspect"
            )
        header = members.get("header.json", members.get("_journal/start.json"))
        if header is None:
            raise InputError(f"{where}: got a zip file without header.json, wanted a log of Inspect (.eval)")
        parts = [header, *(info for name, info in members.items() if name.startswith("samples/"))]
        log, *samples = (
            file_formats.parse_json(_unpacked(archive, info, raw), f"{where}: {info.filename}") for info in parts
        )
    return {"status": "started", **log, "samples": samples}


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, raw: bytes) -> bytes:
    """Return the content of a member of a zip file. zipfile itself reads zstd from Python 3.14 on."""
    if info.compress_type != _ZSTD:
        return archive.read(info)
    lengths = struct.unpack_from("<HH", raw, info.header_offset + 26)  # of the name and of extra fields
    packed = raw[info.header_offset + 30 + sum(lengths) :][: info.compress_size]
    return bytes(pa.decompress(packed, info.file_size, codec="zstd", asbytes=True))
