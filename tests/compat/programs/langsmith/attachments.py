"""Evaluate with attachments: an image, a sound and a text that go with an example."""

import base64
import uuid

import openai

from evalflows.compat.langsmith import Client, wrappers
from evalflows.compat.langsmith.schemas import ExampleUpdate

client = Client()
llm = wrappers.wrap_openai(openai.OpenAI())

flag_png = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
horn_wav = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(range(24))
log_txt = b"06:00 wind north, three; fog signal sounded"


def file_qa(inputs: dict, attachments: dict) -> dict:
    image = base64.b64encode(attachments["flag"]["reader"].read()).decode("utf-8")
    text = attachments["log"]["reader"].read().decode("utf-8")
    completion = llm.chat.completions.create(
        model="lookout-1",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": f"{inputs['question']}\n{text}"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
                ],
            }
        ],
    )
    return {"answer": completion.choices[0].message.content, "horn_bytes": len(attachments["horn"]["reader"].read())}


def valid_image_description(outputs: dict, attachments: dict) -> bool:
    """Shows the image to a judge, by the address that LangSmith gives it."""
    completion = llm.chat.completions.create(
        model="judge-1",
        messages=[
            {"role": "system", "content": "Does the description fit the image? Say yes or no."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": outputs["answer"]},
                    {"type": "image_url", "image_url": {"url": attachments["flag"]["presigned_url"]}},
                ],
            },
        ],
    )
    return completion.choices[0].message.content == "yes"


def whole_horn(outputs: dict, attachments: dict) -> bool:
    return outputs["horn_bytes"] == len(attachments["horn"]["reader"].read())


if __name__ == "__main__":
    dataset_name = "Watch with attachments"
    dataset = client.create_dataset(dataset_name=dataset_name, description="What the watch saw and heard")
    example_id = uuid.uuid4()
    client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {
                "id": example_id,
                "inputs": {"question": "What does the flag show?"},
                "outputs": {"answer": "One pixel of red"},
                "attachments": {
                    "flag": ("image/png", flag_png),
                    "horn": ("audio/wav", horn_wav),
                    "old_log": {"mime_type": "text/plain", "data": log_txt},
                },
            }
        ],
    )
    client.update_examples(
        dataset_name=dataset_name,
        updates=[
            ExampleUpdate(
                id=example_id,
                attachments={"copy": ("text/plain", log_txt)},
                attachments_operations={"retain": ["flag", "horn"], "rename": {"old_log": "log"}},
            )
        ],
    )
    results = client.evaluate(
        file_qa,
        data=client.list_examples(dataset_id=dataset.id, include_attachments=True),
        evaluators=[valid_image_description, whole_horn],
        experiment_prefix="watch",
    )
    print(results.experiment_name)
