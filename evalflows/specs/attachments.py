"""Pictures, sounds and PDFs: their types, known by their first bytes; how rows refer to content that the store has
once; and the content parts of messages that hold one, in OpenAI's protocol."""

import base64
import binascii
import hashlib
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from evalflows.specs.errors import InputError, short
from evalflows.specs.frozen import dataclass

Modality = Literal["image", "audio", "file"]
"""What a content part holds, as OpenAI names it."""

MAX_BYTES = 20_000_000
"""Most bytes of one content."""


class MediaType(NamedTuple):
    """What is sent as which part, the endings of its names, and how its content begins."""

    modality: Modality
    endings: tuple[str, ...]
    start: re.Pattern[bytes]


TYPES: Mapping[str, MediaType] = {
    "image/png": MediaType("image", (".png",), re.compile(rb"\x89PNG\r\n\x1a\n")),
    "image/jpeg": MediaType("image", (".jpg", ".jpeg"), re.compile(rb"\xff\xd8\xff")),
    "image/gif": MediaType("image", (".gif",), re.compile(rb"GIF8[79]a")),
    "image/webp": MediaType("image", (".webp",), re.compile(rb"RIFF....WEBP", re.DOTALL)),
    "audio/wav": MediaType("audio", (".wav",), re.compile(rb"RIFF....WAVE", re.DOTALL)),
    "audio/mpeg": MediaType("audio", (".mp3",), re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]")),
    "application/pdf": MediaType("file", (".pdf",), re.compile(rb"%PDF-")),
}
"""The types that models take. A library that tells types apart knows hundreds, and some by their names only."""

WANTED = "PNG, JPEG, GIF, WebP, WAV, MP3 or PDF"
FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}
"""OpenAI's names of the types of sounds."""
_OTHER_NAMES = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
}

PARTS: Mapping[str, tuple[str, str]] = {
    "image_url": ("image_url", "url"),
    "input_audio": ("input_audio", "data"),
    "file": ("file", "file_data"),
}
"""The types of content parts: the field that holds the content, and its field within that."""

_REFERENCE = re.compile(
    r"attachment:(?P<media_type>[a-z]+/[a-z]+)(?:;name=(?P<name>[\w.%~-]+))?;size=(?P<size>[0-9]+)"
    r";sha256=(?P<digest>[0-9a-f]{64})"
)
_QUOTED_REFERENCE = re.compile(rf'("data":)?"{_REFERENCE.pattern}"')
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+=-]+)*;base64,([A-Za-z0-9+/=\s]*)\Z")
_DATA_URL_WITHIN = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/]+=*)")
_QUOTED_CONTENT = re.compile(
    r'"data:(?P<media_type>[\w.+-]+/[\w.+-]+)(?:;[\w.+=-]+)*;base64,(?P<content>[A-Za-z0-9+/]+=*)"'
    r'|(?P<before>"input_audio":\{"data":)"(?P<sound>[A-Za-z0-9+/]+=*)"'
)
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{16,}=*\s*\Z")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A content, by its hash. As a text, it is what stands in rows in place of the content."""

    media_type: str
    size: int
    digest: str  # the SHA-256 of its bytes, in hexadecimal digits
    name: str | None = None

    @property
    def modality(self) -> Modality:
        return TYPES[self.media_type].modality

    def __str__(self) -> str:
        named = f";name={quote(self.name, safe='')}" if self.name else ""
        return f"attachment:{self.media_type}{named};size={self.size};sha256={self.digest}"

    @property
    def label(self) -> str:
        """Its name and size, for people and judges."""
        size = f"{self.size / 1000:.0f} kB" if self.size >= 1000 else f"{self.size} bytes"
        return f"{self.name or self.media_type}, {size}"


class Content(NamedTuple):
    """A content: what refers to it, and its bytes as base64."""

    attachment: Attachment
    base64: str

    @property
    def url(self) -> str:
        return data_url(self.attachment, self.base64)


def data_url(attachment: Attachment, content: str) -> str:
    return f"data:{attachment.media_type};base64,{content}"


def attachment_in(text: object) -> Attachment | None:
    """Return the attachment that a text refers to; None for any other value."""
    found = _REFERENCE.fullmatch(text) if isinstance(text, str) and text.startswith("attachment:") else None
    return None if found is None or found["media_type"] not in TYPES else _attachment(found)


def _attachment(found: re.Match[str]) -> Attachment:
    name = unquote(found["name"]) if found["name"] else None
    size = int(found["size"])
    return Attachment(media_type=found["media_type"], size=size, digest=found["digest"], name=name)


def content_of(data: bytes, said: str | None, name: str | None = None) -> Content:
    """Return bytes as a content. Raise InputError if they are too many, of no known type, or of another than `said`."""
    if len(data) > MAX_BYTES:
        raise InputError(f"got {len(data) / 1e6:.1f} MB, wanted at most {MAX_BYTES // 1_000_000} MB")
    found = next((media_type for media_type, kind in TYPES.items() if kind.start.match(data)), None)
    if found is None or (said is not None and _OTHER_NAMES.get(said, said) != found):
        got = f"content that begins with {data[:8]!r}" if found is None else f"content of the type {found}"
        raise InputError(f"got {got}, wanted {said or WANTED}" + (", as its name says" if name and said else ""))
    attachment = Attachment(media_type=found, size=len(data), digest=hashlib.sha256(data).hexdigest(), name=name)
    return Content(attachment, base64.b64encode(data).decode("ascii"))


def content_of_url(url: object) -> Content | None:
    """Return the content of a data URL; None for any other value. Raise InputError if it is not what the URL says."""
    found = _DATA_URL.match(url) if isinstance(url, str) and url.startswith("data:") else None
    return None if found is None else _decoded(found[2], found[1])


def readable_content(value: object) -> Content | None:
    """Return the content of a data URL; None for any other value, also for one that is not what it says."""
    try:
        return content_of_url(value)
    except InputError:
        return None


def _decoded(text: str, said: str | None) -> Content:
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise InputError(f"not base64: {error}") from error
    return content_of(data, said)


def media_type_of(name: str) -> str | None:
    """Return the type that the ending of a name says; None for another ending."""
    ending = PurePath(name).suffix.lower()
    return next((media_type for media_type, kind in TYPES.items() if ending in kind.endings), None)


class Part(NamedTuple):
    """A content part, the field that holds the content, its key within that, and the text there."""

    whole: Mapping[str, Any]
    field: str
    key: str
    held: str

    def holding(self, text: str) -> Any:
        """Return the part with another text; the same part if it is the same text."""
        if text is self.held:
            return self.whole
        return {**self.whole, self.field: {**self.whole[self.field], self.key: text}}

    @property
    def attachment(self) -> Attachment | None:
        """What it refers to, or holds; None if that is an address, or cannot be read."""
        try:
            content = content_of_url(self.held)
            if content is None and self.field == "input_audio" and _BASE64.match(self.held):
                content = _decoded(self.held, None)
        except InputError:
            return None
        return attachment_in(self.held) if content is None else content.attachment


def part_in(value: Any) -> Part | None:
    """Return a content part; None if a value is none, or one without content, such as a text."""
    names = PARTS.get(kind) if isinstance(value, dict) and isinstance(kind := value.get("type"), str) else None
    if names is None or not isinstance(inner := value.get(names[0]), dict):
        return None
    held = inner.get(names[1])
    return Part(value, *names, held) if isinstance(held, str) else None


def mapped_parts(value: Any, change: Callable[[Part, str], Any], where: str = "") -> Any:
    """Return a value whose content parts, at any depth, are changed, each by its path; itself if none is."""
    if isinstance(value, list):
        items = [mapped_parts(item, change, f"{where}.{number}") for number, item in enumerate(value)]
        return items if any(map(operator.is_not, value, items)) else value
    if not isinstance(value, dict):
        return value
    if part := part_in(value):
        return change(part, where)
    fields = {name: mapped_parts(item, change, f"{where}.{name}") for name, item in value.items()}
    return fields if any(map(operator.is_not, value.values(), fields.values())) else value


Read = Callable[[str], bytes]
"""Returns the bytes of a file that a row names. Raises InputError if it may not, or cannot."""


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds contents in the values of rows, hands each to `keep`, and puts a reference in its place.

    Without `read`, paths stay texts, and so does content that is not what it says: the rows are not a dataset that
    somebody wrote.
    """

    keep: Callable[[Content], None]
    read: Read | None

    def in_messages(self, value: Any, where: str) -> Any:
        """Return a value whose content parts, at any depth, refer to their contents; itself if it has none.

        Raise InputError, which begins with `where`, for a content that cannot be used.
        """
        return mapped_parts(value, self._part, where)

    def in_attachments(self, value: Any, where: str) -> Any:
        """Return an example's attachments, with references in place of data URLs, paths and `{mime_type, base64}`."""
        if isinstance(value, list):
            return [self.in_attachments(item, f"{where}.{number}") for number, item in enumerate(value)]
        if isinstance(value, dict) and value.keys() == {"mime_type", "base64"} and value["mime_type"] in TYPES:
            return self._kept(value, lambda: _decoded(str(value["base64"]), value["mime_type"]), where)
        if isinstance(value, dict):
            return {
                name: self.in_attachments(item, f"{where}.{name}") if _may_be_content(item) else item
                for name, item in value.items()
            }
        return self._of_text(value, where) if _may_be_content(value) else value

    def _part(self, part: Part, where: str) -> Any:
        where = f"{where}.{part.field}.{part.key}"
        if part.field == "input_audio" and _BASE64.match(held := part.held) and media_type_of(held) is None:
            wanted = part.whole[part.field].get("format")
            said = next((media_type for media_type, name in FORMATS.items() if name == wanted), None)
            return part.holding(str(self._kept(held, lambda: _decoded(held, said), where)))
        return part.holding(self._of_text(part.held, where))

    def _of_text(self, text: str, where: str) -> str:
        if text.startswith("data:"):
            return str(self._kept(text, lambda: content_of_url(text), where))
        if self.read is None or _ADDRESS.match(text):
            return text
        read = self.read
        return str(self._kept(text, lambda: content_of(read(text), media_type_of(text), PurePath(text).name), where))

    def _kept(self, value: Any, made: Callable[[], Content | None], where: str) -> Any:
        try:
            content = made()
        except InputError as error:
            if self.read is None:
                return value
            shown = f"{short(value)}: " if isinstance(value, str) and not value.startswith("data:") else ""
            raise InputError(f"{where}: {shown}{error}") from error
        if content is None:
            return value
        self.keep(content)
        return str(content.attachment)


def _may_be_content(value: Any) -> bool:
    """Return whether an attachment is, or lists, a data URL, the name of a file of a known type, or bytes as base64."""
    if isinstance(value, str):
        return value.startswith("data:") or (media_type_of(value) is not None and not _ADDRESS.match(value))
    return isinstance(value, list) or (isinstance(value, dict) and value.keys() == {"mime_type", "base64"})


def may_hold_content(text: str) -> bool:
    """Return whether a JSON text may have content parts that hold one."""
    return any(f'"{name}":' in text for name in PARTS)


def part_of(attachment: Attachment, content: Content | None = None) -> dict[str, Any]:
    """Return the content part that refers to an attachment, or holds its content."""
    url = str(attachment) if content is None else content.url
    if attachment.modality == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if attachment.modality == "audio":
        sound = {"data": url if content is None else content.base64, "format": FORMATS[attachment.media_type]}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": "file", "file": {"filename": attachment.name or "document.pdf", "file_data": url}}


def has_reference(text: str) -> bool:
    """Return whether a JSON text may refer to an attachment."""
    return '"attachment:' in text


Base64 = Callable[[Attachment], str | None]
"""Returns the content of an attachment; None if there is none."""


def opened_text(text: str, content: Base64) -> str:
    """Return canonical JSON text with contents in place of references, except to those without content."""

    def opened(found: re.Match[str]) -> str:
        attachment = _attachment(found)
        given = content(attachment) if found["media_type"] in TYPES else None
        if given is None:
            return found[0]
        is_sound = found[1] is not None and attachment.modality == "audio"
        return f'{found[1] or ""}"{given if is_sound else data_url(attachment, given)}"'

    return _QUOTED_REFERENCE.sub(opened, text) if has_reference(text) else text


def opened_parts(value: Any, content: Base64) -> Any:
    """Return a value with contents in place of the references of its content parts. Raise InputError without one."""

    def opened(part: Part, _: str) -> Any:
        attachment = attachment_in(part.held)
        if attachment is None:
            return part.whole
        given = _given(attachment, content)
        return part.holding(given if part.field == "input_audio" else data_url(attachment, given))

    return mapped_parts(value, opened)


def opened_attachments(attachments: Any, content: Base64) -> Any:
    """Return an example's attachments, with data URLs in place of references. Raise InputError without the content."""
    if isinstance(attachments, dict):
        return {name: opened_attachments(value, content) for name, value in attachments.items()}
    if isinstance(attachments, list):
        return [opened_attachments(value, content) for value in attachments]
    attachment = attachment_in(attachments)
    return attachments if attachment is None else data_url(attachment, _given(attachment, content))


def _given(attachment: Attachment, content: Base64) -> str:
    if (given := content(attachment)) is None:
        raise InputError(f"attachment {attachment.label}: got no content, since it was erased or is in another store")
    return given


def without_contents(text: str) -> str:
    """Return canonical JSON text with references, without names, in place of contents: what a request is known by."""

    def referred(found: re.Match[str]) -> str:
        try:
            content = _decoded(found["content"] or found["sound"], found["media_type"])
        except InputError:
            return found[0]
        return f'{found["before"] or ""}"{content.attachment}"'

    if ";base64," in text or '"input_audio":{"data":"' in text:
        text = _QUOTED_CONTENT.sub(referred, text)
    return re.sub(r'("attachment:[a-z]+/[a-z]+);name=[\w.%~-]+;', r"\1;", text) if has_reference(text) else text


def labelled_text(text: str) -> str:
    """Return a text with the type and size of each data URL within it in place of its content."""

    def label(found: re.Match[str]) -> str:
        try:
            attachment = _decoded(found[2], found[1]).attachment
        except InputError:
            return found[0]
        return f"[{attachment.modality}: {attachment.label}, not shown]"

    return _DATA_URL_WITHIN.sub(label, text) if ";base64," in text else text


def attachments_in(text: str) -> list[Attachment]:
    """Return the attachments that a JSON text refers to, each once."""
    found = _QUOTED_REFERENCE.finditer(text) if has_reference(text) else ()
    return [*dict.fromkeys(_attachment(match) for match in found if match["media_type"] in TYPES)]
