"""Evaluators of other projects, as they are: autoevals, openevals, LangSmith's RunEvaluator, pydantic-evals."""

from evaluators.foreign.adapt import adapted, origin_of

__all__ = ["adapted", "origin_of"]
