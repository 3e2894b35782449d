"""Texts are rendered as people read them, and can do nothing on a page."""

import json
import re

from evalflows.dashboard.texts import markdown, rendered

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def shown(value: object, most: int = 1000, **given: object) -> str:
    return str(rendered(json.dumps(value), most, **given))  # type: ignore[arg-type]


def test_markdown_is_rendered_and_code_is_coloured() -> None:
    text = "# Steps\n1. **do** it\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n\n"
    text += "```python\ndef f(): return '<b>'\n```\n    not code\nnor\n---"
    html = markdown(text, 1000)
    assert '<p class="heading">Steps</p>' in html and "<strong>do</strong>" in html
    assert '<td class="right">1</td>' in html and "style=" not in html
    assert '<span class="c-k">def</span>' in html and "&lt;b&gt;" in html
    assert "not code<br />" in html and "<h" not in html.replace("<hr", "")
    assert "…" not in html and "4 more characters" in markdown("x" * 1004, 1000)


def test_nothing_in_a_text_acts_on_the_page() -> None:
    text = (
        "<script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3)) [b](data:text/html,x) "
        '[c](https://evil.test/"onmouseover=alert(4)) ![d](https://evil.test/track.png) [e](//evil.test) '
        "[f](http://[) \x1b[31m \u202e <https://evil.test/?<svg/onload=1>\n\n<iframe src=x>\n\n"
        "```<b>\n</code></pre><script>"
    )
    html = markdown(text, 10_000)
    tags = set(re.findall(r"<(/?[a-z0-9]+)", html))
    assert {tag.removeprefix("/") for tag in tags} <= {"div", "p", "a", "span", "br", "pre", "code"}
    assert set(re.findall(r'href="(\w+):', html)) <= {"http", "https"}
    assert '<a rel="noopener noreferrer nofollow"' in html
    assert "(https://evil.test/" in html, "a link says where it leads"
    assert "\\x1b" in html and "\\u202e" in html and " on" not in re.sub(r">[^<]*<", "><", html)
    unlinked = markdown(text, 10_000, has_links=False)
    assert "<a" not in unlinked and "(https://evil.test/" in unlinked
    svg = "data:image/svg+xml;base64,PHN2Zz4="
    assert "<img" not in shown({"x": svg, "y": {"image_url": {"url": "https://evil.test/a.png"}}, "z": {"url": svg}})
    assert "<img" not in shown({"mime_type": "image/png", "data": 'x" onerror="alert(1)'})


def test_chats_calls_json_and_images_are_shown_as_such() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"user": "a", "n": 2}'}}
    see = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    messages = [{"role": "user", "content": see}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "c1", "content": '{"found": true}'}]
    html = shown({"messages": messages})
    assert re.findall(r'class="bubble (\w+)"', html) == ["user", "assistant", "tool"]
    assert f'src="{PIXEL}"' in html and "find(user=&#34;a&#34;, n=2)" in html
    assert re.search(r'class="field">found</span> <span class="text" dir="auto">true<', html), "JSON in a text"
    folded = shown({"messages": [*messages, messages[0]]}, n_alike=1)
    assert "<summary" in folded and ">find<" in folded and "alike" not in folded, "a message is no beginning"
    alike = shown({"messages": [*messages, *messages]}, n_alike=3)
    assert ">3 messages alike<" in alike and alike.count('class="bubble') == 6
    failed = [messages[1], messages[2] | {"content": "error: no"}]
    assert ">find: 1 failed<" in shown(
        {"messages": failed, "invalid_trials": [{"verdict": "gave_up", "comment": "<b>"}]}
    )
    invalid = shown({"messages": [], "invalid_trials": [{"verdict": "gave_up", "comment": "<b>"}]})
    assert "invalid trial: gave_up (&lt;b&gt;)" in invalid
    tree = shown({"a": {"b": "x" * 300}, "c": [1], "d": None, "pic": {"mime_type": "image/png", "data": "AAAA"}})
    assert '"data:image/png;base64,AAAA"' in tree
    assert "<details><summary>" in shown({"n": 1, "a": {"b": {"c": "x" * 300}}})
    assert shown({"a": 1, "b": 2}).count('class="field"') == 2 and 'class="field"' not in shown({"answer": "x"})


def test_whatever_is_stored_is_shown_and_cut() -> None:
    for odd in (5, "x", {"a": 1}, [5, None]):
        assert "bubble user" in shown({"role": "user", "content": "hi", "tool_calls": odd})
    long = {"role": "user", "content": None, "more": "x" * 5000, "tool_calls": [{"name": "f", "arguments": "y" * 5000}]}
    html = shown([long])
    assert len(html) < 4000 and html.count("more characters") == 2
    nested = "[" * 5000 + "]" * 5000
    assert "9,000 more characters" in str(rendered(nested, 1000))


def test_raw_texts_are_as_they_were_given() -> None:
    html = shown({"messages": [{"role": "user", "content": "**a**"}]}, is_raw=True)
    assert "bubble" not in html and "&#34;**a**&#34;" in html and "<strong>" not in html
    assert ">**a**  b<" in markdown("**a**  b", 100, is_raw=True)


def test_arabic_has_its_direction_and_keeps_its_marks() -> None:
    html = markdown("مرحبا\u200f (Evalflows)!", 100)
    assert 'dir="auto"' in html and "\u200f" in html and "\\u200f" not in html
