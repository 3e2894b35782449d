"""Ours: a whole run. Every answer and score is a row in the store, sealed, with estimates and intervals."""

import os
from typing import Any

from work import IN_FLIGHT, contains, exact, main

from evalflows import evaluate


def is_exact(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return exact(outputs["output"], reference_outputs["output"])


def has_it(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return contains(outputs["output"], reference_outputs["output"])


def evaluated(rows: list[dict[str, str]], target: Any, evaluators: list[Any]) -> int:
    data = [
        {"inputs": {"question": row["question"]}, "outputs": row["reference"], "metadata": {"said": row["said"]}}
        for row in rows
    ]
    result = evaluate(target, data, evaluators, experiment_prefix="peers", max_concurrency=IN_FLIGHT)
    return len(result) * len(evaluators)


def rules(rows: list[dict[str, str]]) -> int:
    return evaluated(rows, {"kind": "recorded", "column": "said"}, [is_exact, has_it])


def calls(rows: list[dict[str, str]], ask: Any) -> int:
    async def target(inputs: dict[str, Any]) -> str:
        return str(await ask(inputs["question"]))

    return evaluated(rows, target, [has_it])


if "WHOLE" not in os.environ:  # else the first run counts too
    evaluated([{"question": "first?", "reference": "a", "said": "a"}], {"kind": "recorded", "column": "said"}, [has_it])
main(rules, calls)
