import openai

from evalflows.compat.langsmith import Client, wrappers

client = Client()
openai_client = wrappers.wrap_openai(openai.OpenAI())

questions = [
    "Which knot ties a boat to a ring?",
    "Which knot joins two ropes of one thickness?",
    "Which knot makes a loop that does not slip?",
    "Which knot shortens a rope?",
    "Which knot holds a sail while it is reefed?",
    "Which knot stops a rope from running out of a block?",
    "Which knot ties a fender to a rail?",
    "Which knot makes a rope fast to a pole?",
    "Which knot joins two ropes of different thickness?",
]


def answer(question: str, instructions: str) -> str:
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
    completion = openai_client.chat.completions.create(model="sailor-1", messages=messages)
    return completion.choices[0].message.content


def terse(inputs: dict) -> dict:
    return {"answer": answer(inputs["question"], "Name the knot.")}


def thorough(inputs: dict) -> dict:
    return {"answer": answer(inputs["question"], "Name the knot, and say how it is tied.")}


if __name__ == "__main__":
    dataset = client.create_dataset("Knots", description="What a ship's boy asks")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[{"inputs": {"question": question}} for question in questions],
    )
    for target in (terse, thorough):
        print(client.evaluate(target, data="Knots", experiment_prefix=target.__name__).experiment_name)
