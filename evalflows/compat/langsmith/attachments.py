"""Attachments of examples, as they are stored."""

import base64
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from evalflows.compat.langsmith.schemas import Fields
from evalflows.specs.errors import InputError, short

_STORED = {"mime_type", "base64"}


class AttachmentReader(BytesIO):
    """The bytes of an attachment. Two readers are equal if their contents are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttachmentReader) and self.getvalue() == other.getvalue()

    __hash__ = None  # type: ignore[assignment]


def to_stored(attachments: Mapping[str, Any], where: str, *, may_read_files: bool = False) -> Fields:
    """Return attachments as JSON values: `{"mime_type", "base64"}` for bytes; any other JSON value unchanged.

    Bytes come as (MIME type, bytes), as {"mime_type", "data"}, or as a listed example has them. Raise InputError for
    anything else in their place, and for a path unless `may_read_files`.
    """
    return {
        str(name): _to_stored(attachment, f"{where}: attachment {str(name)!r}", may_read_files)
        for name, attachment in attachments.items()
    }


def opened(attachments: Mapping[str, Any] | None) -> Fields | None:
    """Return attachments as evaluators and targets get them: {"presigned_url", "reader", "mime_type"}.

    The URL is a data URL. Each call makes new readers. Values that are not stored bytes are unchanged.
    """
    if attachments is None:
        return None
    return {name: _opened(attachment) for name, attachment in attachments.items()}


def _to_stored(attachment: Any, where: str, may_read_files: bool) -> Any:
    if isinstance(attachment, tuple) and len(attachment) == 2:
        mime_type, content = attachment
    elif isinstance(attachment, Mapping) and "data" in attachment:
        mime_type, content = attachment.get("mime_type"), attachment["data"]
    elif isinstance(attachment, Mapping) and "reader" in attachment:
        mime_type, content = attachment.get("mime_type"), _whole(attachment["reader"])
    elif isinstance(attachment, tuple | bytes):
        raise InputError(f"{where}: got {short(attachment)}, wanted (MIME type, bytes)")
    else:
        return attachment
    if isinstance(content, Path):
        content = _read(content, where, may_read_files)
    if not isinstance(content, bytes):
        raise InputError(f"{where}: got {type(content).__name__}, wanted bytes")
    return {"mime_type": mime_type, "base64": base64.b64encode(content).decode("ascii")}


def _read(path: Path, where: str, may_read_files: bool) -> bytes:
    if not may_read_files:
        raise InputError(f"{where}: got a path, wanted bytes, or dangerously_allow_filesystem=True")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: {path}: cannot be read: {error.strerror or error}") from error


def _whole(reader: Any) -> Any:
    """Return all bytes of a reader, whatever was read of it before."""
    reader.seek(0)
    return reader.read()


def _opened(attachment: Any) -> Any:
    if not isinstance(attachment, Mapping) or attachment.keys() != _STORED:
        return attachment
    mime_type, text = attachment["mime_type"], attachment["base64"]
    return {
        "presigned_url": f"data:{mime_type or ''};base64,{text}",
        "reader": AttachmentReader(base64.b64decode(text)),
        "mime_type": mime_type,
    }
