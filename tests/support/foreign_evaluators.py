"""What the tests of other projects' evaluators share: a judge on loopback, a network that is not there, the flow."""

import ipaddress
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from endpoint import Endpoint, Reply, Request, completion, error

from evalflows import evaluate
from evalflows.api.results import ExperimentResult
from evalflows.llm import wrap
from evalflows.store.records import JudgementRow, from_json

WRONG = "Sydney"
"""The judge finds fault with an answer that says this, and with no other."""

ANSWERS = {"capital of France": "Paris", "capital of Australia": WRONG, "capital of Japan": "tokyo", "unknown": "42"}

ROWS = [
    {"id": "right", "inputs": {"input": "capital of France"}, "outputs": {"output": "Paris"}},
    {"id": "wrong", "inputs": {"input": "capital of Australia"}, "outputs": {"output": "Canberra"}},
    {"id": "near", "inputs": {"input": "capital of Japan"}, "outputs": {"output": "Tokyo"}},
    {"id": "open", "inputs": {"input": "unknown"}, "metadata": {"topic": "none"}},
]
"""Right, wrong, right but for a letter, and without a reference."""

PROVIDER = "https://api.openai.com/v1"


def answers(input: str) -> str:  # noqa: A002 - the field's name
    """The target: what it returns is wrapped as {"output": …}."""
    return ANSWERS[input]


def verdict(request: Request) -> Reply:
    """A judge of every dialect: a choice, a JSON schema, or a tool that is given the fields that it wants."""
    asked = json.dumps(request["messages"])
    good = WRONG not in asked
    if "response_format" in request:
        return completion(json.dumps({"reasoning": f"It {'agrees' if good else 'differs'}.", "score": good}))
    (tool,) = request["tools"]
    fields = tool["function"]["parameters"]["properties"]
    said: dict[str, Any] = {"choice": _choice(fields, good), "reasons": "Compared.", "reason": f"good: {good}"}
    said |= {"pass": good, "score": float(good)}
    arguments = json.dumps({name: said[name] for name in fields})
    call = {"id": "call-1", "type": "function", "function": {"name": tool["function"]["name"], "arguments": arguments}}
    return completion(None, finish_reason="tool_calls", tool_calls=[call])


def _choice(fields: Mapping[str, Any], good: bool) -> str:
    """Of autoevals' letters C is all the same and D disagrees; of yes and no, the fitting one."""
    known = fields.get("choice", {}).get("enum", [])
    fitting = ("C", "Yes", "Y") if good else ("D", "No", "N")
    return next((choice for choice in known if choice in fitting), "")


def refusing(request: Request) -> Reply:
    return error(400, "this judge answers nobody")


def client(endpoint: Endpoint) -> openai.OpenAI:
    """A client whose calls are recorded."""
    return wrap(openai.OpenAI(base_url=endpoint.base_url, api_key="key-of-the-test", max_retries=0))


def async_client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    return wrap(openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="key-of-the-test", max_retries=0))


def priced_client(endpoint: Endpoint) -> openai.OpenAI:
    """A client of the provider's address, whose requests go to the endpoint: so that its calls have a price."""
    http = openai.DefaultHttpxClient()
    send, (host, port) = http.send, endpoint.base_url.removeprefix("http://").removesuffix("/v1").split(":")

    def rerouted(request: Any, **options: Any) -> Any:
        request.url = request.url.copy_with(scheme="http", host=host, port=int(port))
        return send(request, **options)

    http.send = rerouted  # type: ignore[method-assign]
    return wrap(openai.OpenAI(base_url=PROVIDER, api_key="key-of-the-test", max_retries=0, http_client=http))


def judged(
    evaluators: Sequence[Any],
    *,
    rows: Sequence[Mapping[str, Any]] = ROWS,
    target: Callable[..., Any] = answers,
    **options: Any,
) -> ExperimentResult:
    """The rows answered by the target, and judged in one flow."""
    return evaluate(target, rows, evaluators, **options)


def scores_of(result: ExperimentResult, metric: str) -> dict[str, JudgementRow]:
    """The rows of one metric, by the id of their example."""
    named = ((item.example.example_id, score) for item in result for score in item.scores if score.metric == metric)
    found: dict[str, JudgementRow] = {}
    for example, score in named:
        assert example not in found, f"{metric} twice for {example}"
        found[example] = score
    return found


def said(score: JudgementRow) -> tuple[float | None, str | None, str | None]:
    """The value, the label and the comment of a row that was scored."""
    assert score.status == "scored", (score.metric, score.status, score.error)
    return score.value, score.label, score.comment


def kept(score: JudgementRow) -> Any:
    return from_json(score.metadata)


@contextmanager
def no_network(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Only loopback can be reached; the list has every other address that was tried, and must stay empty."""
    tried: list[str] = []
    connect, find = socket.socket.connect, socket.getaddrinfo

    def guarded(own: socket.socket, address: Any) -> Any:
        if isinstance(address, tuple) and not _is_loopback(str(address[0])):
            tried.append(str(address[0]))
            raise OSError(f"{address[0]}: there is no network in this test")
        return connect(own, address)

    def found(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host is not None and not _is_loopback(str(host)):
            tried.append(str(host))
            raise socket.gaierror(f"{host}: there is no network in this test")
        return find(host, *args, **kwargs)

    patch.setattr(socket.socket, "connect", guarded)
    patch.setattr(socket, "getaddrinfo", found)
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGSMITH_TRACING_V2", "OPENAI_BASE_URL"):
        patch.delenv(name, raising=False)
    yield tried
    assert not tried, f"tried to reach {tried}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
