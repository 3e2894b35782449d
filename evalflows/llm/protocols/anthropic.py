"""Anthropic's Messages, by its SDK."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import anthropic
import httpx2

from evalflows.llm.batches import BatchService
from evalflows.llm.capped_client import text_of
from evalflows.llm.client import Client
from evalflows.llm.prices import tokens_of_text
from evalflows.llm.protocols.chat import (
    Media,
    arguments_of,
    chosen_tool,
    completion,
    converted,
    functions_of,
    parts_of,
    refused,
    schema_in,
    tool_call,
)
from evalflows.specs.connections import AnthropicConnection
from evalflows.store.records import to_json

DEFAULT_MAX_TOKENS = 16_384
"""Longest answer of a request that sets no limit, which the API requires. Thinking counts."""
HIGHEST_TEMPERATURE = 1.0
SAMPLING = ("temperature", "top_p", "top_k")
WITH_SAMPLING = "2023-06-01"
"""The version of the API that has the parameters of sampling, for the models that have them: later ones refuse them."""
MIN_CACHED_TOKENS = 512
"""Shortest beginning that is marked for the cache: the smallest minimum of any model. Below its own minimum, 512 to
4,096, a model ignores the mark, at no cost."""
_EPHEMERAL = {"type": "ephemeral"}

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "pause_turn": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicClient(Client):
    """Anthropic's API, or a gateway with the same."""

    chat_path = "/v1/messages"
    _connection: AnthropicConnection

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._sdk = self._sdk_on(self._http)
        sends_key = self._key is not None or self._has_header("authorization")
        self._own_headers: Any = {} if sends_key else {"Authorization": anthropic.Omit()}

    def _sdk_on(self, http: httpx2.AsyncClient) -> anthropic.AsyncAnthropic:
        """Return the SDK on an HTTP client. A copy of one would read the environment again."""
        sdk = anthropic.AsyncAnthropic(http_client=http, open_telemetry=False, **self._of_sdk)
        if not self._may_add_headers:
            sdk._custom_headers = self._headers
        return sdk

    def batches(self) -> BatchService:
        return self._batches

    @cached_property
    def _batches(self) -> BatchService:
        from evalflows.llm.protocols.anthropic_batches import AnthropicBatches  # late: most runs have none

        sdk = self._sdk_on(anthropic.DefaultAsyncHttpxClient(follow_redirects=False))
        return AnthropicBatches(sdk, self._headers_of, self._message, completion_of, self._redacted)

    async def _send(self, path: str, request: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
        if path != "/chat/completions":
            raise refused(f"{AnthropicConnection.api} has no embeddings, wanted another connection")
        body = self._message(request)
        options: Any = {"headers": self._headers_of(body)}
        raw = await self._sdk.post(self.chat_path, body=body, options=options, cast_to=httpx2.Response)
        answered = raw.headers
        if identity := answered.get("request-id"):
            answered["x-request-id"] = identity
        return text_of(raw), answered

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        return completion_of(body)

    def _message(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the API's request. Raise CallError for what it cannot hold."""
        if message := self._connection.refusal(request):
            raise refused(message)
        return converted(message_request, request, self._connection.prompt_caching)

    def _headers_of(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if any(name in message for name in SAMPLING) and not self._has_header("anthropic-version"):
            return {**self._own_headers, "anthropic-version": WITH_SAMPLING}
        return self._own_headers  # type: ignore[no-any-return]


def message_request(asked: Mapping[str, Any], marks_cache: bool = True) -> dict[str, Any]:
    """Return the request of Messages for one in OpenAI's form; parameters of Anthropic's own pass unchanged.

    Raise CallError for what Messages cannot hold.
    """
    system, turns = _turns(asked["messages"])
    made: dict[str, Any] = {"model": asked["model"], "max_tokens": DEFAULT_MAX_TOKENS}
    output: dict[str, Any] = {}
    for name, value in asked.items():
        match name:
            case "model" | "messages" | "parallel_tool_calls":
                pass
            case _ if value is None or value == []:
                pass
            case "max_tokens" | "max_completion_tokens":
                made["max_tokens"] = value
            case "temperature" if value > HIGHEST_TEMPERATURE:
                raise refused(f"temperature: got {value:g}, wanted at most {HIGHEST_TEMPERATURE:g}")
            case "stop":
                made["stop_sequences"] = [value] if isinstance(value, str) else value
            case "user":
                made["metadata"] = {"user_id": value}
            case "reasoning_effort":
                output["effort"] = value
            case "response_format":
                output["format"] = {"type": "json_schema", "schema": _schema(schema_in(value))}
            case "output_config":
                output |= value
            case "tools":
                made["tools"] = [_tool(function) for function in functions_of(value)]
            case "tool_choice":
                made["tool_choice"] = _tool_choice(value)
            case _:
                made[name] = value
    if asked.get("parallel_tool_calls") is False and made.get("tools"):
        made["tool_choice"] = {"type": "auto", **made.get("tool_choice", {}), "disable_parallel_tool_use": True}
    made |= {"output_config": output} if output else {}
    made |= {"system": system} if system else {}
    made["messages"] = turns
    if marks_cache and "cache_control" not in made:
        _mark_beginnings(made)
    return made


def _mark_beginnings(made: dict[str, Any]) -> None:
    """Mark what later requests may begin with, if it is long: tools and system prompt, and the first of the messages.

    What ends the request is not marked: only a repeat would begin with it, and the mark costs.
    """
    system, (first, *later) = made.get("system", []), made["messages"] or [{"content": []}]
    before = tokens_of_text(to_json([made.get("tools", []), system]))
    if (ends := [*made.get("tools", []), *system]) and before >= MIN_CACHED_TOKENS:
        ends[-1]["cache_control"] = _EPHEMERAL
    beginning = first["content"] if later else first["content"][:-1][:1]
    if beginning and before + tokens_of_text(to_json(beginning)) >= MIN_CACHED_TOKENS:
        beginning[-1]["cache_control"] = _EPHEMERAL


def _turns(messages: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the system prompt and the turns: messages of one side that follow each other are one."""
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        where, role = f"messages.{number}", message.get("role")
        blocks = [_block(part, where) for part in parts_of(message.get("content"), f"{where}.content")]
        if role in ("system", "developer"):
            role = "system"
            if not turns:
                system += blocks
                continue
        elif role == "tool":
            result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
            role, blocks = "user", [result | ({"content": blocks} if blocks else {})]
        elif role == "assistant":
            blocks = [*_thinking(message), *blocks, *_tool_uses(message)]
        if not blocks:  # the API takes no empty message
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return system, turns


def _block(part: str | Media, where: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source: dict[str, Any] = {"type": "url", "url": part.url}
    if part.base64 is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": part.base64}
    if part.media_type == "application/pdf":
        return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}
    if part.media_type is not None and not part.media_type.startswith("image/"):
        raise refused(
            f"{where}: got {part.media_type}, wanted pictures and PDFs: {AnthropicConnection.api} takes no more"
        )
    return {"type": "image", "source": source}


def _tool_uses(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for call in message.get("tool_calls") or []:
        name = call["function"]["name"]
        yield {"type": "tool_use", "id": call.get("id"), "name": name, "input": arguments_of(call)}


def _thinking(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the thinking before a message's tool calls, which the API wants back with its signature."""
    calls = message.get("tool_calls") or [{}]
    return list(((calls[0].get("extra_content") or {}).get("anthropic") or {}).get("thinking") or [])


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict"):
        schema = _schema(schema)
    own = {name: function[name] for name in ("description", "strict") if function.get(name)}
    return {"name": function.get("name"), **own, "input_schema": schema}


def _tool_choice(choice: Any) -> dict[str, Any]:
    if (name := chosen_tool(choice)) is not None:
        return {"type": "tool", "name": name}
    if choice not in _CHOICES:
        raise refused(f"tool_choice: got {choice!r}, wanted auto, required, none, or a function's name")
    return {"type": _CHOICES[choice]}


def _schema(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return a schema as the API takes it: the SDK puts bounds into descriptions, where the model reads them."""
    if schema is None:
        raise refused("response_format: got json_object, wanted a json_schema: the API has nothing else")
    try:
        return anthropic.transform_schema(schema)
    except ValueError as error:
        raise refused(f"the schema cannot be sent: {error}") from error


def completion_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion for a message of Anthropic; a body that is none, as it is."""
    blocks = body.get("content")
    if not isinstance(blocks, list):
        return dict(body)
    thinking = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
    uses = [block for block in blocks if block["type"] == "tool_use"]
    extra = {"anthropic": {"thinking": thinking}} if thinking else None
    calls = [
        tool_call(block["id"], block["name"], block["input"], None if number else extra)
        for number, block in enumerate(uses)
    ]
    reason, refusal = body.get("stop_reason"), None
    if reason == "refusal":
        details = body.get("stop_details") or {}
        category = f" ({details['category']})" if details.get("category") else ""
        refusal = details.get("explanation") or f"the model declined{category}"
    message = {
        "content": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "reasoning_content": "".join(block.get("thinking") or "" for block in thinking),
        "tool_calls": calls,
        "refusal": refusal,
    }
    finish = _FINISH.get(reason, reason) if reason else None
    return completion((body.get("id"), body.get("model")), message, finish, _usage(body.get("usage") or {}))


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return token counts in OpenAI's form, in which those of the cache are part of the prompt's."""
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    into, out = usage.get("input_tokens"), usage.get("output_tokens")
    details = usage.get("output_tokens_details") or {}
    return {
        "prompt_tokens": None if into is None else into + (read or 0) + (written or 0),
        "completion_tokens": out,
        "prompt_tokens_details": None if read is None else {"cached_tokens": read},
        "cache_creation_input_tokens": written,
        "completion_tokens_details": {"reasoning_tokens": details["thinking_tokens"]} if details else None,
    }
