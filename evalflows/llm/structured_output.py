"""Request an answer that follows a JSON schema, in one of three forms, of which tagged text is one, and read it.

Pure functions, no calls. What does not follow it is a CallError `bad_answer`: attempts.py asks again, and
engine/judgement.py makes it a failed judgement.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

from evalflows.llm.answers import empty_answer, end_of, is_empty
from evalflows.specs.connections import AnswerForm
from evalflows.specs.errors import CallError, short
from evalflows.specs.files import unique_object
from evalflows.specs.frozen import dataclass
from evalflows.specs.json_schemas import schema_errors, schema_validator
from evalflows.specs.thinking import after_thinking

_TAG = re.compile(r"\[\[([^\[\]:\n]+):([^\[\]\n]*)\]\]")
_AFTER = re.compile(r"[\s*_`.]*")  # allowed after the last tag; not a quotation mark, which would close a quotation
_LABEL = re.compile(r"\W*(?:\w[\w ]{0,39}:\W*)?")  # allowed before a tag: `Verdict:`, `- **Overall score:** `
_FIRST_TAGS = re.compile(rf"(?:{_LABEL.pattern}{_TAG.pattern})+")
_LONGEST_LABEL = 300
_NUMBER = re.compile(r"[+-]?\d{1,100}(\.\d{1,100})?([eE][+-]?\d{1,5})?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}

Schema = dict[str, Any]

_MAX_ERROR_CHARS = 200

_END = re.compile(r"\s*(```)?\s*")
_LINE = re.compile(r"^[ \t]*\{", re.MULTILINE)
_LABELLED_LINE = re.compile(r"^[ \t*_`]*\w[\w ]{0,39}:[ \t*_`]*\{", re.MULTILINE)
_MOST_STARTS, _MOST_PARTS = 50, 5000
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    | (?P<text>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
    | (?P<name>[A-Za-z_]\w*(?=\s*:))
    | (?P<word>(?i:true|false|null|none)\b)
    | (?P<number>[-\d.][-+\d.eE]*)
    | (?P<mark>[{}\[\],:])""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedOutput:
    """The tagged output of one schema."""

    tagged: Mapping[str, Mapping[str, Any]]
    free: str | None
    free_description: str
    tags_first: bool  # the schema names a tag before the free text

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any]) -> "TaggedOutput":
        """Raise ValueError unless the schema is a flat object of booleans, numbers, enums and at most one free text."""
        fields = schema.get("properties") or {} if schema.get("type") == "object" else {}
        free = [name for name, field in fields.items() if _is_free(field)]
        if problem := _problem(fields, free):
            raise ValueError(f"{problem}, wanted an object of booleans, numbers and enums with at most one free text")
        about = fields[free[0]].get("description") if free else None
        return cls(
            tagged={name: field for name, field in fields.items() if name not in free},
            free=free[0] if free else None,
            free_description=f" ({about})" if about else "",
            tags_first=bool(free) and next(iter(fields)) != free[0],
        )

    def instruction(self) -> str:
        lines = "\n".join(f"[[{name}: …]]" for name in self.tagged)
        many = len(self.tagged) > 1
        these, it = ("these lines", "them") if many else ("this line", "it")
        block = f"{these}, with {'values' if many else 'the value'} in place of the dots"
        values = " ".join(f"{name} is {_allowed(field)}." for name, field in self.tagged.items())
        if self.free is None:
            return f"Answer with {block}, and nothing else:\n{lines}\n{values}"
        text = f"the {self.free}{self.free_description}, as plain text"
        if self.tags_first:
            # Only the last tags count, since the free text may quote tags: so the model has to repeat them at the end.
            order = f"Begin your answer with {block}. Then write {text}. Then repeat {these}, with nothing after {it}"
        else:
            order = f"First write {text}. Then end your answer with {block}, and with nothing after {it}"
        return f"{order}:\n{lines}\n{values}"

    def read(self, text: str) -> dict[str, Any]:
        """Return the fields of an answer, from the tags at its end; tags within sentences and quotations do not count.

        Raise ValueError unless the text ends with a tag for each field, whether the schema requires it or not, and if
        another tag that could be the verdict has another value: which is the judge's own cannot be told.
        """
        tags = self._final_tags(text)
        if missing := [name for name in self.tagged if name not in tags]:
            raise ValueError(f"wanted a line [[{missing[0]}: …]] at the end of the answer")
        answer = {name: _value(name, tags[name][2].strip(), field) for name, field in self.tagged.items()}
        self._check_agreement(text, answer)
        start = min(tag.start() for tag in tags.values())
        return answer if self.free is None else answer | {self.free: self._free_text(text, start)}

    def _final_tags(self, text: str) -> dict[str, re.Match[str]]:
        """Return the last tag of each name, if the text ends with the tags and at most labels between them.

        They must start a line or follow a sentence: a text that ends in `it says "[[correct: true]]".` has no tag.
        """
        tags: dict[str, re.Match[str]] = {}
        end, between = len(text), _AFTER
        for tag in reversed([*_TAG.finditer(text)]):
            name = self._name(tag)
            if len(tags) == len(self.tagged) or not name or not between.fullmatch(text, tag.end(), end):
                break
            tags.setdefault(name, tag)
            end, between = tag.start(), _LABEL
        return tags if _ends_line_or_sentence(text[:end]) else {}

    def _check_agreement(self, text: str, answer: Mapping[str, Any]) -> None:
        before, end = "", 0
        for tag in _TAG.finditer(text):
            # The line up to the tag, without other tags; its end is enough, and keeps long lines from taking long.
            before, end = (before + text[end : tag.start()])[-_LONGEST_LABEL:], tag.end()
            name = self._name(tag)
            if name is None or not _ends_line_or_sentence(before):
                continue
            try:
                other = _value(name, tag[2].strip(), self.tagged[name])
            except ValueError:  # such as the dots of the instruction
                continue
            if other != answer[name]:
                raise ValueError(f"{name}: got {other!r} and {answer[name]!r}, wanted one verdict")

    def _name(self, tag: re.Match[str]) -> str | None:
        folded = tag[1].strip().casefold()
        return next((name for name in self.tagged if name.casefold() == folded), None)

    def _free_text(self, text: str, end: int) -> str:
        first = _FIRST_TAGS.match(text, 0, end) if self.tags_first else None
        before, newline, label = text[first.end() if first else 0 : end].rpartition("\n")
        return (before if _LABEL.fullmatch(label) else before + newline + label).strip()


def _ends_line_or_sentence(before: str) -> bool:
    line = before.rpartition("\n")[2]
    if line.lstrip().startswith(">"):  # a quotation
        return False
    return bool(_LABEL.fullmatch(line)) or line.rstrip(" \t*_").endswith((".", "!", "?", "。"))


def _problem(fields: Mapping[str, Any], free: list[str]) -> str | None:
    """Return why an object's fields cannot be written as tags and one free text; None if they can."""
    tagged = {name: field for name, field in fields.items() if name not in free}
    if not tagged:
        return "got no field that can be a tag"
    if unsupported := [name for name, field in tagged.items() if not _is_plain(field)]:
        return f"got {unsupported[0]!r} of another kind"
    if unwritable := [name for name in tagged if not _is_writable(name)]:
        return f"got the name {unwritable[0]!r}, which cannot be written in a tag"
    if len({name.casefold() for name in fields}) < len(fields):
        return "got two names that differ only in case"
    return f"got {len(free)} free texts ({', '.join(free)})" if len(free) > 1 else None


def _is_free(field: Any) -> bool:
    return isinstance(field, dict) and field.get("type") == "string" and not {"enum", "const"} & field.keys()


def _is_plain(field: Any) -> bool:
    """Return whether its values can be written in a tag and read back."""
    if not isinstance(field, dict):
        return False
    if (choices := _choices(field)) is None:
        return field.get("type") in ("boolean", "number", "integer")
    return all(
        isinstance(choice, bool | int | float) or (isinstance(choice, str) and _is_writable(choice))
        for choice in choices
    )


def _is_writable(text: str) -> bool:
    return bool(text) and text == text.strip() and not {*text} & {*"[]\n\r"}


def _choices(field: Mapping[str, Any]) -> list[Any] | None:
    return [field["const"]] if "const" in field else field.get("enum")


def _allowed(field: Mapping[str, Any]) -> str:
    """Describe the values that a field may have."""
    about = f" ({field['description']})" if field.get("description") else ""
    if (choices := _choices(field)) is not None:
        return (
            f"one of {', '.join(json.dumps(choice, ensure_ascii=False) for choice in choices)}, without quotes{about}"
        )
    if field["type"] == "boolean":
        return f"true or false{about}"
    bounds = [f", {word} {field[name]}" for name, word in _BOUNDS.items() if name in field]
    return f"{'a whole number' if field['type'] == 'integer' else 'a number'}{''.join(bounds)}{about}"


def _value(name: str, text: str, field: Mapping[str, Any]) -> Any:
    """Parse a tag's text as a value of the field. Raise ValueError for any other text."""
    if (choices := _choices(field)) is not None:
        by_text = {choice if isinstance(choice, str) else json.dumps(choice): choice for choice in choices}
        folded = [choice for key, choice in by_text.items() if key.casefold() == text.strip('"').casefold()]
        if text in by_text or len(folded) == 1:
            return by_text[text] if text in by_text else folded[0]
    elif field["type"] == "boolean":
        if text.casefold() in _BOOLEANS:
            return _BOOLEANS[text.casefold()]
    elif _NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return int(text) if text.lstrip("+-").isdigit() else number
    raise ValueError(f"{name}: got {short(text)}, wanted {_allowed(field)}")


def with_response_format(request: dict[str, Any], schema: Schema, form: AnswerForm) -> dict[str, Any]:
    """Return a copy of a chat completion's body (model, messages, parameters) that requests an answer of the schema.

    Raise CallError (bad_request) for an invalid schema, for one that the form does not support (a tool call needs an
    object, tagged text a flat object), and for a tool call if the request has its own tools.
    """
    try:
        schema_validator(_cache_key(schema))
    except ValueError as error:
        raise CallError("bad_request", _line(str(error))) from error
    if form == "json_schema":
        named_schema = {"name": _name(schema), "schema": schema}
        return request | {"response_format": {"type": "json_schema", "json_schema": named_schema}}
    if form == "tool_call":
        return request | _tool(request, schema)
    return request | {"messages": _with_instruction(request["messages"], _tagged(_cache_key(schema)).instruction())}


def read_answer(
    message: Mapping[str, Any],
    schema: Schema,
    form: AnswerForm,
    finish_reason: str | None,
    asked: Sequence[Mapping[str, Any]] = (),
) -> Any:
    """Return the answer in a chat completion's message as JSON, converted to the schema and validated against it.

    `asked` are the messages that it answers: an object that occurs in them may be a quotation.

    Raise CallError: `truncated` if the answer stopped at the token limit and cannot be read, `empty_answer` if it has
    no text, else `bad_answer`, also if it can be read in two ways. A truncated tagged
    text is never read: its own tags would have come last, so any it contains may be quotations.
    """
    try:
        answer = _converted(_read(message, schema, form, finish_reason, asked), schema)
    except (ValueError, RecursionError) as error:
        if end_of(finish_reason) == "truncated":
            raise CallError("truncated", "the answer was cut off at the token limit and cannot be read") from error
        if is_empty(message):
            raise empty_answer(message, finish_reason) from error
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallError("bad_answer", _line(problem)) from error
    if violation := _violation(answer, schema):
        raise CallError("bad_answer", _line(f"the answer does not match the schema: {violation}"))
    return answer


def _read(
    message: Mapping[str, Any],
    schema: Schema,
    form: AnswerForm,
    finish_reason: str | None,
    asked: Sequence[Mapping[str, Any]],
) -> Any:
    content = (message.get("content") or "").strip()
    if form == "tool_call":
        name = _name(schema)
        if calls := _arguments(message, name):
            return _only([_json_answer(arguments.strip(), schema, finish_reason, asked) for arguments in calls])
        try:  # some models ignore the tool, and answer in their text
            return _json_answer(content, schema, finish_reason, asked)
        except ValueError:
            called = [
                short(call["function"].get("name")) for call in message.get("tool_calls") or [] if "function" in call
            ]
            got = f"a call of {called[0]}" if called else short(content)
            raise ValueError(f"got {got}, wanted a call of the tool {name!r}") from None
    if form == "json_schema":
        return _json_answer(content, schema, finish_reason, asked)
    if end_of(finish_reason) == "truncated":
        raise ValueError("cut off")
    return _tagged(_cache_key(schema)).read(content)


def _json_answer(
    content: str, schema: Schema, finish_reason: str | None, asked: Sequence[Mapping[str, Any]] = ()
) -> Any:
    """Read a text that is JSON as a whole, behind the model's thinking, or with prose. Some encode it twice."""
    behind = after_thinking(content)
    for text in (content, *behind):
        with suppress(ValueError):
            answer = _json(_unfenced(text))
            return _json(answer) if isinstance(answer, str) and schema.get("type") == "object" else answer
    if end_of(finish_reason) != "truncated" and (found := _in_prose(behind[0] if behind else content, schema, asked)):
        return found
    return _json(_unfenced(content))  # raises the error of the whole text


def _in_prose(text: str, schema: Schema, asked: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the object of the schema that a text with prose gives on lines of its own; None if there is none.

    What stands before the end may be a quotation. So an object with text after it, or on the line of its label
    (`Verdict: {…}`), counts only if the question does not have it. Raise ValueError if objects of the schema on lines
    of their own say different things: which is the judge's own cannot be told.
    """
    for starts in (_LINE, _LABELLED_LINE):
        found = [
            (converted, start, end)
            for value, start, end in _objects(text, starts)
            if _violation(converted := _converted(value, schema), schema) is None
        ]
        if not found:
            continue
        answer = _only([value for value, _, _ in found])
        is_last = starts is _LINE and _END.fullmatch(text, found[-1][2]) is not None
        own = is_last or any(_ends_line(text, end) and not _occurs(text[start:end], asked) for _, start, end in found)
        return answer if own else None
    return None


def _objects(text: str, starts: re.Pattern[str]) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the objects at these starts, and where they begin and end; none inside another."""
    end = tried = 0
    for start in starts.finditer(text):
        if start.end() <= end:
            continue
        if (tried := tried + 1) > _MOST_STARTS:  # each failed one takes time
            raise ValueError(f"got more than {_MOST_STARTS} objects, wanted one")
        with suppress(ValueError, RecursionError):
            value, end = _object_at(text, start.end() - 1)
            yield value, start.end() - 1, end


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the object that begins there, and where it ends. Raise ValueError unless it is one."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except ValueError:
        as_json, end = _rewritten(text, start)
        value = _json(as_json)
    return value, end


def _rewritten(text: str, start: int) -> tuple[str, int]:
    """Return the object that begins there as JSON, and where it ends.

    It may be written as Python or JavaScript would: with single quotes, names without quotes, True and None, comments,
    and a comma after the last value. Nothing is added that is not there. Raise ValueError for anything else.
    """
    parts: list[str] = []
    depth, position = 0, start
    while depth or not parts:
        token = _TOKEN.match(text, position)
        if token is None or len(parts) == _MOST_PARTS:
            raise ValueError(f"wanted JSON: got {short(text[position : position + 40])} in it")
        position, token_text = token.end(), token[0]
        match token.lastgroup:
            case "text":
                parts.append(_in_double_quotes(token_text[1:-1]))
            case "name":
                parts.append(json.dumps(token_text))
            case "word":
                parts.append(_WORDS[token_text.casefold()])
            case "number" | "mark":
                if token_text in "}]" and parts[-1] == ",":
                    parts.pop()
                parts.append(token_text)
                depth += (token_text in "{[") - (token_text in "}]")
    return " ".join(parts), position


def _in_double_quotes(inside: str) -> str:
    return '"' + re.sub(r"\\.|\"", lambda escape: {"\\'": "'", '"': '\\"'}.get(escape[0], escape[0]), inside) + '"'


def _only(values: Sequence[Any]) -> Any:
    """Return what all values say. Raise ValueError if they differ."""
    if others := [value for value in values if value != values[0]]:
        raise ValueError(f"got {short(values[0])} and {short(others[0])}, wanted one verdict")
    return values[0]


def _ends_line(text: str, end: int) -> bool:
    return not text[end:].partition("\n")[0].strip(" \t\r`")


def _occurs(part: str, asked: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the messages have a text, however it is quoted there."""
    said = json.dumps([message.get("content") for message in asked], ensure_ascii=False)
    return _unquoted(part) in _unquoted(said)


def _unquoted(text: str) -> str:
    return re.sub(r"\\+[nrt]|[\s\\\"']", "", text)


def _converted(value: Any, schema: Any) -> Any:
    """Return an answer with the schema's values in place of texts that stand for them, such as "yes" and "4".

    Fields are left out that the schema does not allow, unless one differs from an allowed one only in case, and those
    that are null in place of missing, as strict schemas have them.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, dict) and isinstance(fields := schema.get("properties"), dict):
        is_open, folded = schema.get("additionalProperties") is not False, {name.casefold() for name in fields}
        required = schema.get("required", ())
        return {
            name: _converted(item, fields.get(name))
            for name, item in value.items()
            if (is_open or name in fields or name.casefold() in folded)
            and (item is not None or name in required or name not in fields or _takes_null(fields[name]))
        }
    if isinstance(value, list):
        return [_converted(item, schema.get("items")) for item in value]
    if isinstance(value, str) and _is_plain(schema) and value not in (_choices(schema) or ()):
        with suppress(ValueError):
            return _value("", value.strip(), schema)
    return value


def _takes_null(field: Any) -> bool:
    try:
        return not isinstance(field, dict) or not schema_errors(None, _cache_key(field))
    except ValueError:  # a reference into the whole schema
        return True


def _tool(request: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    if own := [name for name in ("tools", "tool_choice") if request.get(name)]:
        raise CallError("bad_request", f"answer_form tool_call: got {own[0]}, wanted none together with a schema")
    if schema.get("type") != "object":
        got = short(schema.get("type"))
        raise CallError("bad_request", f"answer_form tool_call: got a schema of type {got}, wanted 'object'")
    name = _name(schema)
    description = str(schema.get("description", "Give the answer."))
    tool = {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
    return {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": name}}}


def _name(schema: Schema) -> str:
    """Return the schema's title, reduced to the characters allowed in the names of tools and schemas."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", "answer")))[:64] or "answer"


def _arguments(message: Mapping[str, Any], name: str) -> list[str]:
    """Return the arguments of each call of the tool."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or []]
    return [
        function["arguments"]
        for function in functions
        if function.get("name") == name and isinstance(function.get("arguments"), str)
    ]


def _unfenced(text: str) -> str:
    """Remove a Markdown fence around the whole text."""
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    inside = text[3:-3]
    return inside[4:] if inside[:4].lower() == "json" else inside


def _json(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise ValueError(f"got {short(text)}, wanted JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _finite(digits: str) -> float:
    return number if math.isfinite(number := float(digits)) else _refuse(digits)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=unique_object)


def _with_instruction(messages: Sequence[Mapping[str, Any]], instruction: str) -> list[dict[str, Any]]:
    """Return the messages with an instruction appended to the last user message."""
    copies = [dict(message) for message in messages]
    last = next((message for message in reversed(copies) if message.get("role") == "user"), None)
    if last is None:
        return [*copies, {"role": "user", "content": instruction}]
    content = last.get("content") or ""
    parts = isinstance(content, list)
    last["content"] = [*content, {"type": "text", "text": instruction}] if parts else f"{content}\n\n{instruction}"
    return copies


@lru_cache(maxsize=64)
def _tagged(schema_text: str) -> TaggedOutput:
    try:
        return TaggedOutput.from_schema(json.loads(schema_text))
    except ValueError as error:
        raise CallError("bad_request", _line(f"answer_form text: {error}")) from error


def _violation(answer: Any, schema: Schema) -> str | None:
    from jsonschema.exceptions import best_match  # late: it takes a tenth of a second to import

    try:
        error = best_match(iter(schema_errors(answer, _cache_key(schema))))
    except ValueError as unusable:
        raise CallError("bad_request", _line(str(unusable))) from unusable
    except RecursionError:
        return "nested too deeply"
    return None if error is None else f"{error.json_path}: {error.message}"


def _cache_key(schema: Schema) -> str:
    """Return the schema as text. The order of fields is kept, since it decides what the model writes first."""
    return json.dumps(schema)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_ERROR_CHARS else line[: _MAX_ERROR_CHARS - 1] + "…"
