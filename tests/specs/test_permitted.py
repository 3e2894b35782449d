"""What the spec of a deployment's run may name: modules and files of the worker's folder, and our evaluators."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalflows.data_checks.suites import load_expectations
from evalflows.evaluators.named import load_named
from evalflows.specs import permitted
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import FallbackSpec
from evalflows.specs.files import located
from evalflows.specs.reference import load
from evalflows.store.ingest import load_dataset
from evalflows.store.store import Store

MINE = """
import functools, os, subprocess
from ctypes import pythonapi
from operator import itemgetter
from random import random
from subprocess import Popen, getoutput

from evalflows.specs.reference import load

def upper(question):
    return question.upper()

@functools.lru_cache
def cached(question):
    return question

class Judge:
    @classmethod
    def of(cls, outputs):
        return 1

    def __call__(self, outputs):
        return 1

judge = Judge()
bound = functools.partial(upper, question="q")
first = itemgetter(0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A worker's folder, with modules that no other test imports, and an environment in it."""
    place = tmp_path / "worker"
    (place / "parts_of_mine").mkdir(parents=True)
    (place / "module_of_mine.py").write_text(MINE)
    (place / "parts_of_mine" / "inner.py").write_text(MINE)
    (place / "rows.jsonl").write_text('{"inputs": {"question": "q"}}\n')
    (place / "suite.json").write_text("[]")
    installed = place / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "installed_of_mine.py").write_text(MINE)
    (tmp_path / "outside.jsonl").write_text('{"inputs": {"question": "q"}}\n')
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path, str(installed)])
    monkeypatch.setattr(permitted, "_limits", None)
    yield place
    for name in [name for name in sys.modules if "of_mine" in name]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "reference",
    [
        "module_of_mine:upper",
        "module_of_mine:cached",
        "module_of_mine:Judge.of",
        "module_of_mine:judge",
        "parts_of_mine.inner:upper",
        "evalflows.evaluators.text:exact_match",
    ],
)
def test_code_of_the_folder_and_our_evaluators_are_allowed(reference: str, folder: Path) -> None:
    permitted.restrict(folder)
    assert callable(load(reference))


@pytest.mark.parametrize(
    ("reference", "module"),
    [
        ("subprocess:getoutput", "subprocess"),
        ("builtins:eval", "builtins"),
        ("installed_of_mine:upper", "installed_of_mine"),
        ("evalflows.cli.serve:subprocess.getoutput", "evalflows.cli.serve"),
        ("evalflows.specs.reference:load", "evalflows.specs.reference"),
        ("evalflows:evaluate", "evalflows"),
    ],
)
def test_other_modules_are_refused_before_they_are_imported(reference: str, module: str, folder: Path) -> None:
    permitted.restrict(folder)
    top = module.partition(".")[0]
    with pytest.raises(InputError) as refused:
        load(reference)
    assert str(refused.value) == (
        f"{reference!r}: the module {module!r} is not in {folder}; in a deployment's run wanted code of that folder "
        f"or an evaluator of evalflows, or {top!r} under allowed_modules of [tool.evalflows] in "
        f"{folder / 'pyproject.toml'}"
    )
    assert "installed_of_mine" not in sys.modules


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("Popen", "subprocess"),
        ("random", "random"),
        ("first", "operator"),
        ("pythonapi.PyRun_SimpleString", "ctypes"),
        ("load", "evalflows.specs.reference"),
        ("bound.func.func", ""),
        ("upper.__globals__.get", ""),
        ("__builtins__.get", ""),
        ("__loader__.get_data", ""),
    ],
)
def test_code_that_a_module_of_the_folder_imports_is_refused(name: str, module: str, folder: Path) -> None:
    permitted.restrict(folder)
    for where in ("module_of_mine", "parts_of_mine.inner"):
        with pytest.raises(
            InputError, match=f"its code is in the module '{module}'" if module else "begins with|has no"
        ):
            load(f"{where}:{name}")
        for through in ("subprocess.getoutput", "os.path.join", "subprocess"):
            with pytest.raises(InputError, match=f"leads through the module '{through.partition('.')[0]}'"):
                load(f"{where}:{through}")


def test_a_pyproject_lists_more_modules(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.evalflows]\nallowed_modules = ["numpy.linalg", "installed_of_mine"]\n'
    )
    permitted.restrict(folder)
    assert callable(load("installed_of_mine:upper"))
    assert callable(load("numpy.linalg:norm"))
    with pytest.raises(InputError, match="the module 'numpy' is not in"):
        load("numpy:sum")
    with pytest.raises(InputError, match="its code is in the module 'subprocess'"):
        load("installed_of_mine:getoutput")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool", "pyproject.toml: cannot be read: "),
        ("[tool.evalflows]\nallowed_modules = 'numpy'", "allowed_modules: got 'numpy', wanted a list of module names"),
        ("[tool.evalflows]\nallowed_modules = ['']", r"allowed_modules: got \[''\], wanted a list of module names"),
        ("[tool]\nevalflows = 1", "tool.evalflows: got 1, wanted a table"),
    ],
)
def test_a_wrong_pyproject_is_told_in_a_line(text: str, message: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        permitted.restrict(folder)


def test_every_kind_of_code_in_a_spec_is_checked(folder: Path, store: Store) -> None:
    permitted.restrict(folder)
    with pytest.raises(InputError, match="'subprocess:getoutput': the module"):
        load_named(FallbackSpec(use="subprocess:getoutput").use)
    with pytest.raises(InputError, match="'os:listdir': the module"):
        load_dataset(store, DatasetSpec(function="os:listdir"))
    with pytest.raises(InputError, match=r"outside\.jsonl: not below"):
        load_dataset(store, DatasetSpec(path="../outside.jsonl"))
    with pytest.raises(InputError, match="/etc/passwd: not below"):
        load_expectations("/etc/passwd")
    assert load_expectations("suite.json") == []


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside.jsonl", "parts_of_mine/../../outside.jsonl", "~/x", "${HOME}"]
)
def test_a_path_out_of_the_folder_is_refused(path: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    permitted.restrict(folder)
    with pytest.raises(InputError) as refused:
        located(path)
    assert str(refused.value) == (f"{path}: not below {folder}, wanted a file there: a deployment's run reads no other")


def test_a_path_in_the_folder_is_allowed(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path)
    permitted.restrict(folder)
    assert located("rows.jsonl") == Path("rows.jsonl")
    assert located(folder / "rows.jsonl") == folder / "rows.jsonl"
    assert located("parts_of_mine/../rows.jsonl") == folder / "rows.jsonl"
    assert located("link/outside.jsonl").exists(), "the folder's owner made the link"
    assert located("link/../rows.jsonl") == folder / "rows.jsonl", "and it leads nowhere else"
