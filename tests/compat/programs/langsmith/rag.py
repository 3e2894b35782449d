"""Evaluate a RAG application: correctness, relevance, groundedness, retrieval relevance."""

import openai
from langchain_core.documents import Document
from pydantic import BaseModel, Field

from evalflows.compat.langsmith import Client, traceable, wrappers

client = Client()
llm = wrappers.wrap_openai(openai.OpenAI())

documents = [
    "The lighthouse keeper trims the wick every four hours so that the flame burns without smoke.",
    "A fog signal of two long blasts each minute warns ships when the light cannot be seen.",
    "The lens turns on a bath of mercury, which a clockwork drives; it is wound each night.",
    "Supplies come by boat on the first of the month, weather permitting.",
]


@traceable(run_type="retriever")
def retrieve(question: str) -> list[Document]:
    words = {word.strip("?.,").lower() for word in question.split()}
    ranked = sorted(documents, key=lambda text: -len(words & {w.strip("?.,;").lower() for w in text.split()}))
    return [Document(page_content=text, metadata={"source": "log"}) for text in ranked[:2]]


@traceable()
def rag_bot(question: str) -> dict:
    docs = retrieve(question)
    instructions = "You answer from these sources only, in one sentence:\n" + "\n".join(
        doc.page_content for doc in docs
    )
    completion = llm.chat.completions.create(
        model="keeper-1",
        messages=[{"role": "system", "content": instructions}, {"role": "user", "content": question}],
    )
    return {"answer": completion.choices[0].message.content, "documents": docs}


class Grade(BaseModel):
    """A grader's verdict."""

    explanation: str = Field(description="The reasons, step by step.")
    verdict: bool = Field(description="True if the criterion is met.")


def grade(criterion: str, shown: str) -> bool:
    completion = llm.chat.completions.parse(
        model="judge-1",
        messages=[
            {"role": "system", "content": f"You are a teacher who marks a quiz. {criterion}"},
            {"role": "user", "content": shown},
        ],
        response_format=Grade,
    )
    return completion.choices[0].message.parsed.verdict


def correctness(inputs: dict, outputs: dict, reference_outputs: dict) -> bool:
    """Does the answer agree with the reference?"""
    shown = f"QUESTION: {inputs['question']}\nTRUTH: {reference_outputs['answer']}\nANSWER: {outputs['answer']}"
    return grade("Is the ANSWER right, given the TRUTH?", shown)


def relevance(inputs: dict, outputs: dict) -> bool:
    """Does the answer address the question?"""
    return grade(
        "Does the ANSWER address the QUESTION?", f"QUESTION: {inputs['question']}\nANSWER: {outputs['answer']}"
    )


def groundedness(inputs: dict, outputs: dict) -> bool:
    """Do the retrieved documents support the answer?"""
    facts = "\n\n".join(doc.page_content for doc in outputs["documents"])
    return grade("Do the FACTS support all of the ANSWER?", f"FACTS: {facts}\nANSWER: {outputs['answer']}")


def retrieval_relevance(inputs: dict, outputs: dict) -> bool:
    """Have the retrieved documents to do with the question?"""
    facts = "\n\n".join(doc.page_content for doc in outputs["documents"])
    return grade("Do the FACTS have to do with the QUESTION?", f"FACTS: {facts}\nQUESTION: {inputs['question']}")


def target(inputs: dict) -> dict:
    return rag_bot(inputs["question"])


if __name__ == "__main__":
    dataset_name = "Lighthouse questions"
    dataset = client.create_dataset(dataset_name=dataset_name)
    client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {
                "inputs": {"question": "How often does the keeper trim the wick?"},
                "outputs": {"answer": "Every four hours"},
            },
            {
                "inputs": {"question": "What does the lens turn on?"},
                "outputs": {"answer": "On a bath of mercury"},
            },
            {
                "inputs": {"question": "Who painted the tower?"},
                "outputs": {"answer": "The sources do not say"},
            },
        ],
    )
    experiment_results = client.evaluate(
        target,
        data=dataset_name,
        evaluators=[correctness, groundedness, relevance, retrieval_relevance],
        experiment_prefix="rag-lighthouse",
        metadata={"version": "bag of words, keeper-1"},
    )
    print(experiment_results.experiment_name)
    experiment_results.to_pandas()
