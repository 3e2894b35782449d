"""Model-based judges, for chosen criteria or one property each, and `schema_adherence`, a rule without a model."""

from evalflows.evaluators.judges.answer_relevance import answer_relevance
from evalflows.evaluators.judges.context_precision import average_precision, context_precision
from evalflows.evaluators.judges.context_recall import context_recall
from evalflows.evaluators.judges.criteria import criteria
from evalflows.evaluators.judges.criterion import CRITERIA, HARMS, Criterion, criteria_of
from evalflows.evaluators.judges.faithfulness import faithfulness
from evalflows.evaluators.judges.instruction_following import instruction_following
from evalflows.evaluators.judges.refusal import refusal
from evalflows.evaluators.judges.schema_adherence import schema_adherence
from evalflows.evaluators.judges.toxicity import KINDS, toxicity

__all__ = [
    "CRITERIA",
    "HARMS",
    "KINDS",
    "Criterion",
    "answer_relevance",
    "average_precision",
    "context_precision",
    "context_recall",
    "criteria",
    "criteria_of",
    "faithfulness",
    "instruction_following",
    "refusal",
    "schema_adherence",
    "toxicity",
]
