import sys
from typing import Literal

import openai
from pydantic import BaseModel, Field

from evalflows.compat.langsmith import evaluate, wrappers

openai_client = wrappers.wrap_openai(openai.OpenAI())

instructions = """You are shown a question and two answers to it. Say which of the answers helps a ship's boy more.
It does not matter which of them comes first, nor how long they are."""


class Preference(BaseModel):
    """Which of two answers is better."""

    reasoning: str = Field(description="What speaks for one answer, and what for the other.")
    preferred: Literal[0, 1, 2] = Field(description="1 for the first answer, 2 for the second, 0 for a tie.")


def ranked_preference(inputs: dict, outputs: list[dict]) -> list:
    shown = f"""Question: {inputs["question"]}
First answer: {outputs[0].get("answer", "none")}
Second answer: {outputs[1].get("answer", "none")}"""
    completion = openai_client.chat.completions.parse(
        model="judge-1",
        messages=[{"role": "system", "content": instructions}, {"role": "user", "content": shown}],
        response_format=Preference,
    )
    preferred = completion.choices[0].message.parsed.preferred
    if preferred == 1:
        scores = [1, 0]
    elif preferred == 2:
        scores = [0, 1]
    else:
        scores = [0, 0]
    return scores


if __name__ == "__main__":
    evaluate(
        (sys.argv[1], sys.argv[2]),  # the names of two experiments
        evaluators=[ranked_preference],
        randomize_order=True,
        max_concurrency=4,
    )
