"""An experiment of two targets, of which one is right more often."""

from collections.abc import Callable
from typing import Any

from catalog_rows import rows

from evalflows.specs import ExperimentSpec
from evalflows.specs.reference import refer

N = 40
ROWS = [{"id": f"q{i}", "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]


def number(question: str) -> int:
    return int(question[1:])


def always(question: str) -> str:
    return question.upper()


def often(question: str) -> str:
    """Right except for every fourth question."""
    return question.upper() if number(question) % 4 else "no idea"


def seldom(question: str) -> str:
    return question.upper() if number(question) % 4 == 0 else "no idea"


def targets(**functions: Callable[..., Any]) -> list[dict[str, Any]]:
    return [{"kind": "python", "name": name, "function": refer(function)} for name, function in functions.items()]


def spec(**changes: Any) -> ExperimentSpec:
    fields: dict[str, Any] = {
        "name": "main",
        "dataset": {"rows": ROWS, "name": "rows"},
        "targets": targets(often=often, seldom=seldom),
        "evaluators": ["exact_match"],
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


def verdict(metric: str) -> tuple[Any, ...]:
    (found,) = rows(
        "select conclusion, reason, difference from results where metric = ? and baseline is not null", metric
    )
    return found
