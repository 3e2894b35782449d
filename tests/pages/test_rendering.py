"""Templates escape every text, and show the characters that would not be seen."""

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from evalflows.dashboard import rendering
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Page, Site, render, whole_page
from evalflows.store.store import Store

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31mred\u202egnp.exe\u2066 \ud800 &amp;"
SHOWN = (
    "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt; "
    r"\x1b[31mred\u202egnp.exe\u2066 \ud800 &amp;amp;"
)


@pytest.fixture
def site() -> Site:
    return Site(store=Store(), links=Links())


def from_text(site: Site, source: str, **values: object) -> str:
    template = rendering._environment().from_string('{% import "parts.html" as parts with context %}' + source)
    return template.render(site=site, links=site.links, now=site.now, **values)


def test_a_text_is_escaped_wherever_it_is_shown(site: Site) -> None:
    assert from_text(site, "{{ text }}", text=HOSTILE) == SHOWN
    assert from_text(site, '<a title="{{ text }}">', text='" onclick="x') == '<a title="&#34; onclick=&#34;x">'
    assert SHOWN in from_text(site, "{{ parts.link('/x', text) }}", text=HOSTILE)
    assert SHOWN in whole_page(Page(title=HOSTILE, body=Markup("")), site)
    assert SHOWN in render("problem.html", site, message=HOSTILE)
    assert "&lt;script&gt;" in from_text(site, "{{ parts.preview(text) }}", text='{"a": "<script>", "b": 1}')


def test_the_words_of_two_texts_are_escaped(site: Site) -> None:
    pairs = [("same", "<b>"), ("removed", "<i>"), ("added", "<u>")]
    shown = from_text(site, "{{ parts.words(pairs) }}", pairs=pairs)
    assert "&lt;b&gt;<del>&lt;i&gt;</del><ins>&lt;u&gt;</ins>" in shown


def test_a_missing_value_is_a_dash_and_a_misspelt_one_an_error(site: Site) -> None:
    assert from_text(site, "{{ value }}", value=None) == "-"
    assert from_text(site, "{{ value }}", value=0) == "0"
    with pytest.raises(UndefinedError):
        from_text(site, "{{ valeu }}", value=1)


def test_a_long_text_is_clipped_and_says_by_how_much(site: Site) -> None:
    shown = from_text(site, "{{ parts.preview(text, most=10) }}", text='{"answer": "' + "x" * 1_000_000 + '"}')
    assert "xxxxxxxxxx<span" in shown
    assert "999,990 more characters" in shown
    assert len(shown) < 1000


def test_commands_in_messages_are_shown_as_code(site: Site) -> None:
    shown = from_text(site, "{{ text | coded }}", text="none yet: `evalflows run <SPEC>` makes one; a ` alone stays")
    assert shown == "none yet: <code>evalflows run &lt;SPEC&gt;</code> makes one; a ` alone stays"
    assert from_text(site, "{{ text | coded }}", text=HOSTILE) == SHOWN
    assert "<code>evalflows x</code>" in render("problem.html", site, message="use `evalflows x`")
