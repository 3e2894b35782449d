"""The datasets that ship say what is true, and a rule can judge the answers."""

import json
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from evalflows.store.ingest.file_formats import read_rows
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import to_examples

DATASETS = Path(__file__).parent.parent / "data" / "datasets"
FILES = sorted(DATASETS.glob("*.jsonl"))
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


def earlier(example: ExampleRow) -> str:
    """All that is said before the last message."""
    return "\n".join(message["content"] for message in messages(example)[:-1])


def answer(example: ExampleRow) -> str:
    return str(json.loads(example.reference_outputs or "{}")["answer"])


def metadata(example: ExampleRow) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(example.metadata or "{}")
    return found


def contained(part: str, text: str) -> bool:
    return part.casefold() in text.casefold()


def computed(expression: str) -> str:
    assert re.fullmatch(r"[\d+\-*/() ]+", expression), expression
    value = float(eval(expression))
    assert value.is_integer(), expression
    return str(int(value))


def of_need(need: str) -> list[ExampleRow]:
    return [example for example in CONVERSATIONS if metadata(example)["needs"] == need]


def each(examples: Collection[ExampleRow]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples, ids=lambda example: example.example_id)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_a_dataset_in_which_nothing_is_asked_twice(path: Path) -> None:
    examples = read(path.name)
    for kind in ({example.example_id for example in examples}, {example.inputs.casefold() for example in examples}):
        assert len(kind) == len(examples)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_described_in_the_readme(path: Path) -> None:
    assert f"`{path.name}`" in (DATASETS / "README.md").read_text(encoding="utf-8")


def test_there_are_enough_questions_of_every_topic_and_difficulty() -> None:
    assert Counter(example.split for example in QUESTIONS) == {"test": 60, "dev": 12}
    topics = Counter(metadata(example)["topic"] for example in QUESTIONS)
    assert len(topics) == 7
    assert set(topics.values()) <= set(range(8, 13))
    difficulties = Counter(metadata(example)["difficulty"] for example in QUESTIONS)
    assert difficulties.keys() == {"easy", "medium", "hard"}
    assert min(difficulties.values()) >= 15


@each(QUESTIONS)
def test_a_reference_is_short_and_neither_the_question_nor_chatter_gives_it_away(example: ExampleRow) -> None:
    reference = answer(example)
    assert 2 <= len(reference) == len(reference.strip())
    assert len(reference.split()) <= 2
    assert not contained(reference, question(example))
    assert not contained(reference, CHATTER)


@each([example for example in QUESTIONS if metadata(example)["topic"] == "arithmetic"])
def test_a_sum_has_the_result_that_its_reference_says(example: ExampleRow) -> None:
    asked = re.fullmatch(r"What is (.+)\?", question(example))
    assert asked is not None
    assert computed(asked[1]) == answer(example)


def test_only_sums_and_years_have_numbers_as_references() -> None:
    numbers = [example for example in QUESTIONS if answer(example).isdigit()]
    others = [example for example in numbers if metadata(example)["topic"] != "arithmetic"]
    assert all(len(answer(example)) == 4 and "In which year" in question(example) for example in others)


def test_there_are_enough_conversations_of_every_kind() -> None:
    assert Counter(example.split for example in CONVERSATIONS) == {"test": 21, "dev": 3}
    needs = Counter(metadata(example)["needs"] for example in CONVERSATIONS)
    assert needs.keys() == {"recall", "correction", "pronoun", "constraint", "arithmetic"}
    assert min(needs.values()) >= 4
    assert {len(messages(example)) for example in CONVERSATIONS} == {3, 4, 5, 6, 7}


def test_a_cluster_is_three_conversations_of_one_topic_in_one_split() -> None:
    clusters: dict[str | None, list[ExampleRow]] = {}
    for example in CONVERSATIONS:
        clusters.setdefault(example.cluster, []).append(example)
    assert None not in clusters
    assert [len(members) for members in clusters.values()] == [3] * 8
    for members in clusters.values():
        assert len({(member.split, metadata(member)["topic"]) for member in members}) == 1


@each(CONVERSATIONS)
def test_a_conversation_goes_back_and_forth_and_ends_with_the_user(example: ExampleRow) -> None:
    assert all(message.keys() == {"role", "content"} and message["content"].strip() for message in messages(example))
    roles = [message["role"] for message in messages(example)]
    turns = roles[1:] if roles[0] == "system" else roles
    assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"]


@each(CONVERSATIONS)
def test_the_last_message_alone_does_not_give_the_answer_away(example: ExampleRow) -> None:
    assert not contained(answer(example), messages(example)[-1]["content"])


@each([*of_need("recall"), *of_need("correction"), *of_need("pronoun")])
def test_what_is_to_be_remembered_was_said(example: ExampleRow) -> None:
    assert contained(answer(example), earlier(example))


@each(of_need("correction"))
def test_a_correction_is_said_after_what_the_user_said_first(example: ExampleRow) -> None:
    first, *later = (message["content"] for message in messages(example) if message["role"] == "user")
    assert not contained(answer(example), first)
    assert any(contained(answer(example), text) for text in later)


@each(of_need("arithmetic"))
def test_what_is_to_be_computed_follows_from_numbers_that_were_said(example: ExampleRow) -> None:
    expression = metadata(example)["expression"]
    assert computed(expression) == answer(example)
    said = re.findall(r"\d+", "\n".join(message["content"] for message in messages(example)))
    assert Counter(re.findall(r"\d+", expression)) <= Counter(said)
    assert set(re.findall(r"\d+", expression)) & set(re.findall(r"\d+", earlier(example)))
