"""Every parameter that we accept exists in LangSmith with the same name and default."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from evalflows.compat.langsmith import (
    Client,
    aevaluate,
    aevaluate_existing,
    evaluate,
    evaluate_existing,
    expect,
    testing,
    trace,
    wrappers,
)
from evalflows.compat.langsmith.comparative import (
    DynamicComparisonRunEvaluator,
    comparison_evaluator,
    evaluate_comparative,
)
from evalflows.compat.langsmith.run_trees import RunTree
from evalflows.compat.langsmith.schemas import (
    AttachmentsOperations,
    ComparativeExperiment,
    ComparisonEvaluationResult,
    Dataset,
    DatasetDiffInfo,
    DatasetVersion,
    EvaluationResult,
    Example,
    ExampleCreate,
    ExampleUpdate,
    Feedback,
    Model,
    Run,
    TracerSession,
)
from evalflows.compat.langsmith.testing import Matcher

OURS_ONLY = {
    "DatasetVersion": {"snapshot_id"},
    "Example": {"split", "cluster"},
    "ExampleCreate": {"outputs"},  # theirs is an argument of the constructor
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "evaluate": evaluate,
    "aevaluate": aevaluate,
    "evaluate_existing": evaluate_existing,
    "aevaluate_existing": aevaluate_existing,
    "evaluation.evaluate_comparative": evaluate_comparative,
    "evaluation.evaluator.comparison_evaluator": comparison_evaluator,
    "evaluation.evaluator.DynamicComparisonRunEvaluator": DynamicComparisonRunEvaluator,
    "evaluation.evaluator.DynamicComparisonRunEvaluator.compare_runs": DynamicComparisonRunEvaluator.compare_runs,
    "evaluation.evaluator.DynamicComparisonRunEvaluator.acompare_runs": DynamicComparisonRunEvaluator.acompare_runs,
    "wrappers.wrap_openai": wrappers.wrap_openai,
    "trace": trace,
    **{f"RunTree.{name}": getattr(RunTree, name) for name in ("post", "end", "patch", "create_child")},
    **{f"RunTree.{name}": getattr(RunTree, name) for name in ("add_inputs", "add_outputs", "add_metadata", "add_tags")},
    **{f"testing.{name}": getattr(testing, name) for name in testing.__all__},
    **{f"expect.{name}": getattr(expect, name) for name in ("value", "score", "edit_distance", "embedding_distance")},
    **{f"_expect._Matcher.{name}": method for name, method in vars(Matcher).items() if name[0] != "_"},
} | {f"Client.{name}": method for name, method in inspect.getmembers(Client, callable) if name[0] != "_"}
RECORDS = (
    *(ComparativeExperiment, ComparisonEvaluationResult, Dataset, EvaluationResult),
    *(AttachmentsOperations, DatasetDiffInfo, DatasetVersion),
    *(Example, ExampleCreate, ExampleUpdate, Feedback, Run, TracerSession),
)

THEIRS = """
import inspect, json, operator, sys
import langsmith
from langsmith import _expect, expect, schemas, testing, trace, wrappers
from langsmith.evaluation import evaluator

def default(parameter):
    value = parameter.default
    value = getattr(value, "value", value)
    plain = value is None or isinstance(value, (bool, int, str))
    return {} if value is parameter.empty else {"default": value} if plain else {"sentinel": True}

def parameters(path):
    return {
        name: {"kind": parameter.kind.name, **default(parameter)}
        for name, parameter in inspect.signature(operator.attrgetter(path)(langsmith)).parameters.items()
    }

def names(record):
    found = getattr(schemas, record, None) or getattr(evaluator, record)
    if record == "TracerSession":
        found = schemas.TracerSessionResult
    return [*found.model_fields, *(n for n in dir(found) if isinstance(getattr(found, n, None), property))]

functions, records = json.loads(sys.argv[1])
print(json.dumps([{path: parameters(path) for path in functions}, {record: names(record) for record in records}]))
"""


@cache
def theirs() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Signatures and fields of the package that is installed here, or with the Python that LANGSMITH_PYTHON names."""
    python = os.environ.get("LANGSMITH_PYTHON", sys.executable)
    wanted = json.dumps([[*FUNCTIONS, "Client"], [record.__name__ for record in RECORDS]])
    done = subprocess.run([python, "-W", "ignore", "-c", THEIRS, wanted], capture_output=True, text=True)
    if "No module named 'langsmith'" in done.stderr:
        pytest.skip(
            "LangSmith's package is not installed, and need not be; LANGSMITH_PYTHON may name a Python that has it"
        )
    functions, records = json.loads(done.stdout or pytest.fail(done.stderr))
    return functions, records


def test_each_parameter_is_theirs() -> None:
    for path in (*FUNCTIONS, "Client"):
        found = theirs()[0][path]
        ours = inspect.signature(FUNCTIONS.get(path, Client)).parameters.values()
        for parameter in ours:
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            same = found.get(parameter.name)
            assert same is not None, f"{path} takes {parameter.name}, LangSmith's does not"
            assert same["kind"] == parameter.kind.name, f"{path}: {parameter.name}"
            if "default" in same:
                assert same["default"] == parameter.default, f"{path}: {parameter.name}"
        named = [parameter.name for parameter in ours if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        assert named == [name for name, one in found.items() if one["kind"] == "POSITIONAL_OR_KEYWORD"][: len(named)]


def test_each_attribute_is_theirs() -> None:
    for record in RECORDS:
        ours = {name for name in dir(record) if name[0] != "_"} - {*dir(Model)}  # pydantic's
        assert ours - OURS_ONLY.get(record.__name__, set()) <= {*theirs()[1][record.__name__]}, record
