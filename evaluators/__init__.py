"""Judgements: plain functions of (inputs, outputs, reference_outputs, …). These can be named by their short name."""

from evaluators.contains import contains
from evaluators.exact_match import exact_match
from evaluators.score import Score

SHORT_NAMES = ("contains", "exact_match")

__all__ = ["SHORT_NAMES", "Score", "contains", "exact_match"]
