"""Evaluators that say which of two answers is better: one calls a model, one reads recorded preferences."""

from evalflows.evaluators.pairwise.pairwise_preference import pairwise_preference
from evalflows.evaluators.pairwise.recorded_preference import recorded_preference

__all__ = ["pairwise_preference", "recorded_preference"]
