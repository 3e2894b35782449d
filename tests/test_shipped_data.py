"""The datasets that ship say what is true, and a rule can judge the answers."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalflows.store.file_formats import read_rows
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import to_examples

DATASETS = Path(__file__).parent.parent / "data" / "datasets"
CHATTER = (
    "To answer this question, we need to think about what it means. The answer is not given, but it is often said to "
    "be one of the most important and beautiful things in the whole world, because its environment is nice. I am happy "
    "to help you today with this location! In general, about a million people would agree that there is no other way, "
    "and that is right. It was getting better in 2020: 1. first, 2. second, 3. third, at a price of 100 to 500."
)


def read(name: str) -> list[ExampleRow]:
    return to_examples(read_rows(DATASETS / name), name)


QUESTIONS = read("questions.jsonl")
CONVERSATIONS = read("conversations.jsonl")


def question(example: ExampleRow) -> str:
    return str(json.loads(example.inputs)["question"])


def messages(example: ExampleRow) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(example.inputs)["messages"]
    return found


def answer(example: ExampleRow) -> str:
    return str(json.loads(example.reference_outputs or "{}")["answer"])


def metadata(example: ExampleRow) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(example.metadata or "{}")
    return found


def computed(expression: str) -> str:
    assert re.fullmatch(r"[\d+\-*/() ]+", expression), expression
    value = float(eval(expression))
    assert value.is_integer(), expression
    return str(int(value))


def contained(part: str, text: str) -> bool:
    return part.casefold() in text.casefold()


def problems_of_question(example: ExampleRow) -> Iterator[str]:
    reference = answer(example)
    if not 2 <= len(reference) == len(reference.strip()) or len(reference.split()) > 2:
        yield "the reference is not short"
    if contained(reference, question(example)) or contained(reference, CHATTER):
        yield "the question, or chatter, gives the answer away"
    if metadata(example)["topic"] == "arithmetic":
        asked = re.fullmatch(r"What is (.+)\?", question(example))
        if asked is None or computed(asked[1]) != reference:
            yield "the sum has another result"


def problems_of_conversation(example: ExampleRow) -> Iterator[str]:
    said, reference, needs = messages(example), answer(example), metadata(example)["needs"]
    earlier = "\n".join(message["content"] for message in said[:-1])
    roles = [message["role"] for message in said]
    turns = roles[1:] if roles[0] == "system" else roles
    if turns != ["user", "assistant"] * (len(turns) // 2) + ["user"]:
        yield "it does not go back and forth, or does not end with the user"
    if contained(reference, said[-1]["content"]):
        yield "the last message alone gives the answer away"
    if needs in ("recall", "correction", "pronoun") and not contained(reference, earlier):
        yield "what is to be remembered was not said"
    first, *later = (message["content"] for message in said if message["role"] == "user")
    if needs == "correction" and (contained(reference, first) or not any(contained(reference, one) for one in later)):
        yield "the correction is not said after what it corrects"
    if needs == "arithmetic":
        numbers = Counter(re.findall(r"\d+", metadata(example)["expression"]))
        if computed(metadata(example)["expression"]) != reference:
            yield "the result is another"
        if not numbers <= Counter(re.findall(r"\d+", earlier + said[-1]["content"])):
            yield "a number was not said"


def test_what_ships_is_true_and_asked_once() -> None:
    wrong = [
        f"{example.example_id}: {problem}"
        for examples, problems in ((QUESTIONS, problems_of_question), (CONVERSATIONS, problems_of_conversation))
        for example in examples
        for problem in problems(example)
    ]
    assert not wrong, "\n".join(wrong)
    assert Counter(example.split for example in QUESTIONS) == {"test": 60, "dev": 12}
    assert Counter(example.split for example in CONVERSATIONS) == {"test": 21, "dev": 3}
    for path in DATASETS.glob("*.jsonl"):
        examples = read(path.name)
        assert (
            len({one.example_id for one in examples})
            == len({one.inputs.casefold() for one in examples})
            == len(examples)
        )


def test_a_cluster_is_three_conversations_of_one_topic_in_one_split() -> None:
    clusters: dict[str | None, list[ExampleRow]] = {}
    for example in CONVERSATIONS:
        clusters.setdefault(example.cluster, []).append(example)
    assert None not in clusters and [len(members) for members in clusters.values()] == [3] * 8
    for members in clusters.values():
        assert len({(member.split, metadata(member)["topic"]) for member in members}) == 1
