"""Judges: a model judges one answer, by one property or by chosen criteria."""

from evalflows.evaluators.judges.answer_relevance import answer_relevance
from evalflows.evaluators.judges.context_precision import context_precision
from evalflows.evaluators.judges.context_recall import context_recall
from evalflows.evaluators.judges.correctness import correctness
from evalflows.evaluators.judges.criteria import criteria
from evalflows.evaluators.judges.faithfulness import faithfulness
from evalflows.evaluators.judges.instruction_following import instruction_following
from evalflows.evaluators.judges.refusal import refusal
from evalflows.evaluators.judges.rubric import rubric
from evalflows.evaluators.judges.summary_coverage import summary_coverage
from evalflows.evaluators.judges.toxicity import toxicity
from evalflows.evaluators.judges.user_kept_to_goal import user_kept_to_goal
from evalflows.evaluators.principles import CRITERIA

__all__ = [
    "CRITERIA", "answer_relevance", "context_precision", "context_recall", "correctness", "criteria", "faithfulness",
    "instruction_following", "refusal", "rubric", "summary_coverage", "toxicity", "user_kept_to_goal",
]  # fmt: skip
