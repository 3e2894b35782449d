"""Evaluators: plain functions of (inputs, outputs, reference_outputs, …), available under their short names.

They are imported when they are first used, but those that are named like their module, which would be found instead.
"""

from typing import TYPE_CHECKING

from evalflows.evaluators.classification import classification
from evalflows.evaluators.keyword_safety import keyword_safety
from evalflows.evaluators.regression import regression
from evalflows.evaluators.retrieval import retrieval
from evalflows.specs.late_names import lazy_names

if TYPE_CHECKING:
    from evalflows.evaluators.agents.agent import agent
    from evalflows.evaluators.agents.final_answer import final_answer
    from evalflows.evaluators.agents.outcomes import (
        actions_match,
        cost_per_solved,
        state_matches,
        tool_errors,
        turns_to_goal,
    )
    from evalflows.evaluators.agents.tools import step_efficiency, tool_arguments, tool_order, tool_selection
    from evalflows.evaluators.agents.trajectory_judge import trajectory
    from evalflows.evaluators.classification import label_f1
    from evalflows.evaluators.conversations import (
        context_use,
        conversation_quality,
        role_adherence,
        turn_errors,
        turn_quality,
    )
    from evalflows.evaluators.distances import edit_similarity
    from evalflows.evaluators.json import json_valid, schema_adherence
    from evalflows.evaluators.judges import (
        answer_relevance,
        context_precision,
        context_recall,
        correctness,
        criteria,
        faithfulness,
        instruction_following,
        refusal,
        rubric,
        summary_coverage,
        toxicity,
        user_kept_to_goal,
    )
    from evalflows.evaluators.modes import failure_modes
    from evalflows.evaluators.numbers import numeric_closeness
    from evalflows.evaluators.overlap import bleu, chrf, corpus_bleu, rouge, ter
    from evalflows.evaluators.pairwise import pairwise_preference, recorded_preference
    from evalflows.evaluators.patterns import regex
    from evalflows.evaluators.score import Preference, Score
    from evalflows.evaluators.semantic import semantic_similarity
    from evalflows.evaluators.text import concision, contains, exact_match, length_between

__all__ = [
    "PAIRWISE", "SHORT_NAMES", "Preference", "Score", "actions_match", "agent", "answer_relevance", "bleu", "chrf",
    "classification", "concision", "contains", "context_precision", "context_recall", "context_use",
    "conversation_quality", "corpus_bleu", "correctness", "cost_per_solved", "criteria", "edit_similarity",
    "exact_match", "failure_modes", "faithfulness", "final_answer", "instruction_following", "json_valid",
    "keyword_safety", "label_f1", "length_between", "numeric_closeness", "pairwise_preference", "recorded_preference",
    "refusal", "regex", "regression", "retrieval", "role_adherence", "rouge", "rubric", "schema_adherence",
    "semantic_similarity", "state_matches", "step_efficiency", "summary_coverage", "ter", "tool_arguments",
    "tool_errors", "tool_order", "tool_selection", "toxicity", "trajectory", "turn_errors", "turn_quality",
    "turns_to_goal", "user_kept_to_goal",
]  # fmt: skip


SHORT_NAMES = tuple(name for name in __all__ if name.islower())

PAIRWISE = ("pairwise_preference", "recorded_preference")
"""Evaluators that compare two answers; all others judge one answer, or all answers of an experiment."""

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agents.agent": ("agent",),
        "agents.final_answer": ("final_answer",),
        "agents.outcomes": ("actions_match", "cost_per_solved", "state_matches", "tool_errors", "turns_to_goal"),
        "agents.tools": ("step_efficiency", "tool_arguments", "tool_order", "tool_selection"),
        "agents.trajectory_judge": ("trajectory",),
        "classification": ("label_f1",),
        "conversations": ("context_use", "conversation_quality", "role_adherence", "turn_errors", "turn_quality"),
        "distances": ("edit_similarity",),
        "json": ("json_valid", "schema_adherence"),
        "judges": (
            "answer_relevance",
            "context_precision",
            "context_recall",
            "correctness",
            "criteria",
            "faithfulness",
            "instruction_following",
            "refusal",
            "rubric",
            "summary_coverage",
            "toxicity",
            "user_kept_to_goal",
        ),
        "modes": ("failure_modes",),
        "numbers": ("numeric_closeness",),
        "overlap": ("bleu", "chrf", "corpus_bleu", "rouge", "ter"),
        "pairwise": ("pairwise_preference", "recorded_preference"),
        "patterns": ("regex",),
        "score": ("Preference", "Score"),
        "semantic": ("semantic_similarity",),
        "text": ("concision", "contains", "exact_match", "length_between"),
    },
)
