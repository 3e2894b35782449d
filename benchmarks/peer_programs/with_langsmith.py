"""LangSmith's `aevaluate` without a server: results stay in memory, none are uploaded."""

import asyncio
import uuid
from typing import Any

from langsmith import Client, aevaluate
from langsmith.schemas import Example
from work import IN_FLIGHT, contains, exact, main


def examples(rows: list[dict[str, str]]) -> list[Example]:
    return [
        Example(
            id=uuid.uuid4(),
            dataset_id=uuid.UUID(int=1),
            inputs={"question": row["question"], "said": row["said"]},
            outputs={"answer": row["reference"]},
        )
        for row in rows
    ]


def is_exact(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return exact(outputs["said"], reference_outputs["answer"])


def has_it(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return contains(outputs["said"], reference_outputs["answer"])


async def evaluated(rows: list[dict[str, str]], target: Any, evaluators: list[Any]) -> int:
    client = Client(api_url="http://127.0.0.1:9", api_key="none")
    results = await aevaluate(
        target,
        examples(rows),
        evaluators,
        client=client,
        upload_results=False,
        max_concurrency=IN_FLIGHT,
        disable_evaluator_tracing=True,  # or each would be sent to the server
    )
    return sum([len(result["evaluation_results"]["results"]) async for result in results])


def rules(rows: list[dict[str, str]]) -> int:
    async def recorded(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"said": inputs["said"]}

    return asyncio.run(evaluated(rows, recorded, [is_exact, has_it]))


def calls(rows: list[dict[str, str]], ask: Any) -> int:
    async def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"said": await ask(inputs["question"])}

    return asyncio.run(evaluated(rows, target, [has_it]))


main(rules, calls)
