"""Passages of documents (Markdown, text, HTML, PDF), cut at headings and paragraphs."""

import logging
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

from evalflows.specs.errors import InputError, describe
from evalflows.specs.escaping import print_note
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.store.file_formats import in_utf8, open_file

ENDINGS = (".md", ".markdown", ".txt", ".html", ".htm", ".pdf")
LONGEST, SHORTEST = 2_000, 300
"""Characters of a passage, and of the least before a heading begins another one."""

_LONG = re.compile(rf".{{1,{LONGEST}}}(?:\s|\Z)|.{{{LONGEST}}}", re.DOTALL)
_HEADING = re.compile(r"#{1,6}\s|[^\n]+\n(?:=+|-{3,})\s*(?:\n|\Z)")
_BLANK = re.compile(r"\n\s*\n(?:\s*\n)*|\n(?=#{1,6}\s)")
_WORD = re.compile(r"[^\W_]+")
_BLOCK = re.compile(
    "address|article|aside|blockquote|br|d[dlt]|div|figure|footer|form|h[1-6r]|header|li|main|nav|ol|p|pre|section|table|"
    "title|tr|ul"
)
_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg"))


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document."""

    id: str  # its document's path, #, and its number there, from 1
    source: str
    text: str

    def quoted(self, quote: str) -> str | None:
        """Return the words of a quotation as they stand here, whatever its case, blanks and marks; None without."""
        words = _WORD.findall(quote)
        found = re.search(r"[\W_]+".join(map(re.escape, words)), self.text, re.IGNORECASE) if words else None
        return found and found[0]


def read_passages(paths: Sequence[str]) -> list[Passage]:
    """Return the passages of documents, and of all those in folders, whose hidden files are left out.

    A file of a folder that has no text is left out with a note. Raise InputError for a named one that has none or
    cannot be read, and if there is no document at all.
    """
    passages = list[Passage]()
    for path in paths:
        place = located(path)
        if not place.is_dir():
            passages += _passages(place, path)
            continue
        found = [file for file in sorted(place.rglob("*")) if file.suffix.lower() in ENDINGS and file.is_file()]
        for file in found:
            if any(part.startswith(".") for part in file.relative_to(place).parts):
                continue
            try:
                passages += _passages(file, file.as_posix())
            except InputError as error:
                print_note(f"left out: {error}")
    if not passages:
        raise InputError(f"{', '.join(paths)}: got no text, wanted documents: {', '.join(ENDINGS)}")
    return passages


def _passages(path: Path, name: str) -> list[Passage]:
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{name}: got no document, wanted {', '.join(ENDINGS)}, or a dataset's file of examples")
    try:
        text = _pdf_text(path, name) if path.suffix.lower() == ".pdf" else _text(path, name)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error
    if not _WORD.search(text):
        raise InputError(f"{name}: got an empty document, wanted text in it")
    return [Passage(f"{name}#{number}", name, cut) for number, cut in enumerate(_cut(text), start=1)]


def _text(path: Path, name: str) -> str:
    with open_file(path) as file:
        content = in_utf8(file, name).read()
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8: {error.reason} at byte {error.start}") from error
    if path.suffix.lower() not in (".html", ".htm"):
        return text
    reader = _Html()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


def _pdf_text(path: Path, name: str) -> str:
    try:
        from pypdf import PdfReader  # late, as it belongs to an extra
    except ImportError:
        raise InputError(f"{name}: PDF needs pip install 'evalflows[documents]'") from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it mends is no error of ours
    try:
        pages = [page.extract_text() for page in PdfReader(path).pages]
    except OSError:
        raise
    except Exception as error:  # of a damaged or encrypted file, which pypdf reports in many ways
        raise InputError(f"{name}: cannot be read as PDF: {describe(error)}") from error
    if not any(map(_WORD.search, pages)):
        raise InputError(f"{name}: got pages without text, wanted text: a scan needs OCR first")
    return "\n\n".join(pages)


def _cut(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most LONGEST characters: whole paragraphs, with their headings if these fit."""
    piece = ""
    for paragraph in filter(None, map(str.strip, _BLANK.split(text))):
        is_new = bool(_HEADING.match(paragraph)) and len(piece) >= SHORTEST
        if piece and (is_new or len(piece) + len(paragraph) + 2 > LONGEST):
            yield piece
            piece = ""
        piece = f"{piece}\n\n{paragraph}".strip()
        if len(piece) > LONGEST:
            *whole, piece = map(str.strip, _LONG.findall(piece))
            yield from filter(None, whole)
    if piece:
        yield piece


class _Html(HTMLParser):
    """The text that a page shows, with a blank line between its blocks, and headings as in Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self._hidden = list[str](), 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in _UNSEEN
        if _BLOCK.fullmatch(tag):
            self.parts.append("\n\n" + ("#" * int(tag[1]) + " " if tag[0] == "h" and tag[1:].isdigit() else ""))

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _UNSEEN and self._hidden > 0
        if _BLOCK.fullmatch(tag):
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))
