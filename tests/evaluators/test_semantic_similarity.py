"""semantic_similarity: the cosine of what a model makes of two texts, and what the real one makes of wrong answers."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from evalflows.evaluators.semantic import semantic_similarity
from evalflows.llm import local

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "evaluators.md"


class Known:
    """Vectors that are given; and what was asked for."""

    def __init__(self, vectors: Mapping[str, list[float]]) -> None:
        self.vectors = vectors
        self.asked: list[tuple[list[str], dict[str, Any]]] = []

    async def __call__(self, texts: Sequence[str], **parameters: Any) -> list[list[float]]:
        self.asked.append((list(texts), parameters))
        return [self.vectors[text] for text in texts]


class Real:
    """The model on this machine."""

    async def __call__(self, texts: Sequence[str], **parameters: Any) -> list[list[float]]:
        return local.embed(texts)


def similarity(answer: Any, wanted: Any, embed: Any, **settings: Any) -> float | None:
    return asyncio.run(semantic_similarity({"output": answer}, {"answer": wanted}, embed, **settings))


def of(one: list[float], other: list[float]) -> float | None:
    return similarity("one", "other", Known({"one": one, "other": other}))


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ([1.0, 0.0], [1.0, 0.0], 1.0),
        ([1.0, 0.0], [0.0, 1.0], 0.0),
        ([1.0, 0.0], [3.0, 4.0], 0.6),
        ([2.0, 0.0, 0.0], [1.0, 1.0, 0.0], math.sqrt(0.5)),
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 32 / math.sqrt(14 * 77)),
        ([1.0, 0.0], [-1.0, 0.0], 0.0),  # the cosine is -1
        ([1.0, 1.0], [-3.0, 2.0], 0.0),
        ([1, 0], [3, 4], 0.6),  # whole numbers, as JSON may have them
        ([1e-200, 0.0], [3e-200, 4e-200], 0.6),  # whose squares are 0
        ([1e200, 0.0], [3e200, 4e200], 0.6),  # whose squares are infinite
    ],
)
def test_known_cosines(one: list[float], other: list[float], value: float) -> None:
    assert of(one, other) == pytest.approx(value, abs=1e-12)
    assert of(other, one) == pytest.approx(value, abs=1e-12)


vector = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3).filter(lambda numbers: math.hypot(*numbers) > 1e-3)


def test_both_texts_are_asked_for_in_one_call_and_a_model_only_where_one_is_given() -> None:
    embed = Known({"one": [1.0, 0.0], "other": [3.0, 4.0]})
    similarity("one", "other", embed)
    similarity("one", "other", embed, model="small")
    assert embed.asked == [(["one", "other"], {}), (["one", "other"], {"model": "small"})]


VECTORS = {"a": [1.0, 0.0], "b": [3.0, 4.0], "c": [4.0, 3.0], '["a", "b"]': [0.0, 1.0]}


def test_of_several_references_the_most_similar_counts() -> None:
    for references, value, asked in (
        (["c", "b"], 0.8, ["a", "c", "b"]),
        (("b", "c"), 0.8, ["a", "b", "c"]),
        (["b", "", None, " ", {}, []], 0.6, ["a", "b"]),
    ):
        embed = Known(VECTORS)
        assert similarity("a", references, embed) == pytest.approx(value)
        assert embed.asked == [(asked, {})]


def test_what_is_no_text_is_compared_as_json_and_a_key_names_the_field() -> None:
    embed = Known(VECTORS)
    assert similarity(["a", "b"], ["a", "b"], embed) == 1.0
    assert embed.asked == [(['["a", "b"]', '["a", "b"]'], {})]
    embed = Known({"42": [1.0, 0.0], '{"a": 2, "b": 1}': [3.0, 4.0], "0": [1.0], "false": [1.0]})
    assert similarity(42, {"b": 1, "a": 2}, embed) == pytest.approx(0.6)
    assert similarity(False, 0, embed) == 1.0
    outputs, embed = {"answer": "a", "reasoning": "b"}, Known(VECTORS)
    for reference in ({"wanted": "c"}, {"answer": "c", "note": "easy"}):
        assert asyncio.run(semantic_similarity(outputs, reference, embed, key="answer")) == pytest.approx(0.8)
    with pytest.raises(KeyError, match="no field 'text', got answer, reasoning"):
        asyncio.run(semantic_similarity(outputs, {"wanted": "c"}, embed, key="text"))


def test_without_a_reference_it_does_not_apply_an_empty_answer_is_like_nothing_and_neither_asks_anybody() -> None:
    embed = Known({})
    none: list[Any] = [None, {}, *({"answer": empty} for empty in (None, "", " \n", [], {}, ["", None]))]
    for reference in none:
        assert asyncio.run(semantic_similarity({"output": "a"}, reference, embed)) is None
    for answer in ("", "  \n", None):
        assert similarity(answer, "a", embed) == 0.0
    assert embed.asked == []


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ([1.0, 0.0], [1.0, 0.0, 0.0], "embed: got vectors of 2 and of 3 numbers, wanted one length"),
        ([1.0, 0.0], [0.0, 0.0], "embed: got a vector of length 0, which has no direction"),
        ([], [], "embed: got a vector of length 0, which has no direction"),
        ([math.nan, 0.0], [1.0, 0.0], "embed: got nan in a vector, wanted finite numbers"),
        ([1.0, 0.0], [1.0, -math.inf], "embed: got -inf in a vector, wanted finite numbers"),
        ([1.7e308, 1.7e308], [1.0, 0.0], "embed: got a vector of length inf, which has no direction"),
    ],
)
def test_vectors_without_a_cosine_are_an_error(one: list[float], other: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        of(one, other)


def measured() -> list[tuple[str, str, str, float]]:
    """The rows of the table in the docs."""
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \| ([01]\.\d\d) \|$", DOCS.read_text(encoding="utf-8"), flags=re.M)
    return [(kind, answer, reference, float(value)) for kind, answer, reference, value in rows]


@pytest.mark.parametrize(("kind", "answer", "reference", "value"), measured())
def test_the_figures_in_the_docs_are_those_of_the_model(kind: str, answer: str, reference: str, value: float) -> None:
    assert similarity(answer, reference, Real()) == pytest.approx(value, abs=0.015)


def test_a_vector_too_few_is_an_error() -> None:
    async def embed(texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        return [[1.0]]

    with pytest.raises(ValueError, match=r"^embed: got 1 vectors for 2 texts$"):
        similarity("one", "other", embed)
