"""Distances between two texts: of their characters, and of their vectors."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from rapidfuzz.distance import DamerauLevenshtein, Hamming, Indel, Jaro, JaroWinkler, Levenshtein

from evalflows.compat.langchain.models import openai_embedding
from evalflows.specs.errors import InputError, short

Encoder = Callable[[Sequence[str]], Any]

EDIT_METRICS: Mapping[str, ModuleType] = {
    "damerau_levenshtein": DamerauLevenshtein,
    "levenshtein": Levenshtein,
    "jaro": Jaro,
    "jaro_winkler": JaroWinkler,
    "hamming": Hamming,
    "indel": Indel,
}

VECTOR_METRICS: Mapping[str, Callable[[Any, Any], Any]] = {
    "cosine": lambda a, b: 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)),
    "euclidean": lambda a, b: np.linalg.norm(a - b),
    "manhattan": lambda a, b: np.abs(a - b).sum(),
    "chebyshev": lambda a, b: np.abs(a - b).max(),
    "hamming": lambda a, b: np.mean(a != b),
}


def edit_distance(first: str, second: str, metric: str = "damerau_levenshtein", *, normalised: bool = True) -> float:
    """Return the distance of two texts, by default as a share from 0 (equal) to 1. Raises InputError."""
    if metric not in EDIT_METRICS:
        raise InputError(f"edit distance: metric: got {short(metric)}, wanted one of {', '.join(EDIT_METRICS)}")
    module: Any = EDIT_METRICS[metric]
    return float((module.normalized_distance if normalised else module.distance)(first, second))


def embedding_distance(first: str, second: str, metric: str = "cosine", encoder: Encoder | None = None) -> float:
    """Return the distance of two texts' vectors, which `encoder` or the connection `openai` makes.

    Raises InputError for an unknown metric, ValueError for vectors without a distance, and CallError for an unanswered
    call.
    """
    if metric not in VECTOR_METRICS:
        raise InputError(f"embedding distance: metric: got {short(metric)}, wanted one of {', '.join(VECTOR_METRICS)}")
    vectors = np.asarray((encoder or openai_embedding)([first, second]), dtype=float)
    if vectors.ndim != 2 or len(vectors) != 2:
        raise ValueError(f"embedding distance: got vectors of shape {vectors.shape}, wanted two of one length")
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = float(VECTOR_METRICS[metric](*vectors))
    if not np.isfinite(distance):
        raise ValueError(f"embedding distance: got {distance}, wanted vectors of finite numbers, not all zero")
    return distance
