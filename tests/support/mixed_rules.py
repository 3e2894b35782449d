"""Rules of every kind, to judge a few recorded answers with."""

import time
from typing import Any

EXAMPLES: list[dict[str, Any]] = [
    {
        "id": f"e{number}",
        "inputs": {"question": f"q{number}", "big": 2**70 + number},
        "reference_outputs": {"answer": f"Q{number}"} if number != 3 else None,
        "metadata": {
            "said": f"Q{number}" if number % 2 else "no, I say 'é' \u2028",
            "risk": "high" if number < 2 else "low",
        },
        "cluster": f"c{number // 2}",
    }
    for number in range(7)
]
EXAMPLES += [
    {"id": "unanswered", "inputs": {"question": "?"}, "reference_outputs": {"answer": "!"}, "metadata": {"risk": "low"}}
]

EVALUATORS: list[Any] = [
    *("exact_match", "contains", "numeric_closeness"),
    {"use": "length_between", "args": {"most": 3}},
    *(f"mixed_rules:{name}" for name in ("labels", "several", "raises", "exits", "nan", "nothing", "latency")),
    *(f"mixed_rules:{name}" for name in ("turns", "twice", "torn", "rated", "declared", "sees_all", "spoils", "slow")),
    "mixed_rules:awaited",
    {"use": "exact_match", "name": "half", "sample_rate": 0.5},
    {"use": "mixed_rules:risky", "sample_by": "metadata.risk", "sample_rates": {"high": 1.0}, "sample_rate": 0.25},
    {"name": "tiered", "use": "cascade", "tiers": ["mixed_rules:odd_only", "contains"]},
    {"use": "mixed_rules:raises", "name": "falls", "fallback": {"use": "exact_match"}},
]
METRICS = {"rated": {"range": [0, 1]}}
CONFIGS = {"grade": {"name": "declared", "data_type": "CATEGORICAL", "categories": ["good", "bad"]}}


def labels(outputs: dict[str, Any]) -> str:
    return "capital" if outputs["output"].startswith("Q") else "other"


def several(output: str, expected_output: Any) -> list[Any]:
    first = {"key": "share", "score": len(output) / 40, "comment": "so\nlong", "metadata": {"b": [1, 2.5], "a": None}}
    return [first, {"name": "kind", "value": "even", "data_type": "CATEGORICAL"}, output == expected_output]


def raises(outputs: dict[str, Any]) -> bool:
    raise RuntimeError(f"cannot judge {outputs['output']}")


def exits() -> bool:
    raise SystemExit(3)


def nan() -> float:
    return float("nan")


def nothing() -> None:
    return None


def latency(inputs: dict[str, Any]) -> float:
    return float(inputs["question"] == "q1")


def turns(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": "turns", "score": 1, "turn": number} for number in (1, 2)]


def twice() -> list[bool]:
    return [True, False]


def torn() -> dict[str, Any]:
    return {"score": 1, "comment": "half a pair: \ud83d", "metadata": {"text": "\udc00"}}


def rated(metadata: dict[str, Any]) -> float:
    return 1.0 if metadata["risk"] == "low" else 1.5


def declared(outputs: dict[str, Any]) -> dict[str, Any]:
    return {"value": "good" if outputs["output"].startswith("Q") else "awful", "config_id": "grade"}


def sees_all(run: Any, example: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "score": run.repetition,
        "comment": f"{example.id} {example.cluster} {inputs['big']} {run.outputs['output']}",
    }


def spoils(inputs: dict[str, Any], outputs: dict[str, Any], run: Any) -> bool:
    """What it does to its arguments is seen by no other."""
    inputs.clear()
    outputs["output"] = run.outputs["output"] = "spoiled"
    return True


def slow(outputs: dict[str, Any]) -> bool:
    time.sleep(0.012)  # more than what is cheap to do again
    return True


async def awaited(outputs: dict[str, Any]) -> bool:
    return outputs["output"].startswith("Q")


def risky(metadata: dict[str, Any]) -> bool:
    return metadata["risk"] == "high"


def odd_only(inputs: dict[str, Any]) -> bool | None:
    return None if int(inputs["question"][1:]) % 2 else True


def counts(scores: Any) -> int:
    """Asks for the scores of the others."""
    return len(scores)
