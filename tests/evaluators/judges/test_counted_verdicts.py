"""Verdicts that must be as many as what is judged: another number of them is a bad answer, which is asked for again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from endpoint import Endpoint, completion, serving

from evalflows.evaluators.judges.context_precision import context_precision
from evalflows.evaluators.score import Score
from evalflows.llm import attempts, loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.specs import EndpointConnection
from evalflows.store import Store
from evalflows.store.records import CallRow


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)


def useful(*numbers: int) -> str:
    return json.dumps({"verdicts": [{"number": number, "reasoning": "", "useful": True} for number in numbers]})


def judged(judge: Any, answers: Iterator[str], form: str, *given: Any, **settings: Any) -> tuple[Score, list[CallRow]]:
    """What a judge makes of a model that gives one answer after the other, and the calls that are kept."""
    kept: list[CallRow] = []
    with serving(Endpoint(answer=lambda _: reply(next(answers), form, judge.__name__))) as endpoint:
        fields = {"base_url": endpoint.base_url, "model": "m", "attempts": 3, "answer_form": form}
        complete = completer("mock", EndpointConnection.model_validate(fields), Ledger(Store(), "exp-1"))

        async def asked() -> Any:
            with recording(Recorder(keep=kept.append)):
                return await judge(*given, complete, **settings)

        return loop.run(asked()), kept


def reply(answer: str, form: str, name: str) -> Any:
    if form == "json_schema":
        return completion(answer)
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": answer}}
    return completion(None, tool_calls=[call])


PRECISION: Any = ({"context": ["a", "b"]}, {"output": "x"}, {"answer": "a"}, {})


@pytest.mark.parametrize("form", ["json_schema", "tool_call"])
def test_too_few_and_too_many_verdicts_are_asked_for_again(form: str) -> None:
    score, kept = judged(context_precision, iter([useful(1), useful(1, 2, 3), useful(1, 2)]), form, *PRECISION)
    assert score.value == 1.0
    assert [(row.status, row.attempts, row.reusable) for row in kept] == [("ok", 3, True)]
