# ruff: noqa: A002 Langfuse's names
"""Tasks and evaluators that fail on some items, return several scores, or none."""

import asyncio

from evalflows.compat.langfuse import Evaluation, get_client

langfuse = get_client()


async def task(*, item, **kwargs):
    await asyncio.sleep(0.01)
    if item["input"] == 3:
        raise ValueError("three is not for me")
    return {"twice": 2 * item["input"], "parts": [item["input"]] * 2}


def several(*, input, output, expected_output=None, metadata=None, **kwargs):
    return [
        Evaluation(name="even", value=output["twice"] % 2 == 0, data_type="BOOLEAN"),
        {"name": "kind", "value": "small" if output["twice"] < 5 else "large", "data_type": "CATEGORICAL"},
    ]


async def picky(*, input, output, **kwargs):
    if input == 2:
        raise RuntimeError("two is not for me")
    return None if input == 1 else Evaluation(name="picky", value=output["parts"][0])


def overall(*, input, output, expected_output, metadata, evaluations):
    return Evaluation(name="overall", value=len(evaluations))


if __name__ == "__main__":
    result = langfuse.run_experiment(
        name="Failures",
        data=[{"input": number} for number in range(1, 6)],
        task=task,
        evaluators=[several, picky],
        composite_evaluator=overall,
        max_concurrency=2,
    )
    for one in result.item_results:
        print(one.item["input"], {evaluation.name: evaluation.value for evaluation in one.evaluations})
