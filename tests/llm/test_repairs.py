"""What an endpoint refuses of the form of requests is sent otherwise, once it has said so; values are never mended."""

import asyncio
import json
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows.llm import loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.llm.repairs import Repairs, strict_schema
from evalflows.specs import EndpointConnection
from evalflows.specs.errors import CallError
from evalflows.store.records import CallRow
from evalflows.store.store import Store

SCORE = {"type": "integer", "minimum": 1, "maximum": 5, "description": "The score"}
CLAIM = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
SCHEMA: dict[str, Any] = {
    "title": "verdict",
    "type": "object",
    "properties": {
        "claims": {"type": "array", "minItems": 1, "items": CLAIM},
        "score": SCORE,
        "why": {"type": "string"},
    },
    "required": ["claims", "score"],
}
STRICT = "response_format.json_schema.strict: Input should be True"


def only_strict(request: Request) -> Reply:
    """Answer as an endpoint that takes only strict schemas, without bounds; the score is the question."""
    form = request["response_format"]["json_schema"]
    if form.get("strict") is not True:
        return error(400, STRICT)
    text = json.dumps(form["schema"])
    for name in ("minimum", "maximum", "minItems", "minLength"):
        if f'"{name}":' in text:
            return error(400, f"For 'integer' type, property '{name}' is not supported")
    if text.count('"additionalProperties": false') != text.count('"type": "object"'):
        return error(400, "additionalProperties: must be false")
    score = int(request["messages"][0]["content"])
    return completion(json.dumps({"claims": [{"text": "so"}], "score": score, "why": None}))


def ask_all(url: str, questions: list[str], **given: Any) -> tuple[list[Any], list[CallRow]]:
    kept: list[CallRow] = []

    async def all_at_once() -> list[Any]:
        connection = EndpointConnection(base_url=url, model="m", attempts=1)
        complete = completer("mock", connection, Ledger(Store(), "exp-1"))
        with recording(Recorder(keep=kept.append, experiment_id="exp-1", subject_id="run-1")):
            return await asyncio.gather(*(complete(one, **given) for one in questions), return_exceptions=True)

    return loop.run(all_at_once()), kept


def test_schemas_are_strict_where_an_endpoint_wants_that_and_bounds_are_checked_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(Endpoint(answer=only_strict)) as endpoint:
        found, rows = ask_all(endpoint.base_url, ["1", "4", "9"], schema=SCHEMA)
        assert [getattr(one, "parsed", None) for one in found] == [
            *({"claims": [{"text": "so"}], "score": score} for score in (1, 4)),
            None,
        ]
        assert isinstance(found[2], CallError) and found[2].kind == "bad_answer" and "maximum of 5" in str(found[2])
        assert endpoint.calls <= 6, "each call that was on its way is refused once at most"
        noted = capsys.readouterr().err.splitlines()
        how = "is asked with strict schemas, whose bounds are checked here"
        assert noted == [f"evalflows: connection 'mock': model 'm' {how}: HTTP 400: {STRICT}"]
        before = endpoint.calls
        again, _ = ask_all(endpoint.base_url, ["1", "2"], schema=SCHEMA)
        assert endpoint.calls - before == 2 and again[1].parsed["score"] == 2, "it is remembered"
        sent = json.loads(rows[0].request)["response_format"]["json_schema"]
        assert sent["strict"] and sent["schema"]["properties"]["score"] == {
            "type": "integer",
            "description": "The score (minimum: 1, maximum: 5)",
        }

        map_of_anything = {"type": "object", "properties": {"by_name": {"type": "object"}}, "required": ["by_name"]}
        (refused,), _ = ask_all(endpoint.base_url, ["3"], schema=map_of_anything)
        assert "wanted `answer_form: tool_call` or" in str(refused), "an open object cannot be strict"


def test_a_repair_is_of_a_form_and_never_of_a_value() -> None:
    request = {"model": "m", "messages": [], "temperature": 0.0, "max_tokens": 9, "seed": 1}
    for message in (
        "temperature must be between 0 and 1, only such are supported",
        "max_tokens: the maximum of this model is 4096, more is not supported",
        "Unsupported parameter: 'seed'",
        "the prompt is not allowed",
    ):
        assert not Repairs("it").learn(request, message)

    repairs, moved = Repairs("it"), request | {"model": "other"}
    assert repairs.learn(request, "max_tokens is not supported. Use 'max_completion_tokens' instead.")
    assert repairs.learn(request, "max_tokens is not supported"), "another call was on its way"
    once = repairs.repaired(request)
    assert once == {"model": "m", "messages": [], "temperature": 0.0, "max_completion_tokens": 9, "seed": 1}
    assert not repairs.learn(once, "Unknown parameter: max_completion_tokens"), "never to and fro"
    assert repairs.learn(once, "temperature is deprecated for this model")
    assert "temperature" not in repairs.repaired(request)
    assert repairs.repaired(moved) == moved, "what one model refuses, another may take"
    assert strict_schema(True) is True
