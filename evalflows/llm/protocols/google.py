"""Google's Gemini, by its SDK."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx2
from google import genai
from google.genai import types

from evalflows.llm.client import Client
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
from evalflows.specs.connections import GoogleConnection
from evalflows.specs.errors import describe

VERSION = "v1beta"
KEY_HEADER = "x-goog-api-key"
UNSIGNED = b"skip_thought_signature_validator"
"""Stands, as Google documents it, for the signature of a tool call that another model made: Gemini 3 wants one."""

_SENT_BY_US = ("http_options", "should_return_http_response", "automatic_function_calling", "automatic_continuation")
_NAMES = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_CHOICES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576}
"""Tokens of thinking for Gemini 2.5, which has no levels: those of Google's own endpoint in OpenAI's form."""
_FINISH = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}


class GoogleClient(Client):
    """The Gemini API, or a gateway with the same."""

    chat_path = f"/{VERSION}/models"
    _connection: GoogleConnection

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._http.params = httpx2.QueryParams(self._query)
        if self._key is None and not self._has_header(KEY_HEADER):
            self._http.event_hooks = {"request": [_without_key]}  # the SDK sends a key in any case
        options = types.HttpOptions(
            base_url=self._base_url, api_version=VERSION, headers=dict(self._headers), httpx_async_client=self._http
        )
        self._sdk = genai.Client(vertexai=False, api_key=self._key or "none", http_options=options)

    async def _send(self, path: str, request: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
        if message := self._connection.refusal(request):
            raise refused(message)
        if path == "/embeddings":
            return await self._embed(request["model"], request["input"])
        contents, config = converted(content_request, request)
        config |= {"should_return_http_response": True, "automatic_continuation": False}
        config["automatic_function_calling"] = {"disable": True}
        try:
            given = types.GenerateContentConfig.model_validate(config)
            # As objects, since the SDK takes dicts for other things, too.
            turns: Any = [types.Content.model_validate(content) for content in contents]
            model = quote(request["model"], safe="/@:-._")
            answer = await self._sdk.aio.models.generate_content(model=model, contents=turns, config=given)
        except json.JSONDecodeError:
            raise
        except ValueError as error:  # of pydantic, and of the SDK for what only another API of Google has
            raise refused(f"the request cannot be sent: {describe(error)}") from error
        raw = answer.sdk_http_response
        assert raw is not None
        return raw.body or "", raw.headers or {}

    async def _embed(self, model: str, text: str) -> tuple[str, Mapping[str, str]]:
        found = (await self._sdk.aio.models.embed_content(model=model, contents=text)).embeddings or []
        data = [{"embedding": embedding.values} for embedding in found]
        return json.dumps({"data": data, "model": model}), {}

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        return completion_of(body)


async def _without_key(request: httpx2.Request) -> None:
    request.headers.pop(KEY_HEADER, None)


def content_request(asked: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return contents and configuration, as the SDK names them, for a request in OpenAI's form.

    Parameters of Google's own pass unchanged. Raise CallError for what the API cannot hold.
    """
    system, contents = _contents(asked["messages"], is_signed=not asked["model"].startswith(("gemini-1", "gemini-2")))
    made: dict[str, Any] = {"system_instruction": {"parts": system}} if system else {}
    thinking: dict[str, Any] = {}
    for name, value in asked.items():
        match name:
            case "model" | "messages":
                pass
            case _ if value is None or value == []:
                pass
            case "stop":
                made["stop_sequences"] = [value] if isinstance(value, str) else value
            case "reasoning_effort":
                thinking |= _effort(value, asked["model"])
            case "thinking_config":
                thinking |= value
            case "response_format":
                schema = schema_in(value)
                made |= {"response_mime_type": "application/json", "response_json_schema": schema and _schema(schema)}
            case "tools":
                made["tools"] = [{"function_declarations": [_tool(function) for function in functions_of(value)]}]
            case "tool_choice":
                made["tool_config"] = {"function_calling_config": _tool_choice(value)}
            case _:
                made[_known(name)] = value
    return contents, made | ({"thinking_config": thinking} if thinking else {})


def _known(name: str) -> str:
    name = _NAMES.get(name, name)
    if name not in types.GenerateContentConfig.model_fields or name in _SENT_BY_US:
        raise refused(f"`{name}` is not supported by {GoogleConnection.api}")
    return name


def _contents(messages: Any, *, is_signed: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the system instruction and the turns: messages of one side that follow each other are one."""
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    names: dict[Any, str] = {}  # of functions, by the calls' ids
    for number, message in enumerate(messages):
        where, role = f"messages.{number}", message.get("role")
        parts = [_as_part(part, where) for part in parts_of(message.get("content"), f"{where}.content")]
        if role in ("system", "developer"):
            if turns:
                raise refused(f"{where}: got a {role} message after others, wanted it before them")
            system += parts
            continue
        if role == "tool":
            parts = [_function_response(message, parts, names, where)]
        elif role == "assistant":
            calls = message.get("tool_calls") or []
            names |= {call.get("id"): call["function"]["name"] for call in calls}
            parts += _function_calls(calls, is_signed)
        role = "model" if role == "assistant" else "user"
        if not parts:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"] += parts
        else:
            turns.append({"role": role, "parts": parts})
    return system, turns


def _as_part(part: str | Media, where: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    if part.media_type is None:
        raise refused(f"{where}: got {part.url[:80]!r}, wanted an address that ends like a picture, a sound or a PDF")
    if part.base64 is None:
        return {"file_data": {"file_uri": part.url, "mime_type": part.media_type}}
    return {"inline_data": {"data": base64.b64decode(part.base64), "mime_type": part.media_type}}


def _function_calls(calls: Any, is_signed: bool) -> Iterator[dict[str, Any]]:
    """Yield the calls of one message, with the signatures that came with them; the first needs one."""
    for number, call in enumerate(calls):
        given = ((call.get("extra_content") or {}).get("google") or {}).get("thought_signature")
        signature = base64.b64decode(given) if given else UNSIGNED if is_signed and number == 0 else None
        made = {"id": call.get("id"), "name": call["function"]["name"], "args": arguments_of(call)}
        yield {"function_call": made} | ({"thought_signature": signature} if signature else {})


def _function_response(message: Mapping[str, Any], parts: list[Any], names: Mapping[Any, str], where: str) -> Any:
    identity = message.get("tool_call_id")
    name = names.get(identity) or message.get("name")
    if name is None:
        raise refused(f"{where}: got tool_call_id {identity!r}, wanted that of a call before it")
    if any("text" not in part for part in parts):
        raise refused(f"{where}: got a result with a file, wanted a text")
    text = "".join(part["text"] for part in parts)
    return {"function_response": {"id": identity, "name": name, "response": {"output": text}}}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: function[name] for name in ("name", "description") if function.get(name)}
    return own | ({"parameters_json_schema": _schema(function["parameters"])} if function.get("parameters") else {})


def _tool_choice(choice: Any) -> dict[str, Any]:
    if (name := chosen_tool(choice)) is not None:
        return {"mode": "ANY", "allowed_function_names": [name]}
    if choice not in _CHOICES:
        raise refused(f"tool_choice: got {choice!r}, wanted auto, required, none, or a function's name")
    return {"mode": _CHOICES[choice]}


def _schema(schema: Any) -> Any:
    """Return a schema with `enum` in place of `const`, which the API does not know."""
    if isinstance(schema, list):
        return [_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        "enum" if name == "const" else name: [value] if name == "const" else _schema(value)
        for name, value in schema.items()
    }


def _effort(effort: str, model: str) -> dict[str, Any]:
    if not model.startswith("gemini-2"):
        return {"thinking_level": effort.upper()}
    if effort not in _BUDGETS:
        raise refused(f"reasoning_effort: got {effort!r}, wanted one of {', '.join(_BUDGETS)}")
    return {"thinking_budget": _BUDGETS[effort]}


def completion_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion for an answer of Gemini; a body that is none, as it is."""
    candidates, feedback = body.get("candidates"), body.get("promptFeedback") or {}
    if not candidates and not feedback.get("blockReason"):
        return dict(body)
    candidate = candidates[0] if candidates else {"finishReason": feedback["blockReason"]}
    parts = (candidate.get("content") or {}).get("parts") or []
    called = [part for part in parts if part.get("functionCall")]
    calls = [
        _call(part, part["functionCall"].get("id") or f"call-{body.get('responseId', '')}-{number}")
        for number, part in enumerate(called)
    ]
    reason = candidate.get("finishReason")
    finish = _FINISH.get(reason, reason.lower()) if isinstance(reason, str) else None
    message = {
        "content": "".join(part.get("text") or "" for part in parts if not part.get("thought")),
        "reasoning_content": "".join(part.get("text") or "" for part in parts if part.get("thought")),
        "tool_calls": calls,
    }
    if not candidates:
        said = feedback.get("blockReasonMessage")
        message["refusal"] = f"the prompt was blocked ({finish})" + (f": {said}" if said else "")
    usage = _usage(body.get("usageMetadata") or {})
    finish = "tool_calls" if calls and finish == "stop" else finish
    whose = body.get("responseId"), body.get("modelVersion")
    return completion(whose, message, finish, usage, candidate.get("finishMessage"))


def _call(part: Mapping[str, Any], identity: str) -> dict[str, Any]:
    signature, call = part.get("thoughtSignature"), part["functionCall"]
    extra = {"google": {"thought_signature": signature}} if signature else None
    return tool_call(identity, call["name"], call.get("args") or {}, extra)


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return token counts in OpenAI's form, in which thinking is part of the completion's."""
    into, cached = usage.get("promptTokenCount"), usage.get("cachedContentTokenCount")
    thinking, out = usage.get("thoughtsTokenCount"), usage.get("candidatesTokenCount")
    is_counted = out is not None or thinking is not None or usage.get("totalTokenCount") is not None
    return {
        "prompt_tokens": None if into is None else into + usage.get("toolUsePromptTokenCount", 0),
        "completion_tokens": (out or 0) + (thinking or 0) if is_counted else None,
        "total_tokens": usage.get("totalTokenCount"),
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        "completion_tokens_details": None if thinking is None else {"reasoning_tokens": thinking},
    }
