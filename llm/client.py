"""One endpoint: a single attempt at a call, as the OpenAI SDK makes it."""

from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletion

from llm.faults import classify
from specs.errors import CallError


class Client:
    """An OpenAI-compatible endpoint. It does not retry: every 429 must reach the limiter."""

    def __init__(self, base_url: str, key: str | None, *, max_in_flight: int, timeout_s: float) -> None:
        # The pool keeps only 20 connections alive unless told otherwise, which costs 2.6 times the time.
        limits = httpx2.Limits(max_connections=max_in_flight, max_keepalive_connections=max_in_flight)
        self._sdk = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",
            max_retries=0,
            timeout=timeout_s,
            http_client=openai.DefaultAsyncHttpxClient(limits=limits, timeout=timeout_s),
        )

    async def chat(self, request: dict[str, Any]) -> tuple[ChatCompletion, str | None]:
        """One attempt: the answer, and the provider's id of the request. Raises CallError."""
        known = {name: value for name, value in request.items() if name in _SDK_PARAMETERS}
        extra = {name: value for name, value in request.items() if name not in _SDK_PARAMETERS}
        try:
            raw = await self._sdk.chat.completions.with_raw_response.create(**known, extra_body=extra or None)
            answer = raw.parse()
        except Exception as error:
            raise classify(error) from error
        if not isinstance(answer, ChatCompletion) or not answer.choices:
            raise CallError("bad_answer", "the answer has no choices")
        return answer, raw.headers.get("x-request-id")


_SDK_PARAMETERS = frozenset(
    {
        *("messages", "model", "temperature", "top_p", "max_tokens", "max_completion_tokens", "n", "seed", "stop"),
        *("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "user", "service_tier", "metadata"),
    }
)
"""What the SDK's method takes by name and we pass so; any other parameter goes into the body as it is."""
