"""What the protocols read alike in requests in OpenAI's form, and build alike in answers."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from evalflows.specs.attachments import FORMATS, content_of_url, media_type_of, part_in
from evalflows.specs.errors import CallError, InputError, describe, short
from evalflows.specs.frozen import dataclass

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A picture, a sound or a file: its content in base64, or where it is."""

    media_type: str | None
    base64: str | None = None
    url: str = ""
    name: str | None = None


def refused(message: str) -> CallError:
    return CallError("bad_request", message)


def converted(convert: Callable[..., Made], *given: Any) -> Made:
    """Return what a conversion of a request makes. Raise CallError for a request that is not in OpenAI's form."""
    try:
        return convert(*given)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise refused(f"the request is not in OpenAI's form: {describe(error)}") from error


def parts_of(content: Any, where: str) -> list[str | Media]:
    """Return the texts and the media of a message's content, without empty texts. Raise CallError for other parts."""
    if isinstance(content, str | None):
        return [content] if content else []
    if not isinstance(content, list):
        raise refused(f"{where}: got {short(content)}, wanted a text or a list of parts")
    parts = [_part(part, f"{where}.{number}") for number, part in enumerate(content)]
    return [part for part in parts if part]


def _part(value: Any, where: str) -> str | Media:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return str(value["text"])
    part = part_in(value)
    if part is None:
        got = value.get("type") if isinstance(value, Mapping) else value
        raise refused(f"{where}: got {short(got)}, wanted a text, image_url, input_audio, or a file with its file_data")
    inner, url = value[part.field], part.held
    if part.field == "input_audio":
        said = next((kind for kind, name in FORMATS.items() if name == inner.get("format")), None)
        return Media(media_type=said, base64=url)
    try:
        content = content_of_url(url)
    except InputError as error:
        raise refused(f"{where}: {error}") from error
    name = inner.get("filename")
    if content is not None:
        return Media(media_type=content.attachment.media_type, base64=content.base64, name=name)
    if not url.startswith(("http://", "https://")):
        raise refused(f"{where}: got {short(url)}, wanted a data URL, http://… or https://…")
    return Media(media_type=media_type_of(url.partition("?")[0]), url=url, name=name)


def functions_of(tools: Any) -> list[Mapping[str, Any]]:
    """Return the functions that tools in OpenAI's form are. Raise CallError for another tool."""
    for number, tool in enumerate(tools):
        if not isinstance(tool, Mapping) or not isinstance(tool.get("function"), Mapping):
            raise refused(f"tools.{number}: got {short(tool)}, wanted {{type: function, function: …}}")
    return [tool["function"] for tool in tools]


def chosen_tool(choice: Any) -> str | None:
    """Return the name of the tool that must be called; None if the choice is a word, such as `auto`."""
    if isinstance(choice, str):
        return None
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise refused(f"tool_choice: got {short(choice)}, wanted auto, required, none, or a function's name")
    name: str = function["name"]
    return name


def schema_in(response_format: Any) -> dict[str, Any] | None:
    """Return the schema of a `response_format`; None if it asks for any JSON. Raise CallError for another."""
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "json_object":
        return None
    if kind != "json_schema":
        raise refused(f"response_format: got {short(response_format)}, wanted a json_schema")
    schema: dict[str, Any] = response_format["json_schema"]["schema"]
    return schema


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool call in a message; as one text, if they are no JSON object."""
    text = call["function"].get("arguments") or "{}"
    if isinstance(text, Mapping):
        return dict(text)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": text}


def tool_call(identity: str, name: str, arguments: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a tool call in OpenAI's form. `extra` goes back to the provider with the conversation."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": identity, "type": "function", "function": function}
    return call | ({"extra_content": dict(extra)} if extra else {})


def completion(
    body: tuple[Any, Any],
    message: Mapping[str, Any],
    finish_reason: str | None,
    usage: Mapping[str, Any],
    said: Any = None,
) -> dict[str, Any]:
    """Return a chat completion; what is None or empty is left out of its message and its usage.

    Args: body: its id and its model; said: the provider's words about how it ended.
    """
    whole = {"role": "assistant", **{name: value for name, value in message.items() if value}}
    choice = {"index": 0, "message": whole, "finish_reason": finish_reason, "native_finish_reason": said}
    known = {name: value for name, value in usage.items() if value is not None}
    return {"id": body[0], "object": "chat.completion", "model": body[1], "choices": [choice], "usage": known}
