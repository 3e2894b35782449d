"""Whether user code may call models without being recorded, as far as its imports tell.

Recorded are calls through `complete`, `embed` and a wrapped client. A client of another package, or an application
behind HTTP, may call models that nobody counts: then the number and the cost of the calls are unknown, not zero.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from evalflows.specs.code_parts import packages_used
from evalflows.specs.reference import load
from evalflows.specs.target import HttpTarget, PythonTarget, TargetSpec

CALLS_OUT = frozenset({"http", "socket", "subprocess", "urllib", "xmlrpc"})
"""Modules of the standard library through which code may call anything."""

CALL_NOTHING = frozenset(
    {"bs4", "dateutil", "duckdb", "jinja2", "jsonschema", "lxml", "nltk", "numpy", "orjson", "pandas", "polars"}
    | {"pyarrow", "pydantic", "pytest", "pytz", "rapidfuzz", "regex", "scipy", "sklearn", "tiktoken", "yaml"}
)
"""Packages that call no model, by their import names."""

RECORDS = "evalflows"
"""Code that uses this package is taken to wrap its client."""


def may_call_unrecorded(function: Callable[..., Any]) -> bool:
    """Return whether a callable's code uses a package that may call a model, or cannot be read."""
    packages = packages_used(function)
    if packages is None:
        return True
    harmless = (sys.stdlib_module_names - CALLS_OUT) | CALL_NOTHING
    return RECORDS not in packages and not packages <= harmless


def target_may_call_unrecorded(spec: TargetSpec) -> bool:
    if isinstance(spec, PythonTarget):
        return may_call_unrecorded(load(spec.function))
    return isinstance(spec, HttpTarget)


def unlimited_targets(targets: Sequence[TargetSpec]) -> list[str]:
    """Return the names of the targets whose calls no budget can limit."""
    return [target.name for target in targets if target_may_call_unrecorded(target)]
