"""How close in meaning an answer is to its reference, by embeddings."""

import math
from collections.abc import Sequence
from typing import Any

from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.paths import answer_text, as_text, pick, reference_value
from evalflows.specs.errors import short
from evalflows.specs.protocols import Embed


@declares(share)
@needs_reference
async def semantic_similarity(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    embed: Embed,
    *,
    key: str | None = None,
    model: str | None = None,
) -> float | None:
    """How close answer and reference are in meaning: the cosine of their vectors, 0 (unrelated) to 1 (the same).

    A cosine below 0 is 0. If the reference is a list, the most similar element counts, unless the answer is a list too:
    then both are compared as JSON. None without a reference, or with an empty one; an empty answer is 0 without a call.
    `model` is an embedding model of the connection. Raise ValueError for vectors without a cosine. It cannot see truth:
    a wrong fact, a negation or a wrong number is about as close as a paraphrase.
    """
    reference = reference_value(reference_outputs, key)
    references = [] if reference is None else _references(reference, pick(outputs, key))
    if not references:
        return None
    answer = answer_text(outputs, key)
    if not answer.strip():
        return 0.0
    texts, named = [answer, *references], {} if model is None else {"model": model}
    vector, *reference_vectors = units(await embed(texts, **named), len(texts))
    return max(cosine(vector, reference_vector) for reference_vector in reference_vectors)


def _references(reference: Any, answer: Any) -> list[str]:
    """Return the texts to compare with, without empty ones."""
    listed = isinstance(reference, list | tuple)
    texts = [as_text(element) for element in (reference if listed else [reference]) if element not in (None, {}, [])]
    texts = [text for text in texts if text.strip()]
    whole = listed and isinstance(answer, list | tuple)
    return [as_text(reference)] if texts and whole else texts


def units(vectors: Sequence[Sequence[float]], n_texts: int) -> list[list[float]]:
    """Scale the vectors to length 1."""
    if len(vectors) != n_texts:
        raise ValueError(f"embed: got {len(vectors)} vectors for {n_texts} texts")
    sizes = sorted({len(vector) for vector in vectors})
    if len(sizes) > 1:
        raise ValueError(f"embed: got vectors of {sizes[0]} and of {sizes[-1]} numbers, wanted one length")
    return [_unit(vector) for vector in vectors]


def _unit(vector: Sequence[float]) -> list[float]:
    odd = next((number for number in vector if not math.isfinite(number)), None)
    if odd is not None:
        raise ValueError(f"embed: got {short(odd)} in a vector, wanted finite numbers")
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise ValueError(f"embed: got a vector of length {length:g}, which has no direction")
    return [number / length for number in vector]


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the cosine, clipped to 0 to 1: it can exceed 1 by rounding, and opposite counts as unrelated."""
    return min(1.0, max(0.0, math.fsum(a * b for a, b in zip(first, second, strict=True))))
