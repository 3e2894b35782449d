"""The content of a file, by its first bytes: JSON, JSON lines, XML, Parquet, CSV, or the zip of an Inspect log."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from typing import Any
from xml.etree import ElementTree

from evalflows.specs.errors import InputError
from evalflows.store.arrow import pa
from evalflows.store.file_formats import MAX_RATIO, MAX_UNPACKED, in_utf8, parse_json, read_lines, rows_of

ZSTD = 93
"""The number of the compression in zip files."""
_SAMPLE = re.compile(r"samples/.+\.json")


def content_of(raw: bytes, where: str) -> Any:
    """Return the content of a file: a JSON value, a list of rows, or the root of XML.

    Raise InputError, in one line, if it is empty or cannot be read.
    """
    try:
        if raw.startswith(b"PK"):
            return _inspect_log(raw, where)
        if raw.startswith(b"PAR1"):
            return [row for _, row in rows_of(io.BytesIO(raw), ".parquet", where)]
        text = in_utf8(io.BytesIO(raw), where).read().removeprefix(b"\xef\xbb\xbf").strip()
        if not text:
            raise InputError(f"{where}: got an empty file, wanted results")
        if text.startswith(b"<"):
            return ElementTree.fromstring(text)
        if text[:1] not in b"{[":
            return [row for _, row in rows_of(io.BytesIO(text), ".csv", where)]
        return _json(text, where)
    except (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, KeyError) as error:
        raise InputError(f"{where}: not a whole zip file, as its first bytes say: {error}") from error
    except ElementTree.ParseError as error:
        raise InputError(f"{where}: not XML, as its first bytes say: {error}") from error
    except ValueError as error:
        raise InputError(f"{where}: cannot be read: {error}") from error


def _json(text: bytes, where: str) -> Any:
    """Return a JSON value, or the objects of lines: if the first line is one, and there are more."""
    head, _, rest = text.partition(b"\n")
    if rest and text.startswith(b"{"):
        try:
            parse_json(head, where)
        except InputError:
            return parse_json(text, where)
        return [row for _, row in read_lines(io.BytesIO(text), where)]
    return parse_json(text, where)


def _inspect_log(raw: bytes, where: str) -> Any:
    """Return the log in a zip of Inspect's, as its JSON format has it. Raise InputError if it is another zip."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if sum(sizes.values()) > max(MAX_UNPACKED, MAX_RATIO * len(raw)):
            raise InputError(f"{where}: unpacks to more than {MAX_RATIO} times its size, wanted a log of Inspect")
        header = next((name for name in ("header.json", "_journal/start.json") if name in sizes), None)
        if header is None:
            raise InputError(f"{where}: got a zip file without header.json, wanted a log of Inspect (.eval)")
        log = parse_json(_member(archive, header, raw), f"{where}: {header}")
        names = filter(_SAMPLE.fullmatch, sizes)
        samples = [parse_json(_member(archive, name, raw), f"{where}: {name}") for name in names]
    return {"status": "started", **log, "samples": samples}


def _member(archive: zipfile.ZipFile, name: str, raw: bytes) -> bytes:
    """Return a member of a zip file. zipfile itself reads zstd from Python 3.14 on."""
    info = archive.getinfo(name)
    if info.compress_type != ZSTD:
        return archive.read(info)
    lengths = struct.unpack_from("<HH", raw, info.header_offset + 26)  # of the name and of extra fields
    start = info.header_offset + 30 + sum(lengths)
    data = raw[start : start + info.compress_size]
    content: bytes = pa.decompress(data, info.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"bad checksum of {name}")
    return content
