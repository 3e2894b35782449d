"""What a call costs: by a connection's own prices, by the price list, or unknown."""

import asyncio
import json
from typing import Any

import pytest
from endpoint import Endpoint, Reply, completion, error, serving
from genai_prices import Usage, calc_price
from store_rows import make_row

from evalflows.llm import attempts, loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.llm.prices import Price, Tokens, price_of, tokens_of
from evalflows.specs import EndpointConnection
from evalflows.specs.attribute_aliases import LISTED_COST
from evalflows.store import Store
from evalflows.store.records import CallRow, to_json
from evalflows.telemetry.costs import with_listed_costs

MODEL = "gpt-4o-mini"
OPENAI = "https://api.openai.com/v1"
LONG = "gemini-2.5-pro"
"""A Google model: prompts of more than 200,000 tokens cost more per token."""
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


def connection(base_url: str = "http://127.0.0.1:1/v1", **fields: Any) -> EndpointConnection:
    return EndpointConnection(base_url=base_url, **fields)


def price(model: str, **fields: Any) -> Price:
    found = price_of(connection(**fields), model)
    assert found is not None
    return found


def by_the_list(provider: str, model: str, **usage: int) -> float:
    return float(calc_price(Usage(**usage), model, provider_id=provider).total_price)


# Whose price


def test_ones_own_price_beats_the_list() -> None:
    own = {"usd_per_million_input_tokens": 2.0, "usd_per_million_output_tokens": 10.0}
    for fields in ({"base_url": OPENAI}, {"price_list": "openai"}, {}):
        found = price("gpt-4o-mini", **own, **fields)
        assert found.listed is None
        assert found.cost(Tokens(1_000_000, 500_000, 100_000)) == pytest.approx(2.0 + 1.0)
    found = price("gpt-4o-mini", **own, usd_per_million_cached_tokens=0.2)
    assert found.cost(Tokens(1_000_000, 500_000, 100_000)) == pytest.approx(1.0 + 0.1 + 1.0)
    with pytest.raises(ValueError, match="usd_per_million_cached_tokens: wanted only with usd_per_million_input"):
        connection(usd_per_million_cached_tokens=0.2)


@pytest.mark.parametrize(
    "fields",
    [
        {"base_url": OPENAI},
        {"base_url": f"{OPENAI}/"},
        {"price_list": "openai"},
        {"base_url": "http://127.0.0.1:1/v1", "price_list": "openai"},
    ],
)
@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4o"])
def test_the_list_is_looked_up_by_address_or_by_name(fields: dict[str, Any], model: str) -> None:
    wanted = by_the_list("openai", model, input_tokens=1234, output_tokens=567)
    assert price(model, **fields).cost(Tokens(1234, None, 567)) == pytest.approx(wanted) != 0.0


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("no-such-model", {"base_url": OPENAI}),
        ("no-such-model", {"price_list": "openai"}),
        ("gpt-4o", {"price_list": "no-such-provider"}),
        ("", {"base_url": OPENAI}),
    ],
)
def test_what_nobody_knows_has_no_price(model: str, fields: dict[str, Any]) -> None:
    assert price_of(connection(**fields), model) is None


def test_behind_a_gateway_a_model_has_the_price_of_its_name_as_in_traces_and_that_is_said() -> None:
    wanted = by_the_list("openai", "gpt-4o-mini", input_tokens=1234, output_tokens=567)
    for address in ("http://127.0.0.1:1/v1", "https://models.example.com/v1"):
        found = price("gpt-4o-mini", base_url=address)
        assert found.cost(Tokens(1234, None, 567)) == pytest.approx(wanted)
        assert found.note("gpt-4o-mini").startswith("gpt-4o-mini: the price is OpenAI's for a model of this name")
    assert price("gpt-4o-mini", base_url=OPENAI).note("gpt-4o-mini") == ""
    attributes = {"gen_ai.request.model": "gpt-4o-mini", "gen_ai.usage.input_tokens": 1234}
    attributes |= {"gen_ai.usage.output_tokens": 567, "server.address": "127.0.0.1"}
    (traced,) = with_listed_costs([make_row("observations", attributes=to_json(attributes))])
    assert json.loads(traced.attributes)[LISTED_COST] == pytest.approx(wanted)


# How much


def test_tokens_that_the_provider_had_in_its_cache_are_cheaper() -> None:
    found = price("gpt-4o-mini", price_list="openai")
    wanted = by_the_list("openai", "gpt-4o-mini", input_tokens=1000, cache_read_tokens=800, output_tokens=10)
    whole, cached = (found.cost(Tokens(1000, from_cache, 10)) for from_cache in (None, 800))
    assert cached == pytest.approx(wanted)
    assert whole is not None and cached is not None and cached < whole
    assert found.cost(Tokens(1000, 0, 10)) == whole
    found = price("gpt-4o-mini", price_list="openai")
    assert found.cost(Tokens(1000, 5000, 10)) == found.cost(Tokens(1000, 1000, 10))


def test_a_long_prompt_costs_more_a_token_where_the_list_says_so() -> None:
    found = price(LONG, price_list="google")
    below, above = found.cost(Tokens(150_000, None, 1000)), found.cost(Tokens(300_000, None, 1000))
    assert below == pytest.approx(by_the_list("google", LONG, input_tokens=150_000, output_tokens=1000))
    assert above == pytest.approx(by_the_list("google", LONG, input_tokens=300_000, output_tokens=1000))
    assert below is not None and above is not None and above > 2.5 * below
    assert found.usd_per_million_input_tokens * 150_000 / 1e6 < below, "the plain price is that of short ones"


@pytest.mark.parametrize("tokens", [Tokens(), Tokens(None, None, 5), Tokens(None, 3, None)])
def test_what_the_provider_does_not_say_costs_nobody_knows_what(tokens: Tokens) -> None:
    assert price("gpt-4o-mini", price_list="openai").cost(tokens) is None
    assert price("m", usd_per_million_input_tokens=1.0, usd_per_million_output_tokens=1.0).cost(tokens) is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, Tokens(10, None, 5)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}, Tokens(10, 4, None)),
        ({"prompt_tokens": "10", "completion_tokens": True}, Tokens(10)),
        ({"input_tokens": 10.0, "output_tokens": "5"}, Tokens(10, None, 5)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "completion_tokens": 5}, Tokens(10, 4, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 75}, Tokens(10, None, 65, 60)),
        ({"prompt_tokens": 10, "total_tokens": 10}, Tokens(10)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 60}},
            Tokens(10, None, 65, 60),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 75, "reasoning_tokens": 50},
            Tokens(10, None, 65, 50),
        ),
        (
            {"input_tokens": 10, "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 40}},
            Tokens(10, None, 50, 40),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "reasoning_tokens": 60},
            Tokens(10, None, 5, 5),
        ),
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 20,
            },
            Tokens(120, 90, 5, None, 20),
        ),
        ({"prompt_tokens": 100, "cache_read_input_tokens": 90, "completion_tokens": 5}, Tokens(100, 90, 5)),
        ({"prompt_tokens": -1, "completion_tokens": 1.5}, Tokens()),
        ({"prompt_tokens": 10**30, "completion_tokens": 7}, Tokens(None, None, 7)),
        (None, Tokens()),
    ],
)
def test_what_a_response_says_that_it_used(usage: Any, tokens: Tokens) -> None:
    assert tokens_of({"usage": usage}) == tokens


# What is paid for answers that are of no use


def used(reply: Reply, into: int, out: int, **details: Any) -> Reply:
    """A reply with this usage."""
    usage = {"prompt_tokens": into, "completion_tokens": out, **details}
    return Reply(reply.body | {"usage": usage}, reply.status)


def asked(*replies: Reply, model: str = MODEL, **fields: Any) -> CallRow:
    """Return the row of a call that gets these replies, one per attempt."""
    kept: list[CallRow] = []
    coming = iter(replies)
    with serving(Endpoint(answer=lambda _: next(coming))) as endpoint:
        complete = completer("mock", connection(endpoint.base_url, **fields), Ledger(Store(), "exp-1"), model=model)

        async def ask() -> None:
            with recording(Recorder(keep=kept.append)):
                await asyncio.gather(complete("hello", schema=SCHEMA), return_exceptions=True)

        loop.run(ask())
        assert endpoint.calls == len(replies)
    (row,) = kept
    return row


GOOD, BAD = completion('{"score": 1}'), completion("not JSON")
OWN = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 10.0}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)


def test_bad_answers_and_the_good_one_after_them_are_billed_together() -> None:
    row = asked(used(BAD, 100, 7), used(BAD, 100, 9), used(GOOD, 100, 5), **OWN)
    assert (row.status, row.attempts, row.tokens_in, row.tokens_out) == ("ok", 3, 300, 21)
    assert row.cost_usd == pytest.approx((300 * 1 + 21 * 10) / 1e6)


@pytest.mark.parametrize(
    "reply",
    [
        completion(None, refusal="I will not"),
        completion("half", finish_reason="content_filter"),
        completion('{"sco', finish_reason="length"),
        BAD,
    ],
)
def test_an_answer_that_is_of_no_use_is_billed(reply: Reply) -> None:
    row = asked(used(reply, 100, 7), **OWN, attempts=1)
    assert (row.status, row.tokens_in, row.tokens_out) == ("failed", 100, 7)
    assert row.cost_usd == pytest.approx((100 * 1 + 7 * 10) / 1e6)


def test_where_one_of_the_attempts_does_not_say_what_it_used_nobody_knows_the_cost() -> None:
    silent = Reply({name: value for name, value in BAD.body.items() if name != "usage"})
    row = asked(silent, used(GOOD, 100, 5), **OWN)
    assert (row.status, row.attempts, row.tokens_in, row.cost_usd) == ("ok", 2, 100, None)
    assert row.estimated_usd and row.estimated_usd > (100 * 1 + 5 * 10) / 1e6


@pytest.mark.parametrize(
    ("reply", "is_unknown"),
    [
        (Reply("no JSON"), True),
        (Reply("[]"), True),
        (Reply('"' + "x" * 2_000_000 + '"'), True),
        (Reply("", cut=True), True),
        (Reply("{}     ", drip_s=0.2), True),
        (error(500, "down"), False),
        (error(408, "too slow"), False),
    ],
)
def test_the_cost_of_an_answer_that_cannot_be_read_is_unknown(reply: Reply, is_unknown: bool) -> None:
    row = asked(reply, **OWN, attempts=1, timeout_s=0.5, max_response_mb=1)
    assert row.status == "failed"
    if is_unknown:
        assert row.cost_usd is None and row.estimated_usd and row.estimated_usd > 500 * 10 / 1e6, "as if it was long"
    else:
        assert (row.cost_usd, row.estimated_usd) == (0.0, None)


def test_a_free_model_costs_nothing_whatever_it_reports() -> None:
    free = {"usd_per_million_input_tokens": 0.0, "usd_per_million_output_tokens": 0.0}
    assert asked(Reply("no JSON"), Reply(GOOD.body | {"usage": None}), **free).cost_usd == 0.0


def test_a_connection_that_is_refused_costs_nothing() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint()) as endpoint:
        pass
    spec = connection(endpoint.base_url, **OWN, attempts=1)
    complete = completer("mock", spec, Ledger(Store(), "exp-1"), model=MODEL)

    async def ask() -> None:
        with recording(Recorder(keep=kept.append)):
            await asyncio.gather(complete("hello"), return_exceptions=True)

    loop.run(ask())
    assert [(row.error_kind, row.cost_usd) for row in kept] == [("connection", 0.0)]
