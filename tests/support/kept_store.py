"""How the stores in tests/store/kept were made: `python tests/support/kept_store.py FOLDER`, once for each format.

A store of 24 questions, two targets one of whose answers fails, rules, a composite, a gate, an approved baseline, a
pairwise comparison, and from format 9 on two days of production with an alarm: a row in almost every table. Never make
one anew for a format that was released.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from made_traces import traces, write

QUESTIONS = 24
BROKEN = "What is 7 + 1?"


def rows() -> list[dict[str, Any]]:
    return [
        {
            "id": f"q{number:02}",
            "inputs": {"question": f"What is {number} + 1?"},
            "reference_outputs": {"answer": str(number + 1)},
            "metadata": {"parity": "even" if number % 2 == 0 else "odd"},
        }
        for number in range(QUESTIONS)
    ]


def long(question: str) -> str:
    """Right but for one question, which it fails to answer."""
    if question == BROKEN:
        raise ValueError("no answer")
    return f"If you ask me, and you do, the answer to this is {int(question.split()[2]) + 1}."


def brief(question: str) -> str:
    return str(int(question.split()[2]) + 1)


def shorter(outputs: list[dict[str, Any]]) -> str:
    """Of two answers the shorter one."""
    first, second = (len(str(one["output"])) for one in outputs)
    return "tie" if first == second else "A" if first < second else "B"


def spec() -> dict[str, Any]:
    return {
        "name": "kept",
        "dataset": {"rows": rows()},
        "targets": [{"name": name, "kind": "python", "function": f"kept_store:{name}"} for name in ("long", "brief")],
        "baseline": "long",
        "evaluators": ["contains", {"use": "length_between", "name": "short", "args": {"most": 20}}],
        "composites": [{"name": "quality", "weights": {"contains": 1, "short": 1}}],
        "gates": [{"name": "release", "non_inferiority": {"contains": 0.2}, "superiority": ["short"]}],
        "compare": {"evaluators": ["kept_store:shorter"], "both_orders": True},
    }


def watch() -> dict[str, Any]:
    return {
        "name": "production",
        "evaluators": [{"use": "length_between", "name": "short", "args": {"most": 20}}],
        "composites": [{"name": "quality", "weights": {"short": 1}}],
        "settle_s": 0,
        "watch": [{"threshold": "short", "minimum": 0.9, "late_s": 0}],
    }


def produced() -> list[Any]:
    """Forty traces on each of two past days; the answers of the second day are too long."""
    began = datetime.now(UTC).replace(hour=9) - timedelta(days=3)
    return [
        row
        for day, output in enumerate(("brief", "an answer of more than twenty characters"))
        for row in traces(40, first=40 * day, output=output, began=began + timedelta(days=day))
    ]


def make(folder: Path) -> None:
    os.environ["EVALFLOWS_STORE"] = str(folder)
    from evalflows import approve, evaluate_traces, run
    from evalflows.specs import ExperimentSpec
    from evalflows.specs.traces import TraceEvaluationSpec
    from evalflows.store import Store

    experiments = run(ExperimentSpec.model_validate(spec()))
    approve(experiments[0], "kept", reason="the first of its kind", by="somebody")
    write(Store(), produced())
    evaluate_traces(TraceEvaluationSpec.model_validate(watch()))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
