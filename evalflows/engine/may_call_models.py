"""Whether user code may call models without being recorded, as far as its imports tell.

Recorded are calls through `complete`, `embed` and a wrapped client. A client of another package, or an application
behind HTTP, may call models that nobody counts: then the number and the cost of the calls are unknown, not zero.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evalflows.engine.spec_evaluators import PreparedEvaluator, is_ours
from evalflows.specs.code_versions import DYNAMIC, imports_used
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.specs.reference import is_called, load
from evalflows.specs.target import ConversationTarget, HttpTarget, PythonTarget, TargetSpec, asked

CALLS_OUT = frozenset({"http", "socket", "subprocess", "urllib", "xmlrpc"})
"""Modules of the standard library through which code may call anything."""

UNSEEN = frozenset(
    {f"builtins.{name}" for name in DYNAMIC}
    | {"asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "asyncio.open_connection"}
    | {"importlib.import_module", "os.popen", "os.system", "runpy.run_module", "runpy.run_path"}
)
"""Functions through which code may call what its imports do not tell."""

CALL_NOTHING = frozenset(
    {"bs4", "dateutil", "duckdb", "jinja2", "jsonschema", "lxml", "nltk", "numpy", "orjson", "pandas", "polars"}
    | {"pyarrow", "pydantic", "pytest", "pytz", "rapidfuzz", "regex", "scipy", "sklearn", "tiktoken", "yaml"}
)
"""Packages that call no model, by their import names."""

RECORDS = ("evalflows.llm", "evalflows.compat")
"""Code that uses these is taken to wrap its client, or to use one of ours."""

HOW_TO_RECORD = "wrap the client (evalflows.llm.wrap), or name the `usage` field of an HTTP application's responses"
"""What to do about code whose calls no budget can limit."""

RECORDS_NO_CALL = "evalflows.llm.step"


def may_call_unrecorded(function: Callable[..., Any], *, in_this_process: bool = True) -> bool:
    """Return whether a callable's code uses a package that may call a model, or cannot be read.

    Calls of a wrapped client are recorded only in this process.
    """
    imports = imports_used(function)
    if imports is None:
        return True
    harmless = (sys.stdlib_module_names - CALLS_OUT) | CALL_NOTHING | {"evalflows"}
    if in_this_process and any(map(_records, imports)):
        return False
    return not UNSEEN.isdisjoint(imports) or not {name.partition(".")[0] for name in imports} <= harmless


def records_calls(function: Callable[..., Any]) -> bool:
    """Return whether a callable's code uses a client whose calls are recorded, as far as its imports tell."""
    return any(map(_records, imports_used(function) or ()))


def _records(name: str) -> bool:
    return name != RECORDS_NO_CALL and any(f"{name}.".startswith(f"{ours}.") for ours in RECORDS)


def target_may_call_unrecorded(spec: TargetSpec) -> bool:
    if isinstance(spec, ConversationTarget):
        others = [load(reference) for field, reference in spec.code if field != "target"]
        return target_may_call_unrecorded(spec.target) or any(map(may_call_unrecorded, others))
    if isinstance(spec, PythonTarget):
        return may_call_unrecorded(load(spec.function, is_called))
    return isinstance(spec, HttpTarget)


def reports_usage(spec: TargetSpec) -> bool:
    """Return whether a target is an application that reports the model calls it made."""
    return isinstance(inner := asked(spec), HttpTarget) and inner.usage is not None


def evaluator_may_call_unrecorded(evaluator: PreparedEvaluator[FallbackSpec]) -> bool:
    is_isolated = evaluator.spec.timeout_s is not None and not evaluator.bound.is_async
    return not is_ours(evaluator.spec) and may_call_unrecorded(
        evaluator.bound.function, in_this_process=not is_isolated
    )


def unlimited(
    targets: Sequence[TargetSpec], evaluators: Iterable[PreparedEvaluator[EvaluatorSpec]], *, of_calls: bool
) -> list[str]:
    """Return the targets and evaluators whose calls no budget can limit, each with its kind.

    A budget of calls limits the requests to an application, and a budget of money those that report their cost.
    """
    judges = [e.name for e in evaluators if any(evaluator_may_call_unrecorded(judge) for judge in e.all)]
    systems = [
        target.name
        for target in targets
        if target_may_call_unrecorded(target)
        and not reports_usage(target)
        and not (of_calls and isinstance(asked(target), HttpTarget))
    ]
    return [*(f"target {name!r}" for name in systems), *(f"evaluator {name!r}" for name in judges)]
