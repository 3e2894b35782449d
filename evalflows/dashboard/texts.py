"""Texts as people read them: Markdown with code, chats as bubbles, tool calls as calls, JSON as a tree, images.

What models and users wrote can do nothing on a page: HTML in it is text, a link names its address and loads nothing by
itself, an image comes from the store, and control characters are shown as escapes.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from evalflows.specs.attachments import attachment_in, part_in
from evalflows.specs.escaping import escaped, json_text
from evalflows.specs.values import is_deep

MOST_CODE = 20_000
"""Characters of a block of code that is coloured."""

MOST_IMAGE = 4_000_000
"""Characters of an image, as base64."""

MOST_CHAT = 2 * MOST_IMAGE
"""Characters of the JSON of messages that are shown as a chat."""

DEEPEST = 8
"""Levels of a tree of JSON; deeper values are text."""

OPEN_BELOW = 200
"""Characters of JSON below which a part of a tree is not folded."""

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DATA_IMAGE = re.compile(rf"data:(?:{'|'.join(_IMAGE_TYPES)});base64,[A-Za-z0-9+/=\s]+\Z")
_NEITHER_CODE_NOR_HEADING = ("code", "lheading", "html_block", "html_inline")
"""Rules of Markdown by which plain text would be misread: indented lines, lines above dashes."""


def rendered(content: str, most: int, *, is_raw: bool = False, has_links: bool = True, n_alike: int = 0) -> Markup:
    """Return JSON as HTML, at most `most` characters of each text.

    If it `is_raw`, texts are shown as they are, and JSON as its text. Unless it `has_links`, addresses are only named.
    Of a chat, the first `n_alike` messages are folded: what it is compared with has them too.
    """
    reader = _Reader(most, is_raw, has_links, n_alike)
    return reader.plain(content) if is_deep(content) else reader.fields(json.loads(content))


def markdown(text: str, most: int, *, is_raw: bool = False, has_links: bool = True) -> Markup:
    """Return a text as HTML, at most `most` characters of it."""
    return _Reader(most, is_raw, has_links).text(text)


class _Reader:
    """Renders one content."""

    def __init__(self, most: int, is_raw: bool, has_links: bool, n_alike: int = 0) -> None:
        self._most, self._is_raw, self._has_links, self._n_alike = most, is_raw, has_links, n_alike

    def fields(self, value: Any) -> Markup:
        """Render the fields of an object with their names; a single field, or another value, without."""
        if not isinstance(value, dict) or not value or _is_message(value) or _image(value):
            return self.value(value)
        if len(value) == 1:
            return self.value(next(iter(value.values())))
        return _join(_tag("div", escape(escaped(name)), "field") + self.value(field) for name, field in value.items())

    def value(self, value: Any) -> Markup:
        if isinstance(value, str):
            return self.text(value)
        if self._is_raw:
            return self.plain(json_text(value, indent=1 if isinstance(value, dict | list) else None))
        if image := _image(value):
            return image
        if (call := _call_of(value)) is not None:
            shown = escape(escaped(call[: self._most])) + self._rest(call)
            return _tag("code", shown, "call text")
        if not isinstance(value, dict | list) or not value:
            return self.plain(json_text(value))
        whole = json_text(value, indent=1)
        if (_is_message(value) or _is_chat(value)) and len(whole) <= MOST_CHAT:
            return self._chat(value if isinstance(value, list) else [value])
        if _are_invalid(value):
            said = (f"invalid trial: {trial['verdict']} ({trial.get('comment') or 'no reason'})" for trial in value)
            return _join(_tag("div", _tag("span", escape(escaped(line)), "badge open")) for line in said)
        return self._tree(value, 0) if len(whole) <= self._most else self.plain(whole)

    def text(self, text: str) -> Markup:
        if self._is_raw:
            return self.plain(text)
        if image := _image(text):
            return image
        if (found := _json_in(text)) is not None:
            return self.value(found)
        environment = {"has_links": self._has_links}
        html = Markup(_parser().render(escaped(text[: self._most]), environment))
        return _tag("div", html + self._rest(text), "text md", dir="auto")

    def plain(self, text: str) -> Markup:
        return _tag("div", escape(escaped(text[: self._most])) + self._rest(text), "text", dir="auto")

    def _rest(self, text: str) -> Markup:
        left_out = len(text) - self._most
        return _tag("span", f" … {left_out:,} more characters", "quiet") if left_out > 0 else Markup("")

    def _chat(self, messages: Sequence[Mapping[str, Any]]) -> Markup:
        """Render messages as bubbles; those of tools between two texts are folded together, and what is alike too."""
        n_alike = self._n_alike if self._n_alike > 1 else 0
        parts = [self._folded(f"{n_alike} messages alike", messages[:n_alike])] if n_alike else []
        for is_work, some in groupby(messages[n_alike:], _is_work):
            run = [*some]
            parts.append(self._folded(_work(run), run) if is_work and len(run) > 1 else _join(map(self._message, run)))
        return _tag("div", _join(parts), "chat")

    def _folded(self, summary: str, messages: Sequence[Mapping[str, Any]]) -> Markup:
        said = _tag("summary", escape(escaped(summary)), "quiet small")
        return _tag("details", said + _join(map(self._message, messages)), "folded")

    def _message(self, message: Mapping[str, Any]) -> Markup:
        role, content = str(message["role"]), message.get("content")
        parts = [_tag("div", escape(escaped(role)), "field")]
        if isinstance(content, list) and content and all(isinstance(part, dict) and "type" in part for part in content):
            parts += map(self._part, content)
        elif content not in (None, ""):
            parts.append(self.value(content))
        known = ["role", "content"]
        if isinstance(calls := message.get("tool_calls"), list):
            parts += map(self.value, calls)
            known.append("tool_calls")
        if rest := {name: value for name, value in message.items() if name not in known and value is not None}:
            parts.append(self.value(rest))
        kind = role if role in ("user", "assistant", "system", "tool") else "other"
        return _tag("div", _join(parts), f"bubble {kind}")

    def _part(self, part: Mapping[str, Any]) -> Markup:
        """Render a part of a message: a text, an image, or another object."""
        if part["type"] in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
            return self.text(part["text"])
        return self.value(dict(part))

    def _tree(self, value: Any, depth: int) -> Markup:
        """Render an object or a list, with long parts folded."""
        named = value.items() if isinstance(value, dict) else enumerate(value)
        return _tag("ul", _join(self._branch(str(name), inner, depth) for name, inner in named), "json")

    def _branch(self, name: str, value: Any, depth: int) -> Markup:
        key = _tag("span", escape(escaped(name)), "field")
        if image := _image(value):
            return _tag("li", key + image)
        if isinstance(value, dict | list) and value and depth < DEEPEST:
            inner, length = self.value(value) if _is_chat(value) else self._tree(value, depth + 1), len(value)
            if len(json_text(value)) < OPEN_BELOW:
                return _tag("li", key + inner)
            unit = "field" if isinstance(value, dict) else "item"
            count = _tag("span", f" {length} {unit}{'' if length == 1 else 's'}", "quiet small")
            return _tag("li", _tag("details", _tag("summary", key + count) + inner))
        text = value if isinstance(value, str) else json_text(value)
        return _tag("li", key + " " + _tag("span", escape(escaped(text)), "text", dir="auto"))


def _json_in(text: str) -> Any:
    """Return the object or list that a text is; None for another text."""
    if (text[:1], text[-1:]) not in (("{", "}"), ("[", "]")) or is_deep(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and bool({"content", "tool_calls"} & {*value})


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_work(message: Mapping[str, Any]) -> bool:
    """Return whether a message only calls tools, or is a tool's result."""
    return message["role"] == "tool" or bool(message.get("tool_calls") and not message.get("content"))


def _work(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return which tools were called, and how many of the calls failed."""
    calls = [call for message in messages for call in message.get("tool_calls") or () if isinstance(call, dict)]
    names = Counter(str((call.get("function") or call).get("name")) for call in calls)
    failed = sum(str(message.get("content")).startswith("error:") for message in messages if message["role"] == "tool")
    called = ", ".join(f"{name} ({number})" if number > 1 else name for name, number in names.items()) or "tools"
    return f"{called}: {failed} failed" if failed else called


def _are_invalid(value: Any) -> bool:
    """Return whether a value is what a conversation keeps of trials that did not count."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(trial, dict) and {*trial} == {"verdict", "comment"} for trial in value)
    )


def _call_of(value: Any) -> str | None:
    """Return a tool call as `name(key=value)`; None if it is none."""
    if not isinstance(value, dict):
        return None
    called = value["function"] if isinstance(value.get("function"), dict) else value
    name, arguments = called.get("name"), called.get("arguments", called.get("args"))
    if not isinstance(name, str) or arguments is None or not {*called} <= {"id", "type", "name", "arguments", "args"}:
        return None
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
    if isinstance(arguments, dict):
        return f"{name}({', '.join(f'{key}={json_text(given)}' for key, given in arguments.items())})"
    return f"{name}({arguments if isinstance(arguments, str) else json_text(arguments)})"


def _image(value: Any) -> Markup | None:
    """Return the image that a data URL is, or that an object holds: as base64 with a media type, or as such a URL. Of
    what refers to a file, return its name and size."""
    part = part_in(value)
    if attachment := attachment_in(value if part is None else part.held):
        return _tag("div", escape(escaped(f"[{attachment.modality}: {attachment.label}]")), "text", dir="auto")
    url = value
    if isinstance(value, dict):
        kind = value.get("mime_type") or value.get("media_type") or value.get("content_type")
        data = value.get("data") or value.get("content")
        url = value.get("image_url") or value.get("url")
        url = url.get("url") if isinstance(url, dict) else url
        if kind in _IMAGE_TYPES and isinstance(data, str):
            url = f"data:{kind};base64,{data}"
    if not isinstance(url, str) or len(url) > MOST_IMAGE or not _DATA_IMAGE.match(url):
        return None
    return Markup('<img class="attached" loading="lazy" alt="attached image" src="{}">').format(re.sub(r"\s", "", url))


def _tag(name: str, content: str | Markup, class_: str = "", *, dir: str = "") -> Markup:  # noqa: A002 (HTML's name)
    attributes = "".join(f' {key}="{value}"' for key, value in (("class", class_), ("dir", dir)) if value)
    return Markup(f"<{name}{attributes}>") + content + Markup(f"</{name}>")


def _join(parts: Any) -> Markup:
    return Markup("").join(parts)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.disable([*_NEITHER_CODE_NOR_HEADING])
    rules: dict[str, Callable[..., str]] = {
        "image": _linked_image,
        "link_open": _link_open,
        "link_close": _link_close,
        "fence": _fence,
        "heading_open": lambda *_: '<p class="heading">',
        "heading_close": lambda *_: "</p>\n",
        "th_open": _cell_open,
        "td_open": _cell_open,
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    parser.validateLink = lambda url: _scheme(url) in ("http", "https", "mailto", "")  # type: ignore[method-assign]
    return parser


def _scheme(address: str) -> str | None:
    """Return the scheme of an address, empty if it is relative to a page that we do not know; None if it is broken."""
    try:
        return urlsplit(address).scheme
    except ValueError:
        return None


def _link_open(_: RendererHTML, tokens: Sequence[Token], index: int, __: Any, environment: dict[str, Any]) -> str:
    """Open a link that tells nobody where it stands."""
    address = str(tokens[index].attrGet("href") or "")
    if not (_scheme(address) and environment["has_links"]):
        return ""
    return f'<a rel="noopener noreferrer nofollow" href="{escape(address)}">'


def _link_close(_: RendererHTML, tokens: Sequence[Token], index: int, __: Any, environment: dict[str, Any]) -> str:
    """Close a link, and say where it leads unless its text does."""
    opened = next(n for n in range(index, -1, -1) if tokens[n].type == "link_open")
    address = str(tokens[opened].attrGet("href") or "")
    text = "".join(token.content for token in tokens[opened + 1 : index])
    said = "" if text == address else f' <span class="quiet small">({escape(address)})</span>'
    return f"{'</a>' if _scheme(address) and environment['has_links'] else ''}{said}"


def _linked_image(_: RendererHTML, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Return an image as its text and its address: nothing is fetched."""
    token = tokens[index]
    return f'{escape(token.content)} <span class="quiet small">(image {escape(str(token.attrGet("src") or ""))})</span>'


def _cell_open(_: RendererHTML, tokens: Sequence[Token], index: int, *__: Any) -> str:
    tag, aligned = tokens[index].tag, str(tokens[index].attrGet("style") or "").rpartition(":")[2]
    return f'<{tag} class="{aligned}">' if aligned in ("left", "right", "center") else f"<{tag}>"


def _fence(_: RendererHTML, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return f'<pre class="code" tabindex="0"><code>{_coloured(token.content, language)}</code></pre>\n'


def _coloured(code: str, language: str) -> str:
    from pygments import highlight  # late: only a page with code needs it
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    if not language or len(code) > MOST_CODE:
        return str(escape(code))
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return str(escape(code))
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="c-")))
