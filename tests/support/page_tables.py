"""What a page shows: the cells of its tables, and its text."""

from html.parser import HTMLParser

CELLS = ("td", "th")


class _Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text = ""
        self._cell: list[str] | None = None
        self._in_title = False  # of a chart, which is not shown as text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = self._in_title or tag == "title"
        if tag == "tr":
            self.rows.append([])
        if tag in CELLS:
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"
        if tag in CELLS and self._cell is not None:
            self.rows[-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._in_title:
            return
        self.text += data
        if self._cell is not None:
            self._cell.append(data)


def table_rows(html: object) -> list[list[str]]:
    """The rows of all tables, each a list of the cells' texts."""
    parser = _Tables()
    parser.feed(str(html))
    return parser.rows


def shown_text(html: object) -> str:
    """All text, with one space for each run of spaces."""
    parser = _Tables()
    parser.feed(str(html))
    return " ".join(parser.text.split())
