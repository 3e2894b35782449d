"""An evaluator, tried on one row, as `evalflows evaluators --try` does."""

from tasks.judge import Fields
from tasks.trying import try_evaluator

__all__ = ["Fields", "try_evaluator"]
