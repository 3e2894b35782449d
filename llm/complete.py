"""`complete`: chat completions for evaluators and targets."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalflows.llm import structured_output
from evalflows.llm.caller import Caller
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Completion, Message
from evalflows.store.records import CallRow, to_json

if TYPE_CHECKING:
    from evalflows.llm.client import Response


MAX_TOKENS = ("max_tokens", "max_completion_tokens")
"""The parameters of a request that limit the length of its answer."""


class Completer:
    """`complete` for one connection and one experiment."""

    def __init__(self, caller: Caller, model: str | None) -> None:
        self.endpoint, self._caller, self._model = caller.endpoint, caller, model

    async def __call__(
        self,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        request = self._request(messages, schema, model, parameters)

        def read(response: "Response") -> dict[str, Any]:
            fields = completion_fields(response.body)
            limited = schema is None and any(request.get(name) is not None for name in MAX_TOKENS)
            fields["reusable"] = limited or fields["finish_reason"] != "length"  # else another try may be complete
            self._parsed(json.loads(fields["response"])["message"], schema, fields["finish_reason"])
            return fields

        row, cached = await self._caller.call("chat", request, read, repeat)
        message = json.loads(row.response or "{}").get("message", {})
        return _completion(row, message, self._parsed(message, schema, row.finish_reason), cached)

    def _parsed(self, message: Mapping[str, Any], schema: dict[str, Any] | None, finish_reason: str | None) -> Any:
        """Return the answer as JSON; None without a schema, or if the model called one of the request's own tools."""
        form = self.endpoint.connection.answer_form
        if schema is None or (form == "json_schema" and message.get("tool_calls")):
            return None
        return structured_output.read_answer(message, schema, form, finish_reason)

    def _request(
        self,
        messages: str | Sequence[Message],
        schema: dict[str, Any] | None,
        model: str | None,
        parameters: dict[str, Any],
    ) -> dict[str, Any]:
        model = model or self._model
        if not model:
            name = self.endpoint.name
            raise CallError("bad_request", f"connection {name!r}: no model, wanted one in the spec")
        content = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        request = {"model": model, "messages": content} | parameters
        connection = self.endpoint.connection
        if schema is not None:
            request = structured_output.with_response_format(request, schema, connection.answer_form)
        if connection.kind == "local":
            # For reproducible answers: earlier requests must not decide which tokens are recomputed.
            request = {"temperature": 0.0, "cache_prompt": False} | request
        return request


def completion_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row fields of a chat completion. Raises CallError for an unusable answer or a refusal."""
    choice = _first(body.get("choices"))
    message, finish = choice.get("message"), choice.get("finish_reason")
    if not isinstance(message, Mapping):
        raise CallError("bad_answer", "the answer's first choice has no message")
    message = {name: value for name, value in message.items() if value is not None}
    if finish == "content_filter" or message.get("refusal"):
        refusal = " ".join(str(message.get("refusal") or "").split())
        raise CallError("refused", refusal or "stopped by the provider's content filter")
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str | None) or not isinstance(calls, list | None):
        got = type(calls if isinstance(content, str | None) else content).__name__
        raise CallError("bad_answer", f"the answer's content or tool calls: got {got}, wanted text and a list")
    return {
        "response": to_json({"message": message}, mend=True),
        "finish_reason": finish if isinstance(finish, str) else None,
        "answered_by": body["model"] if isinstance(body.get("model"), str) else None,
    }


def _first(choices: object) -> Mapping[str, Any]:
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise CallError("bad_answer", "the answer has no choices")
    return choices[0]


def _completion(row: CallRow, message: Mapping[str, Any], parsed: Any, cached: bool) -> Completion:
    return Completion(
        text=message.get("content") or "",
        parsed=parsed,
        tool_calls=message.get("tool_calls") or [],
        finish_reason=row.finish_reason,
        model=row.answered_by or row.model,
        call_id=row.call_id,
        cached=cached,
        attempts=row.attempts,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_usd=0.0 if cached else row.cost_usd,
        latency_s=row.latency_s,
    )
