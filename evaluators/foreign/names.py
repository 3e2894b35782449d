"""Names of evaluators: those of other projects by the name of their score."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from evalflows.specs.reference import comes_from, held_by, name_of


def evaluator_name(function: Callable[..., Any]) -> str:
    """Return the default name of an evaluator's score: for other projects' evaluators the name that they use."""
    inner = function.func if isinstance(function, partial) else function
    return _score_name(inner) or name_of(function)


def _score_name(inner: Any) -> str | None:
    """Return the score name of another project's evaluator, if known before a call; None for all others."""
    if inspect.isclass(inner):
        return None
    if comes_from(inner, "openevals"):
        return _name_by_factory(inner)
    if comes_from(inner, "langfuse") and (scorer := held_by(inner).get("autoevals_evaluator")):
        return evaluator_name(scorer)
    if comes_from(inner, "autoevals") and hasattr(inner, "_name"):
        return str(inner._name())
    if comes_from(inner, "pydantic_evals") and hasattr(inner, "get_default_evaluation_name"):
        return str(inner.get_default_evaluation_name())
    keys = getattr(inner, "feedback_keys", None) if comes_from(inner, "langsmith") else None
    return str(keys[0]) if keys and len(keys) == 1 else None


def _name_by_factory(function: Any) -> str | None:
    """Return the feedback key of an evaluator made by an openevals factory, else a name derived from the factory's."""
    held = held_by(function)
    factory, is_made, _ = str(getattr(function, "__qualname__", "")).partition(".<locals>")
    if "feedback_key" in held or not is_made:
        return held.get("feedback_key")
    name = factory.removeprefix("create_").removeprefix("async_").removesuffix("_evaluator")
    mode = held.get("trajectory_match_mode")
    return name.replace("_match", f"_{mode}_match") if mode else name
