"""Look up evaluators by name: a built-in short name or `module:name`."""

from typing import Any

from evalflows import evaluators
from evalflows.evaluators.foreign import origin_of
from evalflows.specs.errors import InputError, names_to_choose
from evalflows.specs.reference import load


def load_named(name: str) -> Any:
    """Return the evaluator of that name: a function, or another project's evaluator. Raise InputError if unknown."""
    if name in evaluators.SHORT_NAMES:
        return getattr(evaluators, name)
    if ":" not in name:
        known = names_to_choose(name, evaluators.SHORT_NAMES, most=len(evaluators.SHORT_NAMES))
        raise InputError(f"evaluator {name!r}: wanted 'module:name' or {known}")
    return load(name, fits=_is_evaluator)


def _is_evaluator(loaded: object) -> bool:
    return callable(loaded) or origin_of(loaded) is not None
