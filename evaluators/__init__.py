"""Judgements: plain functions of (inputs, outputs, reference_outputs, …). These can be named by their short name."""

from evaluators.concision import concision
from evaluators.contains import contains
from evaluators.correctness import correctness
from evaluators.edit_similarity import edit_similarity
from evaluators.exact_match import exact_match
from evaluators.json_valid import json_valid
from evaluators.keyword_safety import keyword_safety
from evaluators.label_f1 import label_f1
from evaluators.length_between import length_between
from evaluators.numeric_closeness import numeric_closeness
from evaluators.regex import regex
from evaluators.rubric import rubric
from evaluators.score import Score
from evaluators.semantic_similarity import semantic_similarity

__all__ = [
    "SHORT_NAMES",
    "Score",
    "concision",
    "contains",
    "correctness",
    "edit_similarity",
    "exact_match",
    "json_valid",
    "keyword_safety",
    "label_f1",
    "length_between",
    "numeric_closeness",
    "regex",
    "rubric",
    "semantic_similarity",
]

SHORT_NAMES = tuple(name for name in __all__ if name.islower())
