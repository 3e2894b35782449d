"""The budget: never overspent, however many calls are in flight, and used as far as possible."""

import asyncio
import contextlib
import json
import random
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows.llm import attempts, loop
from evalflows.llm.budget import Budget
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.llm.wrapped import wrap
from evalflows.specs import CallError, Completion, EndpointConnection
from evalflows.specs.errors import REFUSED_BY_BUDGET
from evalflows.store import Store
from evalflows.store.records import CallRow

INTO, OUT = 1.0, 10.0  # USD a million
PRICES = {"usd_per_million_input_tokens": INTO, "usd_per_million_output_tokens": OUT}
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
MOST_OUT = 100
Outcome = Completion | BaseException


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)


class Varying:
    """Answers of varying length, up to MOST_OUT tokens; every third is not JSON at the first attempt."""

    def __init__(self, seed: int, *, spoilt: bool = False) -> None:
        self.chance, self.spoilt, self.usd = random.Random(seed), spoilt, 0.0

    def __call__(self, request: Request) -> Reply:
        out, into = self.chance.randint(1, MOST_OUT), len(json.dumps(request)) // 5
        self.usd += (into * INTO + out * OUT) / 1e6
        bad = self.spoilt and self.chance.random() < 1 / 3
        reply = completion("no JSON" if bad else '{"score": 1}')
        return Reply(reply.body | {"usage": {"prompt_tokens": into, "completion_tokens": out}})


def ask(
    endpoint: Endpoint,
    budget: Budget,
    questions: Sequence[str],
    kept: list[CallRow] | None = None,
    connection: dict[str, Any] | None = None,
    **parameters: Any,
) -> list[Outcome]:
    """Return the results of the questions, asked at once within a budget."""
    fields = {"base_url": endpoint.base_url, "model": "m", **(PRICES if connection is None else connection)}
    spec = EndpointConnection.model_validate(fields)
    complete = completer("mock", spec, Ledger(Store(), "exp-1"), budget=budget)

    async def all_at_once() -> list[Outcome]:
        with recording(Recorder(keep=([] if kept is None else kept).append, experiment_id="exp-1")):
            asked = (complete(question, **parameters) for question in questions)
            return await asyncio.gather(*asked, return_exceptions=True)

    return loop.run(all_at_once())


def answered(outcomes: Sequence[Outcome]) -> int:
    others = [outcome for outcome in outcomes if not isinstance(outcome, Completion)]
    assert all(isinstance(outcome, CallError) and outcome.kind in REFUSED_BY_BUDGET for outcome in others), others
    return len(outcomes) - len(others)


def questions(count: int) -> list[str]:
    return [f"question {number}" for number in range(count)]


# Calls


def test_no_call_is_made_beyond_the_most_however_many_come_at_once() -> None:
    budget, kept = Budget(calls=37), list[CallRow]()
    with serving(Endpoint(latency_s=0.002)) as endpoint:
        outcomes = ask(endpoint, budget, questions(200), kept)
    assert answered(outcomes) == endpoint.calls == len(kept) == budget.spent_calls == 37


def test_the_same_question_counts_once_and_whoever_asks_it_is_answered() -> None:
    budget, kept = Budget(calls=10), list[CallRow]()
    asked = [question for question in questions(10) for _ in range(5)]
    random.Random(5).shuffle(asked)
    with serving(Endpoint(latency_s=0.002)) as endpoint:
        outcomes = ask(endpoint, budget, asked, kept)
    assert answered(outcomes) == 50
    assert endpoint.calls == len(kept) == budget.spent_calls == 10


# Money


@pytest.mark.parametrize("parameters", [{}, {"max_tokens": MOST_OUT}], ids=["unlimited", "limited"])
def test_no_more_is_spent_than_is_allowed(parameters: dict[str, Any]) -> None:
    allowed = 0.02
    budget, answer, kept = Budget(usd=allowed), Varying(1), list[CallRow]()
    with serving(Endpoint(latency_s=0.001, answer=answer)) as endpoint:
        outcomes = ask(endpoint, budget, questions(120), kept, **parameters)
    assert 0 < answered(outcomes) == endpoint.calls == len(kept)
    assert answer.usd <= allowed
    assert sum(row.cost_usd or 0.0 for row in kept) == pytest.approx(answer.usd) == budget.spent_usd
    assert allowed - answer.usd < 0.01, "and hardly less, where there is more to ask"
    assert budget.unknown == 0


def test_answers_that_are_of_no_use_do_not_overdraw_it_either() -> None:
    """They are paid, and later attempts come on top."""
    allowed = 0.02
    budget, answer, kept = Budget(usd=allowed), Varying(1, spoilt=True), list[CallRow]()
    with serving(Endpoint(latency_s=0.001, answer=answer)) as endpoint:
        outcomes = ask(endpoint, budget, questions(100), kept, schema=SCHEMA, max_tokens=MOST_OUT)
    assert 0 < len([outcome for outcome in outcomes if isinstance(outcome, Completion)]) < 100
    assert answer.usd <= allowed
    assert sum(row.cost_usd or 0.0 for row in kept) == pytest.approx(answer.usd) == budget.spent_usd
    assert sum(row.attempts for row in kept) == endpoint.calls


def test_calls_near_the_limit_wait_for_those_under_way_and_go_on_if_money_is_left() -> None:
    """Each is estimated at MOST_OUT tokens and costs a tenth of that."""
    budget = Budget(usd=2.5 * MOST_OUT * OUT / 1e6)
    cheap = Reply(completion("x").body | {"usage": {"prompt_tokens": 0, "completion_tokens": MOST_OUT // 10}})
    with serving(Endpoint(latency_s=0.02, answer=lambda _: cheap)) as endpoint:
        assert answered(ask(endpoint, budget, questions(12), max_tokens=MOST_OUT)) == 12
        assert endpoint.peak == 2
    assert budget.spent_usd == pytest.approx(12 * 10 * OUT / 1e6)


def test_calls_that_are_not_sent_yet_are_estimated_anew_where_the_first_answers_cost_more() -> None:
    """Ten calls fit together as they are estimated, at 500 tokens each, and answers have four times as many."""
    budget, kept = Budget(usd=0.052), list[CallRow]()
    long = Reply(completion("x").body | {"usage": {"prompt_tokens": 0, "completion_tokens": 2000}})
    with serving(Endpoint(latency_s=0.01, answer=lambda _: long)) as endpoint:
        outcomes = ask(endpoint, budget, questions(10), kept, connection=PRICES | {"max_in_flight": 2})
    assert answered(outcomes) == endpoint.calls == len([row for row in kept if row.status == "ok"]) == 2
    assert budget.spent_usd == pytest.approx(0.04)
    assert not budget._aside, "nothing stays set aside"


def test_a_call_without_a_price_is_made_only_if_the_budget_does_not_count_it() -> None:
    strict, lenient = Budget(usd=1.0), Budget(usd=1.0, calls=4, counts_unknown=False)
    with serving(Endpoint()) as endpoint:
        assert answered(ask(endpoint, strict, questions(6), connection={})) == endpoint.calls == 0
        assert answered(ask(endpoint, lenient, questions(6), connection={})) == 4
    assert (lenient.unknown, lenient.spent_usd, lenient.spent_calls) == (4, 0.0, 4)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 10}, {"prompt_tokens": -1, "completion_tokens": 5}])
def test_an_endpoint_that_does_not_report_its_tokens_is_bound_by_an_estimate(usage: object) -> None:
    silent = Reply(completion("an answer of some length " * 4).body | {"usage": usage})
    budget, kept = Budget(usd=0.01), list[CallRow]()
    with serving(Endpoint(answer=lambda _: silent)) as endpoint:
        outcomes = ask(endpoint, budget, questions(300), kept)
    assert 5 < answered(outcomes) == endpoint.calls == len(kept) < 30
    assert {(row.cost_usd, row.status) for row in kept} == {(None, "ok")}
    assert sum(row.estimated_usd or 0.0 for row in kept) == pytest.approx(budget.spent_usd)
    assert 0.005 < budget.spent_usd <= 0.01
    assert budget.estimated_usd == pytest.approx(budget.spent_usd) and budget.unknown == 0
    assert any("of that estimated from texts" in str(outcome) for outcome in outcomes)


# A client of the user's


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_a_wrapped_async_client_is_stopped_before_it_calls() -> None:
    kept: list[CallRow] = []
    budget = Budget(calls=5)

    async def ask_many(client: openai.AsyncOpenAI) -> list[BaseException]:
        with recording(Recorder(keep=kept.append, budget=budget)):
            asked = (client.chat.completions.create(**ASKED | {"seed": n}) for n in range(20))
            found = await asyncio.gather(*asked, return_exceptions=True)
        return [one for one in found if isinstance(one, BaseException)]

    with serving(Endpoint(latency_s=0.01)) as endpoint:
        client = wrap(openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="k", max_retries=0))
        stopped = asyncio.run(ask_many(client))
        assert endpoint.calls == len(kept) == budget.spent_calls == 5
    assert [one.kind for one in stopped if isinstance(one, CallError)] == ["over_budget"] * 15


def test_a_wrapped_call_that_failed_is_a_call_and_frees_its_place() -> None:
    budget = Budget(calls=2)
    with serving(Endpoint()) as endpoint:
        endpoint.faults.append(error(500, "down"))
        client = wrap(openai.OpenAI(base_url=endpoint.base_url, api_key="k", max_retries=0))
        with recording(Recorder(keep=[].append, budget=budget)):
            for _ in range(2):
                with contextlib.suppress(openai.InternalServerError):
                    client.chat.completions.create(**ASKED)
            with pytest.raises(CallError):
                client.chat.completions.create(**ASKED)
        assert endpoint.calls == budget.spent_calls == 2
    assert not budget._aside


# Calls that are broken off


def test_a_call_that_is_broken_off_counts_and_whoever_asked_the_same_makes_it() -> None:
    budget, kept = Budget(calls=2), list[CallRow]()
    with serving(Endpoint(latency_s=0.05)) as endpoint:
        spec = EndpointConnection(base_url=endpoint.base_url, model="m")
        complete = completer("mock", spec, Ledger(Store(), "exp-1"), budget=budget)

        async def impatient_and_patient() -> list[Outcome]:
            with recording(Recorder(keep=kept.append)):
                impatient = asyncio.create_task(complete("hello"))
                await asyncio.sleep(0.02)
                patient = [asyncio.create_task(complete("hello")) for _ in range(3)]
                await asyncio.sleep(0.005)
                impatient.cancel()
                return await asyncio.gather(impatient, *patient, return_exceptions=True)

        first, *others = loop.run(impatient_and_patient())
    assert isinstance(first, asyncio.CancelledError)
    assert [type(one) for one in others] == [Completion] * 3
    assert endpoint.calls == budget.spent_calls == 2, "what was sent may be paid"
    assert len(kept) == 1
    assert not budget._aside
