# ruff: noqa: A002 Langfuse's names
"""An application of observed functions, whose answers a model judges."""

from evalflows.compat.langfuse import Evaluation, get_client, observe, propagate_attributes
from evalflows.compat.langfuse.openai import openai

langfuse = get_client()

PAGES = {"tide": "A tide is the rise and fall of the sea.", "knot": "A knot holds a rope."}


@observe(as_type="retriever")
def search(word):
    return [text for name, text in PAGES.items() if name in word]


@observe(name="harbour-guide")
async def guide(question):
    with langfuse.start_as_current_observation(as_type="tool", name="rank", input=question) as span:
        found = search(question)
        span.update(output=found, metadata={"found": len(found)})
    messages = [{"role": "system", "content": " ".join(found)}, {"role": "user", "content": question}]
    answer = await openai.AsyncOpenAI().chat.completions.create(
        name="answer", model="guide-1", messages=messages, metadata={"langfuse_tags": ["guide"]}
    )
    langfuse.update_current_span(metadata={"model": "guide-1"})
    return answer.choices[0].message.content


async def task(*, item, **kwargs):
    with propagate_attributes(user_id="harbour", tags=["evaluation"]):
        return await guide(item["input"])


def judged(*, input, output, expected_output=None, metadata=None, **kwargs):
    prompt = f"Question: {input}\nAnswer: {output}\nReference: {expected_output}\nIs it right? yes or no"
    said = openai.OpenAI().chat.completions.create(model="judge-1", messages=[{"role": "user", "content": prompt}])
    return Evaluation(name="right", value=said.choices[0].message.content == "yes", data_type="BOOLEAN")


if __name__ == "__main__":
    data = [{"input": "What is a tide?", "expected_output": "rise and fall"}, {"input": "What is a mast?"}]
    result = langfuse.run_experiment(name="Guide", data=data, task=task, evaluators=[judged])
    print([(one.output, one.evaluations[0].value) for one in result.item_results])
    langfuse.flush()
