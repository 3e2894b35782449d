"""Langfuse's OpenAI client and its handler for LangChain: calls have tokens and cost, also with its own arguments."""

from typing import Any

import pytest
from endpoint import Endpoint, serving

from evalflows.compat.langfuse import get_client
from evalflows.compat.langfuse.openai import openai
from evalflows.store import connect

DATA = [{"input": "France", "expected_output": "Paris"}]


@pytest.mark.usefixtures("without_prefect")
def test_calls_of_a_task_are_recorded() -> None:
    runnable = pytest.importorskip("langchain_core.runnables")
    from langchain_core.messages import AIMessage, HumanMessage

    from evalflows.compat.langfuse.langchain import CallbackHandler

    fakes = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    said = AIMessage("Paris", usage_metadata={"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100})

    class Model(fakes.GenericFakeChatModel):  # type: ignore[misc]
        def _get_ls_params(self, stop: Any = None, **given: Any) -> dict[str, str]:
            return {"ls_provider": "openai", "ls_model_name": "gpt-4o-mini"}

    with serving(Endpoint()) as endpoint:
        client = openai.OpenAI(base_url=endpoint.base_url, api_key="sk-none")

        def by_client(*, item: Any, **given: Any) -> Any:
            messages = [{"role": "user", "content": item["input"]}]
            answer = client.chat.completions.create(model="gpt-4o-mini", messages=messages, name="ask", trace_id="t")
            return answer.choices[0].message.content

        def by_chain(*, item: Any, **given: Any) -> Any:
            chain = runnable.RunnableLambda(lambda text: [HumanMessage(text)]) | Model(messages=iter([said]))
            return chain.invoke(item["input"], config={"callbacks": [CallbackHandler()]}).content

        for task in (by_client, by_chain):
            get_client().run_experiment(name=task.__name__, data=DATA, task=task, evaluators=[])
    assert "name" not in endpoint.requests[0]
    with connect() as catalog:
        query = "select connection, model, status, tokens_in, tokens_out, cost_usd from calls order by started_at"
        of_client, of_chain = catalog.execute(query).fetchall()
        runs = "select calls, tokens_in, json_extract_string(steps, '$[*].kind') from outputs order by started_at"
        steps = catalog.execute(runs).fetchall()
    assert of_client[:5] == ("wrapped", "gpt-4o-mini", "ok", 10, 5)
    assert of_chain == ("wrapped", "gpt-4o-mini", "ok", 1000, 100, pytest.approx(0.00021))
    assert steps == [(1, 10, ["llm"]), (1, 1000, ["chain", "chain", "llm"])]
