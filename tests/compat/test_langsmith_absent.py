"""Names of LangSmith's that do not exist here say what to use instead."""

import importlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from evalflows.compat.langsmith import AsyncClient, Client
from evalflows.compat.langsmith.absent import METHODS, NAMES

THEIRS = """
import json, langsmith
from langsmith import evaluation, run_helpers, wrappers
modules = {"": langsmith, "evaluation": evaluation, "wrappers": wrappers}
names = {name: [*dict.fromkeys([*getattr(module, "__all__", ()), *dir(module)])] for name, module in modules.items()}
methods = [name for name in dir(langsmith.Client) if name[0] != "_"]
print(json.dumps([names, methods]))
"""


def theirs() -> list[Any]:
    python = os.environ.get("LANGSMITH_PYTHON", sys.executable)
    done = subprocess.run([python, "-W", "ignore", "-c", THEIRS], capture_output=True, text=True)
    if "No module named 'langsmith'" in done.stderr:
        pytest.skip("LangSmith's package is not installed, and need not be")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_importing_an_absent_name_says_what_to_use_instead() -> None:
    module = importlib.import_module("evalflows.compat.langsmith")
    for name in NAMES:
        with pytest.raises(ImportError, match=f"^evalflows.compat.langsmith.{name}: not supported here: ") as raised:
            getattr(module, name)
        assert "\n" not in str(raised.value)
    with pytest.raises(ImportError, match="wrap_anthropic: not supported here: wrap_openai records OpenAI's"):
        exec("from evalflows.compat.langsmith.wrappers import wrap_anthropic")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from evalflows.compat.langsmith.evaluation import nothing")


@pytest.mark.parametrize("client", [Client(), AsyncClient()], ids=["Client", "AsyncClient"])
def test_calling_an_absent_method_says_what_to_use_instead(client: Any) -> None:
    kind = type(client).__name__
    with pytest.raises(AttributeError, match=f"^{kind}.pull_prompt: not supported here: keep prompts in files"):
        client.pull_prompt("x")
    with pytest.raises(AttributeError, match=f"^{kind}.nothing: not supported here: docs/guides/langsmith.md lists"):
        client.nothing()
    assert not hasattr(client, "create_run")


def test_the_names_and_the_absent_names_are_theirs() -> None:
    names, methods = theirs()
    module = importlib.import_module("evalflows.compat.langsmith")
    assert {*module.__all__} - {*names[""]} <= {"testing"}, "a module that theirs imports when it is asked for"
    gone = {"index_dataset", "similar_examples"}  # of earlier versions
    assert {*METHODS} - gone <= {*methods}
    gone = {"ContextThreadPoolExecutor", "aevaluate_comparative"}
    assert {*NAMES} - gone <= {name for of_module in names.values() for name in of_module}
