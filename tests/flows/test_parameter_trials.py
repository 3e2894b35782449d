"""Parameters that a model refuses are one message before a run, and cost nothing; what it takes is asked once."""

from typing import Any

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, serving
from reasoning_model import ONLY_DEFAULT, SAID, THOUGHT, UNSUPPORTED, answer

from evalflows import plan, run
from evalflows.engine.parameter_trials import FEWEST, MOST_TOKENS
from evalflows.reports.experiment_report import overviews_of
from evalflows.specs import EndpointConnection
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import ChatTarget
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

N = FEWEST + 2
OWN = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 10.0, "model": "o-mock"}


def spec(base_url: str, n: int = N, args: dict[str, Any] | None = None, **target: Any) -> ExperimentSpec:
    data = [{"id": f"q{i}", "inputs": {"q": f"{i} + 2?"}, "reference_outputs": {"a": "4"}} for i in range(n)]
    judge = {"use": "correctness", "connection": "mock", "args": args or {}}
    return ExperimentSpec.model_validate(
        {
            "name": "thinks",
            "dataset": {"rows": data},
            "targets": [{"name": "bot", "kind": "chat", "connection": "mock", **target}],
            "evaluators": [judge],
            "connections": {"mock": {"kind": "endpoint", "base_url": base_url, **OWN}},
            "budget_usd": 1.0,
        }
    )


def test_what_a_model_refuses_is_mended_or_one_line_and_what_it_takes_is_asked_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(Endpoint(answer=answer)) as endpoint:
        with pytest.raises(InputError, match="target 'bot': HTTP 400: reasoning_effort: Invalid value: 'extreme'"):
            run(spec(endpoint.base_url, max_tokens=500, temperature=0.5, reasoning_effort="extreme"))
        of_temperature, of_tokens = sorted(capsys.readouterr().err.splitlines(), key=lambda line: "max_tokens" in line)
        asked = "evalflows: connection 'mock': model 'o-mock' is asked"
        assert of_tokens.startswith(f"{asked} with max_completion_tokens in place of max_tokens: HTTP 400: ")
        assert UNSUPPORTED[:-1] in of_tokens
        assert any(  # the judge's own or the target's: whose trial is answered first
            of_temperature.startswith(f"{asked} without the temperature {own:g}, so with its default: HTTP 400: ")
            and ONLY_DEFAULT.format(own)[:-1] in of_temperature
            for own in (0.0, 0.5)
        )
        assert one("select count(*) from experiments") == (0,)
        paid = rows("select distinct evaluator, status, cost_usd > 0 from source.calls")
        assert paid == [("trial", "ok", True)], "what was taken is paid"

        before, sent = endpoint.calls, {"max_completion_tokens": 500, "reasoning_effort": "low"}
        (made_by,) = run(spec(endpoint.base_url, args=sent, **sent))
        made = endpoint.requests[before:]
        assert len(made) == 2 + 2 * N
        assert not [request for request in made if {"temperature", "max_tokens"} & request.keys()]
        assert [request["max_completion_tokens"] for request in made[:2]] == [MOST_TOKENS, MOST_TOKENS]
        assert {(request["max_completion_tokens"], request["reasoning_effort"]) for request in made[2:]} == {
            (500, "low")
        }
        by_source = """select source, model, calls, tokens_reasoning, tokens_out, tokens_cached from cost_and_latency
                       where source <> 'all' and model <> 'all' order by source"""
        assert rows(by_source) == [
            (source, "o-mock", n, n * THOUGHT, n * (THOUGHT + SAID), n * 1024)
            for source, n in (("correctness", N), ("target", N), ("trial", 2))
        ]

        shares = "85% of input tokens cached, 96% of output tokens thought"
        planned = plan(spec(endpoint.base_url, args=sent, system="Be brief.", **sent)).calls
        assert [shares in calls.size.basis for calls in planned] == [True, True]
        assert overviews_of(Store(), [made_by])[0].calls_text.endswith(f" USD; {shares}")

        before = endpoint.calls
        run(spec(endpoint.base_url, args=sent, system="Be brief.", **sent))
        assert endpoint.calls - before == N, (
            "the ledger knows the target's trial, and the judge has judged such answers"
        )
        with pytest.raises(IncompleteError, match="none of 9 answered: HTTP 400: reasoning_effort: Invalid value"):
            run(spec(endpoint.base_url, FEWEST - 1, reasoning_effort="extreme"))


def test_what_a_protocol_cannot_send_is_a_refusal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-nobody-at-all")
    anthropic = {"kind": "anthropic", "base_url": "http://127.0.0.1:9", "model": "claude"}
    given = spec("http://127.0.0.1:9/v1", temperature=1.5).model_dump() | {"evaluators": []}
    with pytest.raises(InputError, match=r"^target 'bot': temperature: got 1\.5, wanted at most 1$"):
        run(ExperimentSpec.model_validate(given | {"connections": {"mock": anthropic}, "budget_usd": None}))


def test_a_target_and_a_judge_have_the_same_version_as_before_there_were_parameters_of_reasoning() -> None:
    from evalflows.engine.spec_targets import target_version

    plain = {"name": "a", "kind": "chat", "connection": "mock", "model": "m", "user": "{q}", "temperature": 0.5}
    connections = {"mock": EndpointConnection(base_url="http://127.0.0.1:9/v1", model="o")}
    versions = [
        target_version(ChatTarget.model_validate(plain | more), connections)
        for more in ({}, {"extra": {"reasoning_effort": "low"}}, {"reasoning_effort": "low"})
    ]
    assert versions[0] == "b63b7ad8f223cb54" and versions[1] == versions[2] != versions[0]
    with pytest.raises(ValueError, match="got max_tokens and max_completion_tokens, wanted one of them"):
        ChatTarget.model_validate(plain | {"max_tokens": 5, "max_completion_tokens": 5})
