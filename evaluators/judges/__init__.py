"""Judges that ask a model, by criteria or for one thing each, and `schema_adherence`, which asks none."""

from evaluators.judges.answer_relevance import answer_relevance
from evaluators.judges.context_precision import average_precision, context_precision
from evaluators.judges.context_recall import context_recall
from evaluators.judges.criteria import criteria
from evaluators.judges.criterion import CRITERIA, HARMS, Criterion, criteria_of
from evaluators.judges.faithfulness import faithfulness
from evaluators.judges.instruction_following import instruction_following
from evaluators.judges.refusal import refusal
from evaluators.judges.schema_adherence import schema_adherence
from evaluators.judges.toxicity import KINDS, toxicity

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
