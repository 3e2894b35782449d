"""One's own judges: repeats, exceptions that are retried, a bug that is not paid for every item, and the ledger."""

from collections import Counter
from typing import Any
from urllib.error import URLError

import openai
import pytest
import requests
from endpoint import Endpoint, completion, serving

import evalflows
from evalflows.llm import wrap
from evalflows.specs import IncompleteError, InputError
from evalflows.store import connect

pytestmark = pytest.mark.usefixtures("without_prefect")
ROWS = [{"inputs": {"q": f"q{number}"}} for number in range(40)]


class BusyError(Exception):
    pass


def answer(q: str) -> str:
    return q.upper()


def test_a_judge_with_a_client_of_its_own_is_repeated_answered_by_the_ledger_and_stopped_at_a_bug() -> None:
    verdicts = iter(["yes", "no", "yes"] * len(ROWS))
    with serving(Endpoint(answer=lambda request: completion(next(verdicts, "no")))) as endpoint:
        client = wrap(openai.OpenAI(base_url=endpoint.base_url, api_key="sk-none", max_retries=0))

        def ask(text: str) -> str:
            asked = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            return asked.choices[0].message.content or ""

        def polite(output: str) -> dict[str, Any]:
            verdict = ask(output)
            return {"score": verdict == "yes", "comment": verdict}

        judge = {"use": polite, "repeats": 3}
        first = evalflows.evaluate(answer, ROWS[:4], [judge], experiment_prefix="polite", max_concurrency=0)
        again = evalflows.evaluate(answer, ROWS[:4], [judge], experiment_prefix="polite", max_concurrency=0)
        assert endpoint.calls == 12, "each repeat is a call of its own, and none is paid twice"
        for result in (first, again):
            assert [item.scores[0].value for item in result] == [1.0] * 4, "the majority"
            assert {item.scores[0].comment for item in result} == {"yes"}
            assert {item.scores[0].repeats for item in result} == {3}
        query = "select sum(calls), sum(calls_cached) from scores where experiment_id = ?"
        assert [connect().sql(query, params=[one.experiment_id]).fetchall() for one in (first, again)] == [
            [(12, 0)],
            [(0, 12)],
        ]

        def buggy(output: str) -> float:
            return float(ask(f"Rate {output}"))

        wanted = (
            r"30 of 40 by buggy \(10 of the last 10 failed, .*: ValueError.*`ExperimentResult\('exp-.*'\).resume\(\)`"
        )
        with pytest.raises(IncompleteError, match=wanted) as raised:
            evalflows.evaluate(answer, ROWS, [{"use": buggy, "name": "buggy"}], max_concurrency=0)
        assert endpoint.calls == 12 + 10, "a bug after a call is not paid for every item"
        assert raised.value._render_traceback_() == [f"IncompleteError: {raised.value}"], "a line in a notebook"
        endpoint.answer = lambda request: completion("1.0")
        rest = evalflows.ExperimentResult(raised.value.experiments[0]).resume()
        assert Counter(item.scores[0].status for item in rest) == {"failed": 10, "scored": 30}
    with pytest.raises(InputError, match="combine: got mean without repeats"):
        evalflows.evaluate(answer, ROWS, [{"use": polite, "combine": "mean"}])


def test_what_another_attempt_may_cure_is_named_by_retry_on_or_known() -> None:
    refused = URLError(ConnectionRefusedError(111, "refused"))
    lost = {"Q2": TimeoutError("slow"), "Q3": refused, "Q4": requests.ConnectTimeout("lost")}

    def busy(output: str) -> bool:
        if output in ("Q0", "Q1"):
            raise BusyError("later") if output == "Q0" else ValueError("never")
        if output in lost:
            raise lost[output]
        return True

    result = evalflows.evaluate(answer, ROWS[:9], [{"use": busy, "retry_on": [f"{BusyError.__module__}:BusyError"]}])
    query = "select error_kind from scores where experiment_id = ? and status = 'failed' order by 1"
    kinds = [kind for (kind,) in connect().sql(query, params=[result.experiment_id]).fetchall()]
    assert kinds == ["connection", "raised", "server_error", "timeout", "timeout"]
