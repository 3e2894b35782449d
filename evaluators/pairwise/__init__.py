"""Evaluators that say which of two answers is better: one asks a model, one says again what somebody said before."""

from evaluators.pairwise.pairwise_preference import pairwise_preference
from evaluators.pairwise.recorded_preference import recorded_preference

__all__ = ["pairwise_preference", "recorded_preference"]
