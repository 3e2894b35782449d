"""Evaluate intermediate steps: evaluators that read the run's child runs."""

import json

import openai

from evalflows.compat.langsmith import Client, evaluate, traceable, wrappers
from evalflows.compat.langsmith.schemas import Example, Run

client = Client()
llm = wrappers.wrap_openai(openai.OpenAI())

pilots_book = {
    "tide": "High water at the bar is two hours after that at the pier.",
    "rock": "The Parson's Rock dries at low water; leave it a cable to the east.",
    "anchor": "Anchor in five fathoms, on sand, south of the mole.",
}


@traceable
def generate_query(question: str) -> str:
    messages = [{"role": "system", "content": "One word to look up."}, {"role": "user", "content": question}]
    return llm.chat.completions.create(model="pilot-1", messages=messages).choices[0].message.content


@traceable(run_type="retriever")
def retrieve(query: str) -> list[dict]:
    return [{"page_content": text, "metadata": {"entry": word}} for word, text in pilots_book.items() if word in query]


@traceable
def generate_answer(question: str, context: str) -> str:
    messages = [{"role": "system", "content": f"Answer from: {context}"}, {"role": "user", "content": question}]
    return llm.chat.completions.create(model="pilot-2", messages=messages).choices[0].message.content


@traceable
def qa_pipeline(question: str) -> str:
    query = generate_query(question)
    context = "\n".join(document["page_content"] for document in retrieve(query))
    return generate_answer(question, context)


def grade(name: str, shown: str) -> float:
    messages = [{"role": "system", "content": f"Grade {name}. Answer as JSON."}, {"role": "user", "content": shown}]
    completion = llm.chat.completions.create(
        model="judge-1", messages=messages, response_format={"type": "json_object"}
    )
    return json.loads(completion.choices[0].message.content)["score"]


def document_relevance(run: Run) -> float:
    """Checks that the retriever's input fits what it found."""
    qa_pipeline_run = next(r for r in run.child_runs if r.name == "qa_pipeline")
    retrieve_run = next(r for r in qa_pipeline_run.child_runs if r.name == "retrieve")
    page_contents = "\n\n".join(doc["page_content"] for doc in retrieve_run.outputs["output"])
    return grade("relevance", f"QUESTION: {retrieve_run.inputs['query']}\nDOCUMENTS: {page_contents}")


def hallucination(run: Run, example: Example) -> dict:
    """Checks that the answer is in the documents that the pipeline found for itself."""
    qa_pipeline_run = next(r for r in run.child_runs if r.name == "qa_pipeline")
    retrieve_run = next(r for r in qa_pipeline_run.child_runs if r.name == "retrieve")
    page_contents = "\n\n".join(doc["page_content"] for doc in retrieve_run.outputs["output"])
    score = grade("grounding", f"DOCUMENTS: {page_contents}\nANSWER: {run.outputs['output']}")
    return {"key": "answer_hallucination", "score": score, "comment": example.inputs["question"]}


if __name__ == "__main__":
    dataset = client.create_dataset(dataset_name="Pilot's questions")
    questions = ["When is high tide at the bar?", "How do I pass the rock?", "Where may I anchor?"]
    client.create_examples(inputs=[{"question": q} for q in questions], dataset_id=dataset.id)
    results = evaluate(
        lambda inputs: qa_pipeline(inputs["question"]),
        data=dataset.name,
        evaluators=[document_relevance, hallucination],
        experiment_prefix="pilots-book",
    )
    print(results.experiment_name)
