"""Anthropic's Messages and Gemini's generateContent on loopback, as published: what they refuse, and how they answer.

Each answers `endpoint.py`'s server. A model `refuses` declines, `thinks` thinks first, `new` takes no `temperature`.
"""

import base64
import hashlib
import json
from typing import Any

from endpoint import Endpoint, Reply, Request

WRONG_KEY = "sk-wrong-0123456789"
SAMPLING = ("temperature", "top_p", "top_k")
_OF_MESSAGES = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "output_config", "thinking"}
_OF_MESSAGES |= {"metadata", "stop_sequences", "service_tier", *SAMPLING}
_OF_CONFIG = {"temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "responseMimeType"}
_OF_CONFIG |= {"responseJsonSchema", "thinkingConfig", "presencePenalty", "frequencyPenalty"}
_BLOCKS = {"text", "image", "document", "tool_use", "tool_result", "thinking"}


def of_schema(schema: dict[str, Any]) -> Any:
    """Return a value of a schema."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    match schema.get("type"):
        case "object":
            return {name: of_schema(field) for name, field in schema.get("properties", {}).items()}
        case "array":
            return []
        case "boolean":
            return True
        case "integer" | "number":
            return schema.get("minimum", 1)
    return "said"


class _RefusedError(Exception):
    pass


def _wants(holds: object, message: str) -> None:
    if not holds:
        raise _RefusedError(message)


def mock_anthropic(endpoint: Endpoint) -> Endpoint:
    """Let an endpoint speak Anthropic's Messages. Beginnings that were marked before are read from its cache."""
    cached: set[str] = set()

    def answer(request: Request) -> Reply:
        headers = endpoint.headers[-1]
        if headers.get("authorization") == f"bearer {WRONG_KEY}":
            return anthropic_error(401, "authentication_error", "invalid x-api-key")
        try:
            _check_messages(request, headers["anthropic-version"])
            _wants(endpoint.paths[-1].partition("?")[0].endswith("/v1/messages"), "no such path")
        except _RefusedError as error:
            return anthropic_error(400, "invalid_request_error", str(error))
        return Reply(_message(request, cached), headers={"request-id": "req_1"})

    endpoint.answer = answer
    return endpoint


def anthropic_error(status: int, kind: str, message: str, **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Reply(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def _check_messages(request: Request, version: str) -> None:
    known = _OF_MESSAGES - ({*SAMPLING} if version >= "2026-10-21" else set())
    for name in request:
        _wants(name in known, f"{name}: Extra inputs are not permitted")
    for name in SAMPLING:
        _wants(name not in request or request["model"] != "new", f"`{name}` is deprecated for this model.")
    for name in ("model", "max_tokens", "messages"):
        _wants(name in request, f"{name}: Field required")
    _wants(0 <= request.get("temperature", 0) <= 1, "temperature: range: 0..1")
    asked: set[str] = set()
    for number, message in enumerate(request["messages"]):
        where = f"messages.{number}"
        _wants(message["role"] in ("user", "assistant"), f"{where}: role 'system' is not supported on this model")
        _wants(message["content"], f"{where}: all messages must have non-empty content")
        results = {block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"}
        _wants(results == asked, f"{where}: `tool_use` ids were found without `tool_result` blocks")
        for block in message["content"]:
            _check_block(block, where)
        asked = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
        is_thinking = "thinking" in request and asked
        _wants(not is_thinking or message["content"][0]["type"] == "thinking", f"{where}: Expected `thinking`")
    form = request.get("output_config", {}).get("format")
    _wants(form is None or '"minimum"' not in json.dumps(form), "output_config: 'minimum' is not supported")
    _wants(form is None or form["schema"]["additionalProperties"] is False, "additionalProperties must be false")


def _check_block(block: dict[str, Any], where: str) -> None:
    _wants(block["type"] in _BLOCKS, f"{where}: unknown block {block['type']}")
    _wants(block["type"] != "text" or block["text"], f"{where}: text content blocks must be non-empty")
    if block["type"] == "tool_use":
        _wants(isinstance(block["input"], dict), f"{where}: input should be an object")
    if block["type"] == "thinking":
        _wants(block["signature"] == "signed", f"{where}: Invalid `signature` in `thinking` block")
    if source := block.get("source", {}):
        _wants(source["type"] in ("base64", "url"), f"{where}: source")
        base64.b64decode(source.get("data", ""), validate=True)


def _message(request: Request, cached: set[str]) -> dict[str, Any]:
    model, content, reason = request["model"], list[dict[str, Any]](), "end_turn"
    if model == "thinks" or "thinking" in request:
        content.append({"type": "thinking", "thinking": "Let me see.", "signature": "signed"})
    choice, tools = request.get("tool_choice", {"type": "auto"}), request.get("tools", [])
    said = _said(request["messages"])
    if tools and choice["type"] != "none" and not _has_results(request["messages"][-1]):
        tool = next((tool for tool in tools if tool["name"] == choice.get("name")), tools[0])
        used = {"type": "tool_use", "id": "toolu_1", "name": tool["name"], "input": of_schema(tool["input_schema"])}
        content, reason = [*content, used], "tool_use"
    elif form := request.get("output_config", {}).get("format"):
        content.append({"type": "text", "text": json.dumps(of_schema(form["schema"]))})
    else:
        content.append({"type": "text", "text": said})
    stop: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if model == "refuses":
        details = {"type": "refusal", "category": "bio", "explanation": None}
        content, stop = [], {"stop_reason": "refusal", "stop_details": details}
    if request["max_tokens"] < 5:
        stop["stop_reason"] = "max_tokens"
    whole = {"type": "message", "id": "msg_1", "role": "assistant", "model": f"{model}-1", "content": content}
    return whole | stop | {"usage": _usage(request, cached)}


def _usage(request: Request, cached: set[str]) -> dict[str, Any]:
    beginning = [*request.get("tools", []), *request.get("system", []), *request["messages"][0]["content"]]
    marked = [number for number, block in enumerate(beginning) if "cache_control" in block]
    read = written = 0
    if marked:
        text = json.dumps(beginning[: marked[-1] + 1])
        read, written = (len(text), 0) if text in cached else (0, len(text))
        cached.add(text)
    usage = {"input_tokens": 10, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    return usage | {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}}


def _has_results(message: dict[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in message["content"])


def _said(value: Any) -> str:
    return f"answer {int(hashlib.sha256(json.dumps(value).encode()).hexdigest(), 16) % 1000}"


def mock_google(endpoint: Endpoint) -> Endpoint:
    """Let an endpoint speak Gemini's generateContent and batchEmbedContents."""

    def answer(request: Request) -> Reply:
        endpoint.requests[-1] = request = _in_camel_case(request)
        if endpoint.headers[-1].get("x-goog-api-key") == WRONG_KEY:
            return google_error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
        before, _, model = endpoint.paths[-1].partition("?")[0].rpartition("/v1beta/models/")
        model, _, operation = model.partition(":")
        try:
            if operation == "batchEmbedContents":
                return Reply({"embeddings": [{"values": [0.5, 0.25]} for _ in request["requests"]]})
            _wants(operation == "generateContent", f"{before}: no such path")
            _check_contents(request, model)
        except _RefusedError as error:
            return google_error(400, "INVALID_ARGUMENT", str(error))
        return Reply(_candidates(request, model))

    endpoint.answer = answer
    return endpoint


def _in_camel_case(value: Any, name: str = "") -> Any:
    """Return a request with the names of JSON, for which the API, and the SDK, take those of its definition, too."""
    if isinstance(value, list):
        return [_in_camel_case(item, name) for item in value]
    if not isinstance(value, dict) or name in ("parametersJsonSchema", "responseJsonSchema", "args", "response"):
        return value
    names = {key: "".join(part.title() if turn else part for turn, part in enumerate(key.split("_"))) for key in value}
    return {names[key]: _in_camel_case(item, names[key]) for key, item in value.items()}


def google_error(status: int, code: str, message: str, wait: str = "") -> Reply:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait}] if wait else []
    return Reply({"error": {"code": status, "message": message, "status": code, "details": details}}, status)


def _check_contents(request: Request, model: str) -> None:
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"}
    config = request.get("generationConfig", {})
    for name in request.keys() - known | config.keys() - _OF_CONFIG:
        raise _RefusedError(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    _wants(model != "new" or "temperature" not in config, "temperature is not supported by this model")
    for content in request["contents"]:
        _wants(content["role"] in ("user", "model") and content["parts"], "Please use a valid role: user, model.")
        for part in content["parts"]:
            base64.urlsafe_b64decode(part.get("inlineData", {}).get("data", ""))
        called = [part for part in content["parts"] if "functionCall" in part]
        is_signed = not called or "thoughtSignature" in called[0] or model.startswith("gemini-2")
        _wants(is_signed, "Function call is missing a thought_signature")
    for tool in request.get("tools", []):
        for function in tool["functionDeclarations"]:
            _wants(function.keys() <= {"name", "description", "parametersJsonSchema"}, "Unknown name")


def _candidates(request: Request, model: str) -> dict[str, Any]:
    config, usage = request.get("generationConfig", {}), {"promptTokenCount": 10, "totalTokenCount": 17}
    whole = {"modelVersion": f"{model}-1", "responseId": "resp-1"}
    if model == "blocked":
        return whole | {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage}
    parts: list[dict[str, Any]] = []
    if config.get("thinkingConfig", {}).get("includeThoughts"):
        parts.append({"text": "Let me see.", "thought": True})
    mode = request.get("toolConfig", {}).get("functionCallingConfig", {})
    results = [part for part in request["contents"][-1]["parts"] if "functionResponse" in part]
    if "tools" in request and mode.get("mode") != "NONE" and not results:
        functions = request["tools"][0]["functionDeclarations"]
        wanted = (mode.get("allowedFunctionNames") or [functions[0]["name"]])[0]
        function = next(function for function in functions if function["name"] == wanted)
        args = of_schema(function.get("parametersJsonSchema", {"type": "object"}))
        signature = base64.b64encode(b"signed").decode()
        parts.append({"functionCall": {"name": wanted, "args": args, "id": "fc1"}, "thoughtSignature": signature})
    elif schema := config.get("responseJsonSchema"):
        _wants(config["responseMimeType"] == "application/json", "response_mime_type")
        parts.append({"text": json.dumps(of_schema(schema))})
    else:
        parts.append({"text": _said(request["contents"])})
    reason = "MAX_TOKENS" if config.get("maxOutputTokens", 100) < 5 else "STOP"
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason}
    if model == "refuses":
        candidate = {"finishReason": "SAFETY"}
    if reason == "MAX_TOKENS":  # all of it was thinking
        candidate["content"] = {"role": "model"}
    tokens = {"candidatesTokenCount": 5, "thoughtsTokenCount": 2, "cachedContentTokenCount": 4}
    return whole | {"candidates": [candidate], "usageMetadata": usage | tokens}
