"""A reasoning model as OpenAI serves it: it refuses parameters of other models by its provider's messages, and reports
what it thought and what its cache held."""

import json

from endpoint import Reply, Request, completion, error

UNSUPPORTED = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
ONLY_DEFAULT = (
    "Unsupported value: 'temperature' does not support {} with this model. Only the default (1) value is supported."
)
THOUGHT, SAID, CACHED = 192, 8, 1024
VERDICT = {"reasoning": "It says so.", "verdict": "correct", "correct": True, "ok": True}


def answer(request: Request) -> Reply:
    """Answer a request, or refuse one of its parameters."""
    if request.get("max_tokens") is not None:
        return error(400, UNSUPPORTED, code="unsupported_parameter")
    if request.get("temperature", 1) != 1:
        return error(400, ONLY_DEFAULT.format(request["temperature"]), code="unsupported_value")
    effort = request.get("reasoning_effort", "medium")
    if effort not in ("low", "medium", "high"):
        body = {"message": f"Invalid value: '{effort}'. Supported values are: 'low', 'medium', and 'high'."}
        return Reply({"error": body | {"param": "reasoning_effort", "code": "invalid_value"}}, 400)
    properties = request.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("properties", {})
    said = json.dumps({name: VERDICT[name] for name in properties}) if properties else "4"
    reply = completion(said)
    reply.body["usage"] = {
        "prompt_tokens": 1200,
        "completion_tokens": THOUGHT + SAID,
        "total_tokens": 1200 + THOUGHT + SAID,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens_details": {"reasoning_tokens": THOUGHT},
    }
    return reply
