"""Evaluate an agent: its final answer, a single step, and its trajectory."""

import asyncio
import json

import openai
from pydantic import BaseModel

from evalflows.compat.langsmith import Client, traceable, wrappers

client = Client()
llm = wrappers.wrap_openai(openai.AsyncOpenAI())

berths = {"Amalia": "north quay 3", "Bertha": "south quay 1"}
tools = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"ship": {"type": "string"}}, "required": ["ship"]},
        },
    }
    for name, description in (("find_berth", "Where a ship lies."), ("release_ship", "Let a ship go."))
]


@traceable(run_type="tool")
def find_berth(ship: str) -> str:
    return berths.get(ship, "unknown")


@traceable(run_type="tool")
def release_ship(ship: str) -> str:
    return f"{ship} has left {berths.pop(ship, 'the roads')}"


@traceable
async def intent_classifier(question: str) -> str:
    """Which part of the agent a question is for."""
    messages = [{"role": "system", "content": "Say `harbour` or `chat`."}, {"role": "user", "content": question}]
    completion = await llm.chat.completions.create(model="router-1", messages=messages)
    return completion.choices[0].message.content


@traceable
async def harbour_agent(question: str) -> dict:
    messages = [{"role": "user", "content": question}]
    trajectory = [await intent_classifier(question)]
    while True:
        completion = await llm.chat.completions.create(model="agent-1", messages=messages, tools=tools)
        message = completion.choices[0].message
        if not message.tool_calls:
            return {"response": message.content, "trajectory": trajectory}
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            trajectory.append(call.function.name)
            called = {"find_berth": find_berth, "release_ship": release_ship}[call.function.name]
            result = called(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


class Grade(BaseModel):
    reasoning: str
    is_correct: bool


async def final_answer_correct(inputs: dict, outputs: dict, reference_outputs: dict) -> bool:
    """Evaluate whether the final response agrees with the reference."""
    shown = f"""QUESTION: {inputs["question"]}
GROUND TRUTH RESPONSE: {reference_outputs["response"]}
STUDENT RESPONSE: {outputs["response"]}"""
    completion = await llm.chat.completions.parse(
        model="judge-1",
        messages=[{"role": "system", "content": "Mark the response."}, {"role": "user", "content": shown}],
        response_format=Grade,
    )
    return completion.choices[0].message.parsed.is_correct


def trajectory_subsequence(outputs: dict, reference_outputs: dict) -> float:
    """How many of the desired steps the agent took, in order."""
    if len(reference_outputs["trajectory"]) > len(outputs["trajectory"]):
        return False
    i = j = 0
    while i < len(reference_outputs["trajectory"]) and j < len(outputs["trajectory"]):
        if reference_outputs["trajectory"][i] == outputs["trajectory"][j]:
            i += 1
        j += 1
    return i / len(reference_outputs["trajectory"])


def correct_route(outputs: dict, reference_outputs: dict) -> bool:
    """Check if the agent chose the correct route."""
    return outputs["route"] == reference_outputs["route"]


async def run_agent(inputs: dict) -> dict:
    """Run the agent, and track the trajectory it takes along with the final response."""
    return await harbour_agent(inputs["question"])


async def run_intent_classifier(inputs: dict) -> dict:
    """Run only the step that routes."""
    return {"route": await intent_classifier(inputs["question"])}


async def main() -> None:
    dataset = client.create_dataset("Harbour agent: final response and trajectory")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {
                "inputs": {"question": "Where does the Amalia lie?"},
                "outputs": {"response": "At north quay 3", "trajectory": ["harbour", "find_berth"]},
            },
            {
                "inputs": {"question": "Let the Bertha go."},
                "outputs": {"response": "She has left", "trajectory": ["harbour", "find_berth", "release_ship"]},
            },
            {
                "inputs": {"question": "Good morning!"},
                "outputs": {"response": "A greeting", "trajectory": ["chat"]},
            },
        ],
    )
    experiment_results = await client.aevaluate(
        run_agent,
        data="Harbour agent: final response and trajectory",
        evaluators=[final_answer_correct, trajectory_subsequence],
        experiment_prefix="harbour-agent",
        num_repetitions=1,
        max_concurrency=4,
    )
    print(experiment_results.experiment_name)

    steps = client.create_dataset("Harbour agent: routes")
    client.create_examples(
        dataset_id=steps.id,
        inputs=[{"question": "Where does the Bertha lie?"}, {"question": "How are you?"}],
        outputs=[{"route": "harbour"}, {"route": "chat"}],
    )
    step_results = await client.aevaluate(
        run_intent_classifier,
        data="Harbour agent: routes",
        evaluators=[correct_route],
        experiment_prefix="harbour-routes",
        max_concurrency=4,
    )
    print(step_results.experiment_name)


if __name__ == "__main__":
    asyncio.run(main())
