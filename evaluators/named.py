"""Evaluators by their names: the short ones of ours, and `module:name` of anyone's."""

from difflib import get_close_matches
from typing import Any

import evaluators
from evaluators.foreign import origin_of
from specs.errors import InputError
from specs.reference import load


def named(name: str) -> Any:
    """The evaluator of that name: a function, or what another project has for one. Raises InputError for none."""
    if name in evaluators.SHORT_NAMES:
        return getattr(evaluators, name)
    if ":" not in name:
        near = get_close_matches(name, evaluators.SHORT_NAMES, n=3)
        known = " or ".join(near) if near else f"one of {', '.join(evaluators.SHORT_NAMES)}"
        raise InputError(f"evaluator {name!r}: wanted 'module:name' or {known}")
    return load(name, fits=_is_evaluator)


def _is_evaluator(found: object) -> bool:
    return callable(found) or origin_of(found) is not None
