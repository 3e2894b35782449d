"""The content of a file, by its first bytes: JSON, JSON lines, XML, Parquet, CSV, or the zip of an Inspect log."""

import io
import struct
import zipfile
import zlib
from typing import Any
from xml.etree import ElementTree

from evalflows.specs.errors import InputError
from evalflows.store.arrow import pa
from evalflows.store.file_formats import MAX_RATIO, MAX_UNPACKED, in_utf8, parse_json, read_lines, rows_of

_ZSTD = 93  # the compression, in zip files


def content_of(raw: bytes, where: str) -> Any:
    """Return the content of a file: a JSON value, rows, or the root of XML under its name.

    Raise InputError, in one line, if it is empty or cannot be read.
    """
    try:
        if raw.startswith(b"PK\x03\x04"):
            return _inspect_log(raw, where)
        if raw.startswith(b"PAR1"):
            return [row for _, row in rows_of(io.BytesIO(raw), ".parquet", where)]
        text = in_utf8(io.BytesIO(raw), where).read().removeprefix(b"\xef\xbb\xbf").strip(b"\r\n ")
        if text.startswith(b"<"):
            root = ElementTree.fromstring(text)
            return {root.tag: root}
    except (SyntaxError, zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError) as error:
        raise InputError(f"{where}: cannot be read: {error}") from error  # XML's is a SyntaxError
    if not text:
        raise InputError(f"{where}: got an empty file, wanted results")
    if text[:1] not in b"{[":
        return [row for _, row in rows_of(io.BytesIO(text), ".csv", where)]
    head, _, rest = text.partition(b"\n")
    is_document = not (head.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{"))
    return parse_json(text, where) if is_document else [row for _, row in read_lines(io.BytesIO(text), where)]


def _inspect_log(raw: bytes, where: str) -> Any:
    """Return the log in a zip of Inspect's, as its JSON format has it. Raise InputError if it is another zip."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if sum(info.file_size for info in members.values()) > max(MAX_UNPACKED, MAX_RATIO * len(raw)):
            raise InputError(f"{where}: unpacks to more than {MAX_RATIO} times its size, wanted a log of Inspect")
        header = members.get("header.json", members.get("_journal/start.json"))
        if header is None:
            raise InputError(f"{where}: got a zip file without header.json, wanted a log of Inspect (.eval)")
        parts = [header, *(info for name, info in members.items() if name.startswith("samples/"))]
        log, *samples = (parse_json(_unpacked(archive, info, raw), f"{where}: {info.filename}") for info in parts)
    return {"status": "started", **log, "samples": samples}


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, raw: bytes) -> bytes:
    """Return the content of a member of a zip file. zipfile itself reads zstd from Python 3.14 on."""
    if info.compress_type != _ZSTD:
        return archive.read(info)
    lengths = struct.unpack_from("<HH", raw, info.header_offset + 26)  # of the name and of extra fields
    packed = raw[info.header_offset + 30 + sum(lengths) :][: info.compress_size]
    return bytes(pa.decompress(packed, info.file_size, codec="zstd", asbytes=True))
