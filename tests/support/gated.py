"""Recorded answers with a known truth, for gates: a share of right ones on either side, example by example."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evalflows import gate
from evalflows.reports.decisions import Decision, decisions_named
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import GateFailedError
from evalflows.store.store import Store

RIGHT, WRONG = "yes", "no"
Right = Sequence[bool | str] | np.ndarray[Any, np.dtype[np.bool_]]


def rows(n: int) -> list[dict[str, Any]]:
    return [{"id": f"q{i:04}", "inputs": {"q": f"Question {i}?"}, "reference_outputs": {"a": RIGHT}} for i in range(n)]


def drawn(n: int, share: float, seed: int = 0) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Exactly that share of n is right, anywhere."""
    right = np.arange(n) < round(share * n)
    np.random.default_rng(seed).shuffle(right)
    return right


def fallen(right: np.ndarray[Any, np.dtype[np.bool_]], share: float, seed: int = 1) -> Any:
    """The same with so many, as a share of all, wrong that were right."""
    places = np.flatnonzero(right)
    n_missing = np.random.default_rng(seed).choice(places, round(share * right.size), replace=False)
    after = right.copy()
    after[n_missing] = False
    return after


def recorded(folder: Path, name: str, right: Right) -> dict[str, Any]:
    """A target that answers so."""
    path = folder / f"{name}.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": f"q{i:04}", "outputs": {"a": _answer(one)}}) for i, one in enumerate(right))
    )
    return {"kind": "recorded", "name": name, "path": str(path)}


def _answer(one: bool | str) -> str:
    return one if isinstance(one, str) else RIGHT if one else WRONG


def gated(folder: Path, gates: Sequence[dict[str, Any]], changes: dict[str, Any] | None = None, **right: Right) -> Any:
    """The fields of a spec with a target for each, the first the baseline, and exact_match."""
    n = len(next(iter(right.values())))
    return {
        "name": "app",
        "dataset": {"rows": rows(n)},
        "targets": [recorded(folder, name, one) for name, one in right.items()],
        "evaluators": ["exact_match"],
        "gates": list(gates),
        "chunk_retry_delay_s": 0.01,
        **(changes or {}),
    }


def decided(fields: dict[str, Any]) -> Decision:
    """What the only gate of a spec decides on its only candidate, whatever it is."""
    try:
        identities = gate(ExperimentSpec.model_validate(fields))
    except GateFailedError as error:
        identities = error.decisions
    (one,) = decisions_named(Store(), identities)
    return one
