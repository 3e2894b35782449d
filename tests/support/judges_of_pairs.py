"""Evaluators of pairs, and of all candidates, that tests name as `judges_of_pairs:…`, in this process and in others."""

from typing import Any


def by_text(outputs: list[dict[str, Any]]) -> str:
    """The answer that comes later in the alphabet."""
    first, second = (str(one) for one in outputs)
    return "tie" if first == second else "A" if first > second else "B"


ASKED: list[tuple[str, ...]] = []
"""The candidates of each call of `best_of`, in the order shown."""


async def best_of(inputs: dict[str, Any], candidates: dict[str, Any], complete: Any) -> dict[str, float] | None:
    """Asks a model about all candidates at once, and scores each by its length."""
    if inputs["question"] == "q03?":
        return None
    ASKED.append(tuple(candidates))
    await complete(f"{inputs} {sorted(map(str, candidates.values()))}")
    scores = {name: float(len(str(outputs))) for name, outputs in candidates.items()}
    return {**scores, "who": 1.0} if inputs["question"] == "q04?" else scores


def ranked(outputs: list[dict[str, Any]], runs: list[Any]) -> dict[str, Any]:
    """Ranks all candidates by length, the longest first; as a program for another project could."""
    by_length = sorted(runs, key=lambda run: -len(str(run.outputs)))
    ranks = {run.id: place for place, run in enumerate(by_length, 1)}
    return {"key": "ranked", "ranks": ranks, "comment": {run.experiment: f"{run.experiment}!" for run in runs}}
