"""Adapters for evaluators of other projects: autoevals, openevals, LangSmith's RunEvaluator, pydantic-evals."""

from evalflows.evaluators.foreign.adapt import adapted, origin_of
from evalflows.evaluators.foreign.names import evaluator_name

__all__ = ["adapted", "evaluator_name", "origin_of"]
