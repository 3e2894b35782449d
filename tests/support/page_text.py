"""What a page says: its words, links and tables, without an HTML library."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Seen(HTMLParser):
    """A page that was parsed."""

    links: list[tuple[str, str]] = field(default_factory=list)  # text and address
    rows: list[list[str]] = field(default_factory=list)  # texts of the cells of all tables
    classes: list[list[str]] = field(default_factory=list)  # classes of the cells
    tags: list[str] = field(default_factory=list)
    fields: list[dict[str, str | None]] = field(default_factory=list)  # attributes of inputs and options
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._link: tuple[str, int] | None = None

    @property
    def text(self) -> str:
        return squeezed(" ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "a":
            self._link = (given.get("href") or "", len(self.words))
        if tag == "tr":
            self.rows.append([])
            self.classes.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self.classes[-1].append(given.get("class") or "")
        if tag in ("input", "option"):
            self.fields.append({"tag": tag, **given})
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._link is not None:
            address, begin = self._link
            self.links.append((squeezed(" ".join(self.words[begin:])), address))
            self._link = None
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "title" in self._open[1:]:  # of a chart
            return
        self.words.append(data)
        if self.rows and self.rows[-1] and "table" in self._open:
            self.rows[-1][-1] = squeezed(self.rows[-1][-1] + " " + data)


def seen(html: str) -> Seen:
    page = Seen()
    page.feed(str(html))  # what is added to Markup would be escaped
    return page


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
