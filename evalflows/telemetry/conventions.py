"""How instrumentations write down conversations with a model. All of them result in OpenAI messages.

The views in SQL find the same (evalflows/store/views.py). The names of single attributes are in
evalflows/specs/attribute_aliases.py.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any

import orjson

from evalflows.specs import attribute_aliases
from evalflows.specs.frozen import dataclass
from evalflows.specs.protocols import Message
from evalflows.store.records import Json
from evalflows.store.trace_records import ObservationRow

KINDS_OF_PARTS = {
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
    "refusal": "refusal",
    **dict.fromkeys(("reasoning", "thinking"), "reasoning"),
    **dict.fromkeys(("tool_call", "tool-call", "tool_use"), "tool_call"),
    **dict.fromkeys(("tool_call_response", "tool-result", "tool_result"), "tool_call_response"),
}
"""What parts of messages are, by the names of OpenTelemetry, OpenAI, Anthropic and the Vercel AI SDK; others are kept
as they came."""
FIELDS_OF_PARTS = {
    **dict.fromkeys(("function_call", "functionCall", "toolUse"), "tool_call"),
    **dict.fromkeys(("function_response", "functionResponse", "toolResult"), "tool_call_response"),
}
TEXTS = ("content", "text", "thinking", "refusal")
IDS = ("id", "toolCallId", "tool_use_id", "toolUseId", "call_id")
NAMES = ("name", "toolName", "tool_name")
ARGUMENTS = ("arguments", "args", "input")
RESULTS = ("response", "result", "output", "content")
TEXT = ("text", "refusal")

OPENAI_ROLES = {
    **dict.fromkeys(("human", "HumanMessage"), "user"),
    **dict.fromkeys(("ai", "AIMessage", "AIMessageChunk", "model"), "assistant"),
    "SystemMessage": "system",
    **dict.fromkeys(("ToolMessage", "FunctionMessage"), "tool"),
    "ChatMessage": "user",
}
"""Other names of roles, as LangChain and Google's models use them."""
ROLES = {*OPENAI_ROLES, "system", "developer", "user", "assistant", "tool", "function"}
KEPT = ("name", "refusal", "reasoning_content")

CONTAINERS = ("messages", "contents", "choices", "generations", "message", "content", "input", "output", "response")
"""Fields of requests and responses in which messages lie, such as those of chat completions, LangChain, Google's models
and the Responses API."""
INSTRUCTIONS = ("system", "system_instruction", "instructions")
"""Fields of requests that are the system's message, beside the others."""

Object = dict[str, Any]

Event = tuple[str, Mapping[str, Any]]
"""Its name, and its attributes or body."""

INPUT, OUTPUT, SYSTEM = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
OF_AGENT = "pydantic_ai.all_messages"


def messages_of_parts(role: str, parts: Sequence[Any]) -> list[Message]:
    """Return a message with parts in OpenAI's form: one message, and one more for each tool's response.

    Content is None where it was not captured: an instrumentation may name the parts and leave out what is in them.
    """
    read = [part for part in map(_part, parts) if part is not None]
    responses = [_response(part) for part in read if part.get("type") == "tool_call_response"]
    others = [part for part in read if part.get("type") != "tool_call_response"]
    return [*([_message(role, others)] if others or not responses else []), *responses]


def _part(part: Any) -> dict[str, Any] | None:
    """Return a part by the names of OpenTelemetry's conventions; None if it is neither text nor an object."""
    if isinstance(part, str):
        return {"type": "text", "content": part}
    if not isinstance(part, Mapping):
        return None
    if "type" not in part:
        return _untyped(part)
    kind = KINDS_OF_PARTS.get(str(part["type"]), part["type"])
    is_text = kind in (*TEXT, "reasoning")
    return {"type": kind, "content": _either(part, TEXTS)} if is_text else {**part, "type": kind}


def _untyped(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of Google's or Amazon's models, whose field says what it is."""
    for name, kind in FIELDS_OF_PARTS.items():
        if isinstance(inner := part.get(name), Mapping):
            return {**inner, "type": kind}
    if isinstance(part.get("text"), str):
        return {"type": "reasoning" if part.get("thought") else "text", "content": part["text"]}
    return dict(part)


def _either(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def tool_call(identity: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a tool call in OpenAI's form. Its arguments are JSON text; None if they were not captured."""
    text = arguments if isinstance(arguments, str) or arguments is None else json.dumps(arguments, ensure_ascii=False)
    return {"id": identity, "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _message(role: str, parts: Sequence[Mapping[str, Any]]) -> Message:
    message: Message = {"role": role, "content": _content([part for part in parts if not _is_aside(part)])}
    reasoning = [part["content"] for part in parts if part.get("type") == "reasoning" and part.get("content")]
    if reasoning:
        message["reasoning_content"] = "\n".join(map(str, reasoning))
    if calls := [part for part in parts if part.get("type") == "tool_call"]:
        message["tool_calls"] = [_call(part) for part in calls]
    return message


def _is_aside(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("reasoning", "tool_call")


def _content(parts: Sequence[Mapping[str, Any]]) -> Any:
    """Return text if there is nothing else, else parts in OpenAI's form; None if nothing was captured."""
    filled = [part for part in parts if part.get("type") not in TEXT or part.get("content") is not None]
    if not filled:
        return None
    if all(part.get("type") in TEXT for part in filled):
        return "\n".join(str(part["content"]) for part in filled)
    texts = ({"type": "text", "text": part["content"]} if part.get("type") in TEXT else dict(part) for part in filled)
    return list(texts)


def _response(part: Mapping[str, Any]) -> Message:
    found = _either(part, RESULTS)
    if isinstance(found, Mapping) and found.keys() == {"type", "value"}:  # of the Vercel AI SDK
        found = found["value"]
    text = found if isinstance(found, str) or found is None else json.dumps(found, ensure_ascii=False)
    return {"role": "tool", "content": text, "tool_call_id": _either(part, IDS)}


def parsed(value: Any) -> Any:
    """Return JSON text that is an object or a list as such; any other value, and other text, as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def messages_of(value: Any) -> list[Message]:
    """Return the messages of a value: a message, a list of them, or an object that contains them; else an empty list.

    A batch, a list of lists, counts by its first conversation.
    """
    value = parsed(value)
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], list):
            return messages_of(value[0])
        return [message for item in value for message in messages_of(item)]
    if not isinstance(value, Mapping):
        return []
    return _messages_in(value)


def _messages_in(value: Mapping[str, Any]) -> list[Message]:
    if isinstance(value.get("parts"), list):
        return messages_of_parts(_role(value), value["parts"])
    if isinstance(value.get("kwargs"), Mapping) and "lc" in value:  # LangChain's serialised form
        return [_openai_message({"role": (value.get("id") or ["user"])[-1]} | dict(value["kwargs"]))]
    if value.get("type") in ("function_call", "function_call_output"):
        return [_of_response_item(value)]
    if _is_message(value):
        return _of_message(value)
    contained = (messages_of(_contained(value, name)) for name in CONTAINERS)
    found = next(filter(None, contained), None) or _texts_in(value)
    return [*_instructions_in(value), *found] if found else []


def _contained(value: Mapping[str, Any], name: str) -> Any:
    inner = value.get(name)
    if name == "content" and isinstance(inner, Mapping):  # the answer of Google's models
        return {"role": "assistant", **inner}
    return inner


def _instructions_in(value: Mapping[str, Any]) -> list[Message]:
    config = value.get("config")
    found = _either(value, INSTRUCTIONS) or (_either(config, INSTRUCTIONS) if isinstance(config, Mapping) else None)
    return [{"role": "system", "content": found}] if isinstance(found, str) else []


def _texts_in(value: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a request with a single text as prompt, and of answers that are text alone."""
    if isinstance(value.get("prompt"), str):
        return [{"role": "user", "content": value["prompt"]}]
    for name in ("choices", "generations"):
        items = value.get(name)
        while isinstance(items, list) and items and isinstance(items[0], list):
            items = items[0]
        texts = [item.get("text") for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
        if texts and all(isinstance(text, str) for text in texts):
            return [{"role": "assistant", "content": text} for text in texts]
    return []


def _of_message(value: Mapping[str, Any]) -> list[Message]:
    """Return a message whose content may have tool calls, their results, and reasoning among its parts."""
    content = value.get("content")
    parts = [part for part in map(_part, content) if part is not None] if isinstance(content, list) else []
    if not any(_is_aside(part) or part.get("type") == "tool_call_response" for part in parts):
        return [_openai_message(value)]
    said, *responses = messages_of_parts(_role(value), parts)
    if said["role"] == "tool":
        return [said, *responses]
    return [said | _openai_message({**value, "content": said["content"]}), *responses]


def _is_message(value: Mapping[str, Any]) -> bool:
    role = value.get("role", value.get("type"))
    fields = ("content", "tool_calls", "function_call")
    return isinstance(role, str) and role in ROLES and any(name in value for name in fields)


def _role(value: Mapping[str, Any]) -> str:
    role = str(value.get("role") or value.get("type") or "user")
    return OPENAI_ROLES.get(role, role)


def _openai_message(value: Mapping[str, Any]) -> Message:
    message: Message = {"role": _role(value), "content": _openai_content(value.get("content"))}
    if calls := [_call(call) for call in _calls(value)]:
        message["tool_calls"] = calls
    if identity := value.get("tool_call_id"):
        message["tool_call_id"] = identity
    return message | {name: value[name] for name in KEPT if value.get(name) is not None}


def _openai_content(content: Any) -> Any:
    """Return the content's text if it has nothing else."""
    content = parsed(content) if isinstance(content, list) else content
    if isinstance(content, list) and content and all(_text(part) is not None for part in content):
        return "\n".join(str(_text(part)) for part in content)
    return content


def _text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    is_text = isinstance(part, Mapping) and part.get("type") in ("text", "input_text", "output_text")
    return part["text"] if is_text and isinstance(part.get("text"), str) else None


def _calls(value: Mapping[str, Any]) -> list[Any]:
    calls = value.get("tool_calls") or (value.get("additional_kwargs") or {}).get("tool_calls")
    if not calls and isinstance(value.get("function_call"), Mapping):
        calls = [{"function": value["function_call"]}]
    return [call for call in calls or () if isinstance(call, Mapping)]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call in OpenAI's form, in which the arguments are JSON text."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call  # such as LangChain's {id, name, args}
    return tool_call(_either(call, IDS), _either(function, NAMES), _either(function, ARGUMENTS))


def _of_response_item(item: Mapping[str, Any]) -> Message:
    """Return an item of the Responses API as a message."""
    if item["type"] == "function_call_output":
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    return {"role": "assistant", "content": None, "tool_calls": [_call(item)]}


@dataclass(frozen=True, slots=True)
class Fields:
    """The attributes of one observation, parsed."""

    row: ObservationRow
    short: Object
    contents: Object
    resource: Object

    @classmethod
    def of(cls, row: ObservationRow) -> "Fields":
        return cls(row, from_text(row.attributes) or {}, from_text(row.contents) or {}, from_text(row.resource) or {})

    @property
    def attributes(self) -> Object:
        """All attributes, as they came."""
        return self.short | self.contents

    def value(self, field: str) -> Any:
        """Return the first value that a field has under any name; None if there is none."""
        for kind, group in groupby(attribute_aliases.FIELDS[field].get(self.row.source, ()), key=type):
            aliases = list(group)
            columns = (self.short, self.contents) if field in attribute_aliases.LONG else (self.short,)
            for column in columns if kind is str else (self.short,):
                for alias in aliases:
                    found = column.get(alias) if isinstance(alias, str) else self._elsewhere(alias)
                    if found is not None and not (
                        found == attribute_aliases.NOT_CAPTURED and field in attribute_aliases.LONG
                    ):
                        return found
        return None

    def _elsewhere(self, alias: attribute_aliases.Alias) -> Any:
        if isinstance(alias, attribute_aliases.OfResource):
            return self.resource.get(alias.attribute)
        if isinstance(alias, attribute_aliases.Implied):
            return None if self.short.get(alias.attribute) is None else alias.value
        if not isinstance(alias, attribute_aliases.Within):
            return None  # messages, which `conversation_of` reads
        found = _of_json(self.short.get(alias.attribute, self.contents.get(alias.attribute)))
        for key in alias.keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def text(self, field: str) -> str | None:
        found = self.value(field)
        return found if found is None or isinstance(found, str) else to_text(found)

    def whole_number(self, field: str) -> int | None:
        number = self.number(field)
        return None if number is None else round(number)

    def number(self, field: str) -> float | None:
        """Return a plausible cost or number of tokens."""
        try:
            number = float(found) if (found := self.value(field)) is not None else None
        except (TypeError, ValueError):
            return None
        return number if number is not None and 0 <= number <= attribute_aliases.MOST[field] else None

    def tags(self) -> list[str]:
        """Return the tags, from a list, from JSON text of one, or from text with commas between them."""
        text = self.text("tags")
        if text is None:
            return []
        try:
            found = json.loads(text)
        except ValueError:
            return [tag.strip() for tag in text.split(",")]
        if not isinstance(found, list):
            return [text]
        return [tag if isinstance(tag, str) else to_text(tag) for tag in found if tag is not None]

    def type(self) -> str:
        if self.row.kind == "log":
            return "event"
        return attribute_aliases.TYPES.get((self.text("type") or "").lower(), "span")

    def metadata(self) -> Object:
        """Return all attributes as they came, and the application's own metadata under its plain names."""
        attributes = self.attributes
        own: Object = {}
        for name in attribute_aliases.OWN_METADATA.get(self.row.source, ()):
            if name.endswith("."):
                below = {key.removeprefix(name): value for key, value in attributes.items() if key.startswith(name)}
                own |= {key: _plain(value) for key, value in below.items()}
            elif isinstance(found := parsed(attributes.get(name)), dict):
                own |= found.get("metadata") or {} if name == "extra" else found
        return attributes | own


def from_text(text: Json | None) -> Any:
    return None if text is None else orjson.loads(text)


def to_text(value: Any) -> str:
    """Return a value as JSON text, in the form that DuckDB gives it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _of_json(value: Any) -> Any:
    """Return the value of JSON text, and what is no text as it is; None if the text is not JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Return the value of JSON text, which some packages make of every value, including text."""
    try:
        return orjson.loads(value) if isinstance(value, str) and value[:1] in ('"', "{", "[") else value
    except orjson.JSONDecodeError:
        return value


def messages_of_events(events: Sequence[Event]) -> tuple[list[Message], list[Message]]:
    """Return the request and the answer, in the order of the events; two empty lists if there are no such events."""
    request: list[Message] = []
    answer: list[Message] = []
    for name, fields in events:
        body = _body(fields)
        if name in attribute_aliases.EVENT_ROLES:
            request += _message_of_event(body, attribute_aliases.EVENT_ROLES[name])
        elif name == attribute_aliases.CHOICE:
            answer += _message_of_event(_choice(body), "assistant")
        elif name == attribute_aliases.PROMPT:
            request += _of_value(_either(fields, ("gen_ai.prompt", *attribute_aliases.BODIES)), "user")
        elif name == attribute_aliases.COMPLETION:
            answer += _of_value(_either(fields, ("gen_ai.completion", *attribute_aliases.BODIES)), "assistant")
    return request, answer


def events_of_list(value: Any) -> list[Event]:
    """Return events that are one attribute, a list of objects with `event.name`, as earlier pydantic-ai writes them."""
    items = parsed(value)
    items = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    return [(str(item["event.name"]), item) for item in items if "event.name" in item]


def _body(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in attribute_aliases.BODIES:
        body = parsed(fields.get(name))
        if isinstance(body, Mapping):
            return body
        if isinstance(body, str):
            return {"content": body}
    return fields


def _message_of_event(body: Mapping[str, Any], role: str) -> list[Message]:
    identity = body.get("tool_call_id") or body.get("id")
    content = body.get("content")
    parts = parsed(content)
    content = parts if isinstance(parts, list) and all(isinstance(part, Mapping) for part in parts) else content
    fields = {"role": body.get("role") or role, "content": content, "tool_calls": body.get("tool_calls")}
    return messages_of(fields | ({"tool_call_id": identity} if role == "tool" and identity else {}))


def _choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    message = parsed(body.get("message"))
    if isinstance(message, str):
        message = {"content": message}
    return {"tool_calls": body.get("tool_calls")} | dict(message) if isinstance(message, Mapping) else body


def openinference(attributes: Mapping[str, Any], prefix: str) -> list[Message]:
    """Return the messages below a prefix such as `llm.input_messages`."""
    items = (_fields(item, "message") for item in numbered(attributes, prefix))
    return [message for item in items for message in messages_of(_of_openinference(item))]


def openllmetry(attributes: Mapping[str, Any], prefix: str, role: str) -> list[Message]:
    """Return the messages below `gen_ai.prompt` or `gen_ai.completion`; `role` is that of messages that name none."""
    items = [item for item in numbered(attributes, prefix) if isinstance(item, Mapping)]
    return [message for item in items for message in messages_of({"role": role, "content": None} | dict(item))]


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the attributes below a prefix as a list of nested objects, in the order of their numbers.

    An export of Phoenix has such a list as one attribute.
    """
    if isinstance(whole := attributes.get(prefix), list):
        return [_nested(item) if isinstance(item, Mapping) else item for item in whole]
    below = {name[len(prefix) + 1 :]: value for name, value in attributes.items() if name.startswith(f"{prefix}.")}
    found = _nested(below)
    return found if isinstance(found, list) else []


def _nested(attributes: Mapping[str, Any]) -> Any:
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        *path, last = name.split(".")
        _place(tree, path)[last] = value
    return _listed(tree)


def _place(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for key in path:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):  # both a value and attributes below it: the latter say more
            below = tree[key] = {}
        tree = below
    return tree


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(name.isdecimal() for name in tree):
        return [_listed(tree[name]) for name in sorted(tree, key=int)]
    return {name: _listed(value) for name, value in tree.items()}


def _fields(item: Any, name: str) -> dict[str, Any]:
    inner = item.get(name) if isinstance(item, Mapping) else None
    return dict(inner) if isinstance(inner, Mapping) else {}


def _of_openinference(item: dict[str, Any]) -> dict[str, Any]:
    message = {"role": item.get("role") or "user", "content": item.get("content")}
    parts = [_image(_fields(part, "message_content")) for part in item.get("contents") or ()]
    if parts and message["content"] is None:
        message["content"] = parts
    if calls := [_fields(call, "tool_call") for call in item.get("tool_calls") or ()]:
        message["tool_calls"] = calls
    return message | {name: item[name] for name in ("tool_call_id", "name") if item.get(name)}


def _image(part: dict[str, Any]) -> dict[str, Any]:
    image = part.get("image")
    if isinstance(image, Mapping):
        return {"type": "image_url", "image_url": dict(image.get("image") or image)}
    return part


@dataclass(frozen=True, slots=True)
class Conversation:
    """The request to a model and its answer. An empty list where there is none, or none is known."""

    request: list[Message] = field(default_factory=list)
    answer: list[Message] = field(default_factory=list)

    def captured(self) -> "Conversation":
        """Return it without the sides whose content was not captured: an instrumentation may keep roles and names."""
        return Conversation(*(side if has_content(side) else [] for side in (self.request, self.answer)))


def has_content(messages: Sequence[Message]) -> bool:
    """Return whether any text, or any argument of a tool call, is in the messages."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return any(message.get("content") is not None for message in messages) or any(
        call["function"]["arguments"] is not None for call in calls
    )


def conversation_of(
    attributes: Mapping[str, Any], events: Sequence[Event], values: tuple[Any, Any] = (None, None)
) -> Conversation:
    """Return the conversation of a model call or an agent.

    `events` are its span events and log records; `values` are its input and output, which count where nothing that is
    made for messages was captured: text is a message of the user, or the model's answer.
    """
    request: list[Message] = []
    answer: list[Message] = []
    for conversation in _found(attributes, events):
        request, answer = request or conversation.request, answer or conversation.answer
    return Conversation(request or _of_value(values[0], "user"), answer or _of_value(values[1], "assistant"))


def _found(attributes: Mapping[str, Any], events: Sequence[Event]) -> Iterator[Conversation]:
    """Yield what each convention says, the newest first."""
    for fields in (attributes, *(fields for name, fields in events if name == attribute_aliases.DETAILS)):
        yield _of_genai(fields)
    yield _of_agent(attributes)
    yield Conversation(*messages_of_events(events))
    for name in attribute_aliases.OLDER_LISTS:
        yield Conversation(*_split(messages_of_events(events_of_list(attributes.get(name)))))
    yield Conversation(
        openinference(attributes, "llm.input_messages"), openinference(attributes, "llm.output_messages")
    )
    yield Conversation(
        openllmetry(attributes, "gen_ai.prompt", "user"), openllmetry(attributes, "gen_ai.completion", "assistant")
    )
    yield _of_vercel(attributes)


def _of_genai(attributes: Mapping[str, Any]) -> Conversation:
    request, answer = messages_of(attributes.get(INPUT)), messages_of(attributes.get(OUTPUT))
    return Conversation(_instructed(attributes, request), answer)


def _of_vercel(attributes: Mapping[str, Any]) -> Conversation:
    """Return the conversation of the Vercel AI SDK; its answer has an attribute for the text and one for the calls."""
    asked = _either(attributes, ("ai.prompt.messages", "ai.prompt"))
    text = _either(attributes, ("ai.response.text", "ai.response.object"))
    calls = attributes.get("ai.response.toolCalls")
    said = {"role": "assistant", "content": text or None if calls else text, "tool_calls": parsed(calls)}
    return Conversation(messages_of(asked), [] if text is calls is None else messages_of(said))


def _instructions(attributes: Mapping[str, Any]) -> list[Message]:
    value = parsed(attributes.get(SYSTEM))
    if isinstance(value, str):
        return [{"role": "system", "content": value}]
    return [] if value is None else messages_of({"role": "system", "parts": value})


def _of_agent(attributes: Mapping[str, Any]) -> Conversation:
    """Return an agent's conversation: its request ends with the last message of the user."""
    messages = messages_of(attributes.get(OF_AGENT))
    request, answer = _split((messages, []))
    return Conversation(_instructed(attributes, request), answer)


def _instructed(attributes: Mapping[str, Any], request: list[Message]) -> list[Message]:
    """Return a request with the instructions that are an attribute of their own, unless it has them."""
    said = [message for message in _instructions(attributes) if message not in request]
    return [*said, *request] if request else []


def _split(sides: tuple[list[Message], list[Message]]) -> tuple[list[Message], list[Message]]:
    """Move what follows the last message of the user from the request to the answer."""
    request, answer = sides
    users = [index for index, message in enumerate(request) if message["role"] == "user"]
    end = users[-1] + 1 if users and not answer else len(request)
    return request[:end], request[end:] + answer


def _of_value(value: Any, role: str) -> list[Message]:
    value = parsed(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value != attribute_aliases.NOT_CAPTURED else []
    return messages_of(value)


def last_user_text(messages: Sequence[Message]) -> Any:
    """Return the content of the last message of the user; None if there is none."""
    return next((message.get("content") for message in reversed(messages) if message["role"] == "user"), None)


def answer_text(messages: Sequence[Message]) -> Any:
    """Return the content of the assistant's last message; None if it has none, as when it only calls tools."""
    said = (message.get("content") for message in reversed(messages) if message["role"] == "assistant")
    return next((content for content in said if content not in (None, "", [])), None)
