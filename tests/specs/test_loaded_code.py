"""Code that was edited after Python had imported it is noticed, as in a notebook whose modules are not reloaded."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs import InputError
from evalflows.specs.code_versions import changed_since_import, check_loaded, code_parts

APP = """
from __future__ import annotations
import functools
import prompting

def quietly(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

@quietly
def answer(question: str) -> str:
    return " ".join([prompting.PROMPT, shorten(question)])

def shorten(text: str, most: int = 10) -> str:
    return text[:most]
"""
PROMPTING = 'PROMPT = "Answer."\nSETTINGS = {"a": 1}\nSETTINGS["a"] = 2\n'

Edit = Callable[[str, str, str], None]


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "app_module.py").write_text(APP)
    (tmp_path / "prompting.py").write_text(PROMPTING)

    def edited(file: str, old: str, new: str) -> None:
        path = tmp_path / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        os.utime(path, (path.stat().st_mtime + 5,) * 2)

    yield edited
    for name in ("app_module", "prompting"):
        sys.modules.pop(name, None)


def stale(function: Any) -> list[str]:
    return changed_since_import(function)


@pytest.mark.parametrize(
    ("file", "old", "new", "name"),
    [
        ("prompting.py", '"Answer."', '"Answer briefly."', "prompting.PROMPT"),
        ("app_module.py", "text[:most]", "text[most:]", "app_module.shorten"),
        ("app_module.py", '" ".join', '"-".join', "app_module.answer"),
    ],
)
def test_an_edited_part_is_named_until_its_module_is_loaded_again(
    file: str, old: str, new: str, name: str, edit: Edit
) -> None:
    app = importlib.import_module("app_module")
    edit(file, old, new)
    assert stale(app.answer) == [name]
    with pytest.raises(InputError) as refused:
        check_loaded("target 'bot'", app.answer)
    module = name.partition(".")[0]
    assert str(refused.value).startswith(f"target 'bot': {name} changed on disk after the import, wanted the module")
    assert f"importlib.reload({module})" in str(refused.value)
    importlib.reload(sys.modules[module])
    assert stale(importlib.reload(app).answer) == []


def test_what_a_program_changed_itself_is_not_an_edit(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    app = importlib.import_module("app_module")
    monkeypatch.setattr(app, "shorten", lambda text: text)
    assert stale(app.answer) == []
    app, prompting = (importlib.import_module(name) for name in ("app_module", "prompting"))
    before = code_parts(app.answer)
    prompting.PROMPT = "Answer in full."
    assert stale(app.answer) == []
    assigned = code_parts(app.answer)
    assert {name for name in before if before[name] != assigned[name]} == {"prompting.PROMPT"}
    prompting.PROMPT = "Answer."
    assert code_parts(app.answer) == before

    Path(prompting.__cached__).unlink()  # as where no bytecode is kept
    prompting.PROMPT = "Answer in full."
    assert stale(app.answer) == ["prompting.PROMPT"], "the file is newer than this process"
    os.utime(prompting.__file__, (1, 1))
    assert stale(app.answer) == [] and code_parts(app.answer) == assigned


@pytest.mark.parametrize("text", ["", "def renamed():\n    return 1\n"])
def test_a_function_that_is_gone_from_its_file_is_the_older_one(text: str, edit: Edit) -> None:
    app = importlib.import_module("app_module")
    edit("app_module.py", APP, text)
    assert stale(app.shorten) == ["app_module.shorten"]


def test_modules_that_pytest_rewrites_are_left_alone() -> None:
    def local() -> list[str]:
        assert stale
        return []

    assert stale(local) == stale(test_modules_that_pytest_rewrites_are_left_alone) == []
