"""Anthropic's and Google's own protocols: what their SDKs send, and what comes of their answers."""

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, Reply, error, serving
from providers import WRONG_KEY, anthropic_error, google_error, mock_anthropic, mock_google

from evalflows.llm import attempts, loop
from evalflows.llm.connect import completer, embedder
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.llm.prices import price_of
from evalflows.llm.protocols.anthropic import message_request
from evalflows.llm.protocols.google import content_request
from evalflows.specs import AnthropicConnection, CallError, Completion, GoogleConnection, InputError, permitted
from evalflows.specs.connections import AnswerForm
from evalflows.specs.errors import ErrorKind
from evalflows.store import Store
from evalflows.store.records import CallRow

KEY = "sk-right-0123456789"
KINDS = ("anthropic", "google")
MODELS = {"anthropic": "claude-sonnet-4-6", "google": "gemini-3-flash-preview"}
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1}, "label": {"const": "good"}},
    "required": ["score", "label"],
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
PDF = base64.b64encode(b"%PDF-1.7 ....").decode()
SOUND = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
PICTURES = [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)


@pytest.fixture
def served() -> Iterator[Mapping[str, Endpoint]]:
    one, other = mock_anthropic(Endpoint()), mock_google(Endpoint())
    with serving(one), serving(other):
        yield {"anthropic": one, "google": other}


def connection(kind: str, endpoint: Endpoint, **changes: Any) -> AnthropicConnection | GoogleConnection:
    made = AnthropicConnection if kind == "anthropic" else GoogleConnection
    fields = {"base_url": endpoint.base_url.removesuffix("/v1"), "model": MODELS[kind], "attempts": 3}
    return made.model_validate(fields | changes)  # type: ignore[return-value]


def ask(
    kind: str, endpoint: Endpoint, messages: Any = "hello", kept: list[CallRow] | None = None, **request: Any
) -> Completion:
    """Return the answer to a question asked by a new experiment."""
    spec = connection(kind, endpoint, **request.pop("connection", {}))
    complete = completer("own", spec, Ledger(Store(), "exp-1", fresh=True))
    recorder = Recorder(keep=(kept if kept is not None else []).append, experiment_id="exp-1", subject_id="run-1")

    async def one() -> Completion:
        with recording(recorder):
            return await complete(messages, **request)

    return loop.run(one())


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_is_sent_in_the_protocol_and_its_answer_recorded_in_openais(
    kind: str, served: Mapping[str, Endpoint]
) -> None:
    endpoint, kept, said = served[kind], list[CallRow](), {"role": "assistant", "content": "Yes?"}
    system, last = {"role": "system", "content": "Be short."}, {"role": "user", "content": PICTURES}
    messages = [system, {"role": "user", "content": "One."}, said, {"role": "assistant", "content": ""}, last]
    answer = ask(kind, endpoint, messages, kept, temperature=0.5, max_tokens=50, stop="END", reasoning_effort="low")
    (sent,), (headers,) = endpoint.requests, endpoint.headers
    assert answer.text.startswith("answer ") and not answer.has_thinking and answer.finish_reason == "stop"
    if kind == "anthropic":
        assert answer.model == "claude-sonnet-4-6-1" and (answer.tokens_in, answer.tokens_out) == (10, 7)
        blocks = sent["messages"][2]["content"]
        assert sent["system"] == [{"type": "text", "text": "Be short."}] and len(sent["messages"]) == 3
        assert blocks[1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
        assert (blocks[2]["type"], blocks[2]["title"], blocks[2]["source"]["data"]) == ("document", "a.pdf", PDF)
        assert (sent["max_tokens"], sent["stop_sequences"]) == (50, ["END"])
        assert sent["output_config"] == {"effort": "low"}
        assert (headers["anthropic-version"], headers["authorization"]) == ("2023-06-01", f"bearer {KEY}")
        assert kept[0].provider_request_id == "req_1"
        ask(kind, endpoint)
        assert endpoint.headers[1]["anthropic-version"] >= "2026-10-21" and "temperature" not in endpoint.requests[1]
        assert endpoint.requests[1]["max_tokens"] == 16_384
    else:
        assert answer.model == "gemini-3-flash-preview-1" and (answer.tokens_in, answer.tokens_out) == (10, 7)
        assert sent["systemInstruction"]["parts"] == [{"text": "Be short."}] and len(sent["contents"]) == 3
        parts = sent["contents"][2]["parts"]
        assert [part.get("inlineData", {}).get("mimeType") for part in parts] == [None, "image/png", "application/pdf"]
        assert base64.urlsafe_b64decode(parts[1]["inlineData"]["data"]) == base64.b64decode(PNG)
        config = sent["generationConfig"]
        assert (config["temperature"], config["maxOutputTokens"], config["stopSequences"]) == (0.5, 50, ["END"])
        assert config["thinkingConfig"] == {"thinkingLevel": "LOW"} and headers["x-goog-api-key"] == KEY
    request, response = json.loads(kept[0].request), json.loads(kept[0].response or "")
    assert request["messages"][0] == system and request["stop"] == "END", "the ledger has OpenAI's form"
    assert response["message"] == {"content": answer.text, "role": "assistant"}
    assert kept[0].tokens_reasoning == 2
    price = price_of(connection(kind, endpoint), MODELS[kind])
    assert price is not None and answer.cost_usd is not None and answer.cost_usd > 0, "by the provider's list"
    assert (kept[0].tokens_cached, kept[0].base_url) == (
        0 if kind == "anthropic" else 4,
        endpoint.base_url.removesuffix("/v1"),
    )


@pytest.mark.parametrize("form", ["json_schema", "tool_call", "text"])
@pytest.mark.parametrize("kind", KINDS)
def test_structured_answers(kind: str, form: AnswerForm, served: Mapping[str, Endpoint]) -> None:
    endpoint = served[kind]
    if form == "text":
        tags = "[[score: 1]]\n[[label: good]]"
        block = {"type": "text", "text": tags}
        of_google = {"candidates": [{"content": {"parts": [{"text": tags}]}, "finishReason": "STOP"}]}
        own = {"type": "message", "content": [block], "stop_reason": "end_turn"}
        endpoint.faults.append(Reply(own if kind == "anthropic" else of_google))
    found = ask(kind, endpoint, schema=SCHEMA, connection={"answer_form": form})
    assert found.parsed["label"] == "good" and found.parsed["score"] == 1
    cut = ask(kind, endpoint, max_tokens=3)
    assert cut.is_truncated and cut.finish_reason == "length"


@pytest.mark.parametrize("kind", KINDS)
def test_tools_are_called_and_their_results_go_back_with_what_the_provider_signed(
    kind: str, served: Mapping[str, Endpoint]
) -> None:
    endpoint = served[kind]
    thinking = {"thinking": {"type": "adaptive"}} if kind == "anthropic" else {}
    if kind == "google":
        thinking = {"thinking_config": {"include_thoughts": True}}
    asked = [{"role": "user", "content": "Rain?"}]
    called = ask(kind, endpoint, asked, tools=[TOOL], tool_choice="required", **thinking)
    assert called.finish_reason == "tool_calls" and called.has_thinking and not called.text
    (call,) = called.tool_calls
    assert call["function"]["name"] == "weather" and json.loads(call["function"]["arguments"])["label"] == "good"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "dry"}
    again = [*asked, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    answer = ask(kind, endpoint, again, tools=[TOOL], **thinking)
    assert answer.text.startswith("answer ") and answer.finish_reason == "stop"
    last = endpoint.requests[-1]
    if kind == "anthropic":
        block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "dry"}]}
        assert last["messages"][2]["content"] == [block] and endpoint.requests[0]["tool_choice"] == {"type": "any"}
        forced = {"type": "function", "function": {"name": "weather"}}
        ask(kind, endpoint, tools=[TOOL], tool_choice=forced, parallel_tool_calls=False)
        wanted = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
        assert endpoint.requests[-1]["tool_choice"] == wanted
    else:
        sent = [part for content in last["contents"] for part in content["parts"]]
        assert base64.urlsafe_b64decode(sent[1]["thoughtSignature"]) == b"signed"
        response = {"id": "fc1", "name": "weather", "response": {"output": "dry"}}
        assert sent[2]["functionResponse"] == response
        del call["extra_content"]  # as if another model had made it
        assert ask(kind, endpoint, again, tools=[TOOL]).text.startswith("answer ")


RETRIED: list[tuple[str, Reply]] = [
    ("anthropic", anthropic_error(529, "overloaded_error", "Overloaded")),
    ("anthropic", anthropic_error(429, "rate_limit_error", "This request would exceed", retry_after="0")),
    ("google", google_error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", "0.001s")),
    ("google", google_error(503, "UNAVAILABLE", "The model is overloaded.")),
    *((kind, Reply("", cut=True)) for kind in KINDS),
    *((kind, Reply("{not json")) for kind in KINDS),
    ("anthropic", Reply({"content": [{"type": "text"}]})),
    ("google", Reply({"candidates": [{"content": {"parts": "text"}}]})),
    ("google", Reply({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print("}]})),
]


@pytest.mark.parametrize(("kind", "fault"), RETRIED)
def test_a_passing_fault_is_tried_again(kind: str, fault: Reply, served: Mapping[str, Endpoint]) -> None:
    served[kind].faults.extend([fault, fault])
    answer = ask(kind, served[kind])
    assert (answer.attempts, served[kind].calls) == (3, 3), "the SDK itself does not try again"


UNREADABLE = "the request is not in OpenAI's form: KeyError: 'function'"
REFUSED: list[tuple[str, dict[str, Any], ErrorKind, str]] = [
    ("anthropic", {"model": "refuses"}, "refused", "the model declined (bio)"),
    ("google", {"model": "refuses"}, "refused", "stopped by the provider's content filter (safety)"),
    ("google", {"model": "blocked"}, "refused", "the prompt was blocked (prohibited_content)"),
    ("anthropic", {"temperature": 1.5}, "bad_request", "temperature: got 1.5, wanted at most 1"),
    (
        "anthropic",
        {"seed": 7},
        "bad_request",
        "`seed` is not supported by Anthropic's API; wanted no `seed` of the target, nor in its `extra`",
    ),
    (
        "google",
        {"http_options": {"base_url": "http://127.0.0.1:1"}},
        "bad_request",
        "`http_options` is not supported by Google's API; wanted no `http_options` of the target, nor in its `extra`",
    ),
    (
        "google",
        {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
        "bad_request",
        "messages.1: got a system message after others, wanted it before them",
    ),
    (
        "anthropic",
        {
            "messages": [
                {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}]}
            ]
        },
        "bad_request",
        "messages.0: got audio/wav, wanted pictures and PDFs: Anthropic's API takes no more",
    ),
    ("google", {"safety_settings": 5}, "bad_request", ""),
    *((kind, {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "bad_request", UNREADABLE) for kind in KINDS),
    ("anthropic", {"connection": {"api_key_env": "WRONG"}}, "authentication", "HTTP 401: invalid x-api-key"),
    (
        "google",
        {"connection": {"api_key_env": "WRONG"}},
        "authentication",
        "HTTP 400: API key not valid. Please pass a valid API key.",
    ),
]


@pytest.mark.parametrize(("kind", "request_", "error_kind", "message"), REFUSED)
def test_a_lasting_fault_is_one_line(
    kind: str,
    request_: dict[str, Any],
    error_kind: ErrorKind,
    message: str,
    served: Mapping[str, Endpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WRONG", WRONG_KEY)
    with pytest.raises(CallError) as raised:
        ask(kind, served[kind], **request_)
    said = str(raised.value)
    assert raised.value.kind == error_kind and "\n" not in said and WRONG_KEY not in said
    assert said == message or not message
    assert served[kind].calls <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_takes_no_temperature_is_asked_without(kind: str, served: Mapping[str, Endpoint]) -> None:
    assert ask(kind, served[kind], model="new", temperature=0.0).text
    assert served[kind].calls == 2
    with pytest.raises(CallError, match=r"`top_p` is deprecated for this model|top_p") as raised:
        ask(kind, served[kind], model="new", top_p=0.5) if kind == "anthropic" else ask(kind, served[kind], top_p="x")
    assert raised.value.kind == "bad_request"


@pytest.mark.parametrize("kind", KINDS)
def test_what_happens_to_a_connection_is_told_apart(kind: str, served: Mapping[str, Endpoint]) -> None:
    def fault(**changes: Any) -> CallError:
        with pytest.raises(CallError) as raised:
            ask(kind, served[kind], connection={"attempts": 1, **changes})
        return raised.value

    dead = fault(base_url="http://127.0.0.1:1")
    assert dead.kind == "connection" and str(dead).startswith("http://127.0.0.1:1: "), "which one, among several"
    served[kind].faults.append(Reply("", 302, {"location": "https://elsewhere.example/x?key=1"}))
    moved = fault()
    assert str(moved) == "HTTP 302: redirects to https://elsewhere.example/x, wanted that address in the spec"
    served[kind].faults.append(Reply({"long": "x" * 2_000_000}))
    assert str(fault(max_response_mb=1)) == "the response is larger than 1 MB (max_response_mb)"
    served[kind].latency_s = 1.0
    for slow in ({"read_timeout_s": 0.2}, {"timeout_s": 0.2}):
        assert fault(**slow).kind == "timeout"


def test_variables_of_the_sdks_send_no_key_elsewhere(
    served: Mapping[str, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-of-another-0123456789")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-secret: 1")
    for kind in KINDS:
        ask(kind, served[kind])
        assert "sk-of-another" not in str(served[kind].headers) and KEY in str(served[kind].headers)
    assert served["anthropic"].headers[-1]["x-secret"] == "1"
    monkeypatch.setattr(permitted, "_limits", permitted._Limits(Path("/"), (), {permitted.variable("OWN"): []}))
    ask("anthropic", served["anthropic"], connection={"api_key_env": None})
    assert "x-secret" not in served["anthropic"].headers[-1], "a deployment's run may not send it there"


def test_a_key_is_redacted_limits_are_read_and_no_key_is_sent_without_one(served: Mapping[str, Endpoint]) -> None:
    rejected = [(kind, f"your key {KEY} is wrong") for kind in KINDS]
    for kind, message in rejected:
        served[kind].faults.append(error(403, message))
        with pytest.raises(CallError, match="your key … is wrong"):
            ask(kind, served[kind])
        ask(kind, served[kind], connection={"api_key_env": None, "headers": {"x-team": "a"}})
        last = served[kind].headers[-1]
        assert last["x-team"] == "a" and not {"authorization", "x-goog-api-key", "x-api-key"} & last.keys()
    query = connection("google", served["google"]).base_url + "/gate?version=1"
    ask("google", served["google"], connection={"base_url": query})
    ask("anthropic", served["anthropic"], connection={"base_url": query.replace(*_bases(served))})
    assert served["google"].paths[-1] == "/gate/v1beta/models/gemini-3-flash-preview:generateContent?version=1"
    assert served["anthropic"].paths[-1] == "/gate/v1/messages?version=1"


def _bases(served: Mapping[str, Endpoint]) -> tuple[str, str]:
    return served["google"].base_url.removesuffix("/v1"), served["anthropic"].base_url.removesuffix("/v1")


def test_a_long_beginning_is_marked_written_once_and_read_then(served: Mapping[str, Endpoint]) -> None:
    endpoint, kept = served["anthropic"], list[CallRow]()
    system = {"role": "system", "content": "rule " * 400}
    for question in ("one", "two"):
        ask("anthropic", endpoint, [system, {"role": "user", "content": question}], kept)
    assert kept[0].tokens_cached == 0 and (kept[1].tokens_cached or 0) > 2000
    assert kept[0].cost_usd is not None and kept[1].cost_usd is not None
    first = kept[0].tokens_in or 0
    assert kept[0].cost_usd == pytest.approx(((first - 10) * 3.75 + 10 * 3 + 7 * 15) / 1e6), "writing costs more"
    assert kept[1].cost_usd == pytest.approx(((first - 10) * 0.30 + 10 * 3 + 7 * 15) / 1e6), "reading costs a tenth"
    text, short = "rule " * 400, "Is it so?"
    parts = [{"type": "text", "text": text}, {"type": "text", "text": short}]
    marked = [
        (message_request({"model": "m", "messages": [{"role": "user", "content": content}, *more]}))["messages"]
        for content, more in ((text, []), (parts, []), (text, [{"role": "assistant", "content": "No."}]), (short, []))
    ]
    marks = [[["cache_control" in block for block in turn["content"]] for turn in turns] for turns in marked]
    assert marks == [[[False]], [[True, False]], [[True], [False]], [[False]]], "what ends a request is not marked"
    ask("anthropic", endpoint, [system, {"role": "user", "content": "x"}], connection={"prompt_caching": False})
    assert "cache_control" not in json.dumps(endpoint.requests[-1])


def test_limits_of_anthropic_are_read() -> None:
    from evalflows.llm.rate_limits import read_rate_limit

    reset = (datetime.now(UTC) + timedelta(seconds=30)).isoformat().replace("+00:00", "Z")
    headers = {"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": reset}
    found = read_rate_limit(headers | {"anthropic-ratelimit-requests-remaining": "7"})
    assert found.is_empty and found.wait_s == pytest.approx(30, abs=2)
    assert read_rate_limit(headers | {"retry-after": "3"}).wait_s == 3


def test_google_gives_embeddings_and_anthropic_has_none(served: Mapping[str, Endpoint]) -> None:
    def embed(kind: str) -> list[list[float]]:
        made = embedder("own", connection(kind, served[kind]), Ledger(Store(), "exp-1"), model="embedding-1")
        return asyncio.run(_awaited(made))

    async def _awaited(made: Callable[..., Any]) -> Any:
        return await made(["a", "b"])

    assert embed("google") == [[0.5, 0.25]] * 2
    with pytest.raises(CallError, match="Anthropic's API has no embeddings, wanted another connection"):
        embed("anthropic")
    with pytest.raises(ValueError, match="wanted none: Anthropic's API has no embeddings"):
        AnthropicConnection(embedding_model="m")


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_sdk_one_line_says_what_to_install(
    kind: str, served: Mapping[str, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"anthropic": "anthropic", "google": "google.genai"}[kind]
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    with pytest.raises(InputError) as raised:
        ask(kind, served[kind])
    wanted = f"connection 'own': kind: {kind} needs the package {package}: pip install \"evalflows[{kind}]\""
    assert str(raised.value) == wanted


def test_efforts_and_addresses_of_pictures_become_the_models_own() -> None:
    url = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    asked = {"model": "gemini-2.5-pro", "messages": [{"role": "user", "content": [url]}], "reasoning_effort": "high"}
    contents, config = content_request(asked)
    assert config["thinking_config"] == {"thinking_budget": 24_576}
    assert contents[0]["parts"] == [{"file_data": {"file_uri": "https://example.org/a.png", "mime_type": "image/png"}}]
    (turn,) = message_request(asked)["messages"]
    assert turn["content"] == [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]
