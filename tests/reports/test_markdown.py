"""Texts from outside are shown in Markdown as they are: no image is fetched, and nothing is a link or formatted."""

import re
from html.parser import HTMLParser

import mistune
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from evalflows.reports.formats import code, escaped, markdown_table

ATTACKS = (
    "![x](http://127.0.0.1:9/x.png)",
    "![x][r]\n\n[r]: http://127.0.0.1:9/x.png",
    "[a](javascript:alert(1))",
    "<img src=http://127.0.0.1:9/x.png>",
    "<img/src='//127.0.0.1:9/x' onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<!-- --><svg onload=alert(1)>",
    "<http://example.com/a>",
    "<me@example.com>",
    "http://example.com/a?b=c&d=e#f",
    "see https://example.com, HTTP://EXAMPLE.COM and ftp://example.com/a",
    "www.example.com and WWW.EXAMPLE.COM/a",
    "me@example.com, mailto:me@example.com, xmpp:me@example.com/a",
    "a | b || c \\| d \\\\| e",
    "`code` ``more`` ```\nfence\n```",
    "~~~mermaid\ngraph TD\n~~~",
    "# heading\n## another",
    "heading\n=======\nanother\n---",
    "* item\n- item\n+ item\n1. item\n2) item",
    "- [ ] task",
    "> quote",
    "    indented code",
    "\tindented code",
    "**bold** __bold__ *it* _it_ ~~gone~~",
    "---\n***\n___",
    "line  \nbreak\\\nbreak",
    "&lt;img&gt; &amp; &#60;b&#62; &copy;",
    "[^1] and [^1]: a note",
    "$x$ $$y$$ :smile: ==mark== H~2~O x^2^ ++ins++",
    "[[wiki]] {{template}} {#id .class} [!NOTE]",
    "\\",
    "ends with \\",
    "0.950 [0.910, 0.990] snake_case_name p<0.001",
    "größe 日本語 🙂",
)
RENDERERS = {
    "CommonMark with tables": MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render,
    "GFM": mistune.create_markdown(
        escape=False, plugins=["url", "table", "strikethrough", "footnotes", "task_lists", "mark", "superscript"]
    ),
}
ADDRESS = re.compile(r"(?:https?|ftp)://|\bwww\.|[-.\w+]@[-\w]|(?:mailto|xmpp):", re.IGNORECASE)
"""What renderers look for in the finished text: remark-gfm, which Prefect's UI uses, does."""


class Page(HTMLParser):
    """The tags and the text of a rendered page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.parts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.parts).replace("\u2060", "").strip()


def shown(text: str) -> str:
    """How a text is to be shown: on one line."""
    return " ".join(text.split())


PLACES = ("{}", "- {}", "## heading\n\n{}\n\nmore", "**{}** x", "<ins>{}</ins> b", "- question: {}", "before {} after")
TOKENS = (
    *("a", "b ", " ", "1.", "2)", "- ", "+ ", "* ", "**", "_", "__", "`", "[", "]", "[1]", "[1, 2]", "(x)", "![", "^"),
    *("<a>", "<", "<!--", "-->", "&amp;", "&#60;", "==", "~~", "|", "\\", "#", "## ", "> ", ": ", ":smile:", "{#"),
    *("$", "x_y", "---", "===", '"', "@", "http://", "javascript:"),
)
MARKUP = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=12).map("".join)
PUNCTUATION = st.text("ab 1!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", min_size=1, max_size=30)


def check(text: str) -> None:
    """The text is shown as it is in every place and stays in its cell, with each renderer."""
    for render in RENDERERS.values():
        for place in PLACES:
            page = Page(str(render(place.format(escaped(text)))))
            assert page.tags <= {"p", "ul", "li", "h2", "strong", "ins"}
            assert shown(text) in page.text
            assert not ADDRESS.search("".join(page.parts))
        page = Page(str(render(markdown_table(("one", "two"), [(text, "next"), ("last", text)]))))
        assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td"} and "td" in page.tags
        assert page.text.count(shown(text)) >= 2 and "next" in page.text and "last" in page.text


def test_an_attack_is_shown_as_it_is() -> None:
    for text in ATTACKS:
        check(text)


@settings(max_examples=150, deadline=None)
@given(MARKUP | PUNCTUATION)
def test_any_markup_is_shown_as_it_is_in_every_place(text: str) -> None:
    check(shown(text))


def test_what_no_renderer_acts_on_has_no_backslash() -> None:
    for text in (
        "+0.11 [-0.02, +0.25], p<0.001; 50% [27%, 73%] (36 pairs)",
        'exp-01m85wcw: snake_case_name isn\'t "done"!',
        "What is 14 * 15 - 67? 2 > 1 & C# + Java = {x}",
        "p = 0.043 unadjusted; R&D, C:\\x1b",
    ):
        assert escaped(text) == text


def test_control_characters_are_shown_as_escapes_and_code_and_our_links_as_they_are() -> None:
    page = Page(str(RENDERERS["CommonMark with tables"](escaped("a\x1b[2J\u202eb\x00"))))
    assert page.text == "a\\x1b[2J\\u202eb\\x00"
    for render in RENDERERS.values():
        for text in ("exp-1", "a`b", "``", "`", "![x](http://a)", "<b>", "www.example.com", " a "):
            page = Page(str(render(f"In the shell: {code(text)}")))
            assert page.tags == {"p", "code"} and text.strip() in page.text
        assert "a" in Page(str(render(f"- [this run](http://127.0.0.1/run) {escaped('[x](y)')}"))).tags
