"""Repetitions, several scores of one evaluator, and how much is done at once."""

import asyncio

import openai

from evalflows.compat.langsmith import Client, aevaluate, wrappers

client = Client()
llm = wrappers.wrap_openai(openai.AsyncOpenAI())


async def guess(inputs: dict) -> dict:
    messages = [{"role": "user", "content": f"How far off is the {inputs['mark']}?"}]
    completion = await llm.chat.completions.create(model="eye-1", messages=messages, temperature=1)
    return {"miles": float(completion.choices[0].message.content)}


def multiple_scores(outputs: dict, reference_outputs: dict) -> list[dict]:
    error = outputs["miles"] - reference_outputs["miles"]
    return [
        {"key": "absolute_error", "score": abs(error)},
        {"key": "too_far", "score": error > 0, "comment": f"by {error:+.1f}"},
        {"key": "range", "value": "near" if outputs["miles"] < 3 else "far"},
    ]


async def close(outputs: dict, reference_outputs: dict) -> bool:
    await asyncio.sleep(0)
    return abs(outputs["miles"] - reference_outputs["miles"]) <= 1


async def main() -> None:
    dataset = client.create_dataset("Marks")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {"inputs": {"mark": "buoy"}, "outputs": {"miles": 2}},
            {"inputs": {"mark": "cape"}, "outputs": {"miles": 7}},
        ],
    )
    results = await aevaluate(
        guess,
        data="Marks",
        evaluators=[multiple_scores, close],
        num_repetitions=3,
        max_concurrency=2,
        experiment_prefix="by-eye",
    )
    async for row in results:
        scores = {result.key: result.score for result in row["evaluation_results"]["results"]}
        print(row["example"].inputs["mark"], row["run"].outputs["miles"], scores["absolute_error"])


if __name__ == "__main__":
    asyncio.run(main())
