"""Return values in the forms of LangSmith and Langfuse, and the one judgement of a return value."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from evalflows.evaluators.score import Judgement, normalise


@dataclass
class EvaluationResult:
    """A result like LangSmith's: it has score and value, and either can be None."""

    key: str
    score: Any = None
    value: Any = None
    comment: str | None = None
    metadata: dict[str, Any] | None = None


class LangfuseType(Enum):
    NUMERIC = "NUMERIC"
    BOOLEAN = "BOOLEAN"
    CATEGORICAL = "CATEGORICAL"


@dataclass
class LangfuseEvaluation:
    """A result like Langfuse's Evaluation."""

    name: str
    value: Any
    comment: str | None = None
    metadata: dict[str, Any] | None = None
    data_type: Any = None
    config_id: Any = None


@dataclass
class Results:
    results: Any = field(default_factory=list)


def judgement_of(returned: object) -> Judgement:
    """Return the only judgement that the evaluator `mine` makes of a return value."""
    (judgement,) = normalise(returned, "mine")
    return judgement
