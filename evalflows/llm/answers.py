"""Read a model's answer: its message in OpenAI's form, whatever it came in, why it ended, and the tokens it took."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from evalflows.llm.endpoint_errors import error_in_choice
from evalflows.specs.errors import CallError
from evalflows.store.records import to_json

End = Literal["whole", "truncated", "filtered", "failed"]

_ENDS: dict[str, End] = {
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"), "truncated"
    ),
    **dict.fromkeys(
        (
            *("content_filter", "content_filtered", "safety", "image_safety", "recitation", "blocklist", "spii"),
            *("prohibited_content", "guardrail_intervened", "refusal", "sensitive", "language", "escalation"),
            *("image_prohibited_content", "image_recitation", "model_armor", "pup_limited_disabled"),
        ),
        "filtered",
    ),
    **dict.fromkeys(("error", "malformed_function_call", "malformed_response", "network_error"), "failed"),
    **dict.fromkeys(("missing_thought_signature", "too_many_tool_calls", "unexpected_tool_call"), "failed"),
}
"""What finish reasons mean, in lower case: those of OpenAI, and those that gateways pass on from other providers."""


def end_of(finish_reason: str | None) -> End:
    """Return how an answer ended; `whole` for a finish reason that is not known."""
    return _ENDS.get((finish_reason or "").lower(), "whole")


def completion_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row fields of a chat completion. Raise CallError for an unusable answer or a refusal."""
    choice = _first(body)
    message, finish = _message(choice), finish_of(body)
    if choice.get("error") or end_of(finish) == "failed":
        raise error_in_choice(choice, finish or "error")
    if message.get("refusal") or end_of(finish) == "filtered":
        refusal = " ".join(str(message.get("refusal") or "").split())
        raise CallError("refused", refusal or f"stopped by the provider's content filter ({finish})")
    return {
        "response": to_json({"message": message}, mend=True),
        "finish_reason": finish,
        "answered_by": body["model"] if isinstance(body.get("model"), str) else None,
        "system_fingerprint": fingerprint if isinstance(fingerprint := body.get("system_fingerprint"), str) else None,
    }


def finish_of(body: Mapping[str, Any]) -> str | None:
    """Return the finish reason of a chat completion; None if it has none, as one that is unusable."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    finish = choice.get("finish_reason") if isinstance(choice, Mapping) else None
    return finish if isinstance(finish, str) else None


def is_empty(message: Mapping[str, Any]) -> bool:
    """Return whether an answer has neither text nor tool calls."""
    return not (message.get("content") or "").strip() and not message.get("tool_calls")


def has_thinking(message: Mapping[str, Any]) -> bool:
    """Return whether an answer has the model's thinking apart from its text."""
    return any(message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))


def empty_answer(message: Mapping[str, Any], finish_reason: str | None) -> CallError:
    """Return the error of an answer without text; a model may have spent all its tokens on thinking."""
    what = "only thinking, no text" if has_thinking(message) else "no text"
    return CallError("empty_answer", f"the answer has {what} (finish_reason {finish_reason})")


def _first(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        got = ", ".join(map(str, [*body][:8])) or "nothing"
        raise CallError("bad_answer", f"the answer has no choices, got {got[:200]}")
    return choices[0]


def _message(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a choice in OpenAI's form: content as text, arguments of tool calls as JSON text."""
    given = choice.get("message")
    if given is None and isinstance(choice.get("text"), str):  # of the older completions
        given = {"role": "assistant", "content": choice["text"]}
    if not isinstance(given, Mapping):
        raise CallError("bad_answer", "the answer's first choice has no message")
    message = {name: value for name, value in given.items() if value is not None}
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = "".join(map(_text_of_part, content))
    elif not isinstance(content, str | None):
        message["content"] = to_json(content, mend=True)
    calls = message.get("tool_calls")
    if not isinstance(calls, list | None):
        raise CallError("bad_answer", f"the answer's tool calls: got {type(calls).__name__}, wanted a list")
    if not calls and isinstance(message.get("function_call"), Mapping):  # the older form of a tool call
        calls = [{"type": "function", "function": message["function_call"]}]
    if calls:
        message["tool_calls"] = [_with_text(call) for call in calls]
    return message


def _text_of_part(part: Any) -> str:
    """Return the text of a part of the content; of thinking and of what is no text, nothing."""
    if isinstance(part, str):
        return part
    is_text = isinstance(part, Mapping) and part.get("type", "text") in ("text", "output_text")
    return part["text"] if is_text and isinstance(part.get("text"), str) else ""


def _with_text(call: Any) -> Any:
    """Return a tool call whose arguments are JSON text."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), Mapping | list):
        return call
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
