"""Judgements: plain functions of (inputs, outputs, reference_outputs, …). These can be named by their short name."""

from evaluators.agents import (
    agent,
    final_answer,
    step_efficiency,
    tool_arguments,
    tool_order,
    tool_selection,
    trajectory,
)
from evaluators.concision import concision
from evaluators.contains import contains
from evaluators.conversations import context_use, conversation_quality, turn_errors, turn_quality
from evaluators.correctness import correctness
from evaluators.edit_similarity import edit_similarity
from evaluators.exact_match import exact_match
from evaluators.json_valid import json_valid
from evaluators.judges import (
    answer_relevance,
    context_precision,
    context_recall,
    criteria,
    faithfulness,
    instruction_following,
    refusal,
    schema_adherence,
    toxicity,
)
from evaluators.keyword_safety import keyword_safety
from evaluators.label_f1 import label_f1
from evaluators.length_between import length_between
from evaluators.numeric_closeness import numeric_closeness
from evaluators.pairwise import pairwise_preference, recorded_preference
from evaluators.regex import regex
from evaluators.rubric import rubric
from evaluators.score import Score
from evaluators.semantic_similarity import semantic_similarity

__all__ = [
    "PAIRWISE",
    "SHORT_NAMES",
    "Score",
    "agent",
    "answer_relevance",
    "concision",
    "contains",
    "context_precision",
    "context_recall",
    "context_use",
    "conversation_quality",
    "correctness",
    "criteria",
    "edit_similarity",
    "exact_match",
    "faithfulness",
    "final_answer",
    "instruction_following",
    "json_valid",
    "keyword_safety",
    "label_f1",
    "length_between",
    "numeric_closeness",
    "pairwise_preference",
    "recorded_preference",
    "refusal",
    "regex",
    "rubric",
    "schema_adherence",
    "semantic_similarity",
    "step_efficiency",
    "tool_arguments",
    "tool_order",
    "tool_selection",
    "toxicity",
    "trajectory",
    "turn_errors",
    "turn_quality",
]

SHORT_NAMES = tuple(name for name in __all__ if name.islower())

PAIRWISE = ("pairwise_preference", "recorded_preference")
"""Those that compare two answers; all others judge one answer, or all of an experiment."""
