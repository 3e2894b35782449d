"""The parts of the user's code that a function depends on: what counts, what does not, and their names."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FILES = {
    "answers.py": """
import json
import os
import prompts
from pkg import texts
from pkg.sub import helper as help_me
from shared import *

LIMIT = 3
UNUSED = 4
TABLE = {}
TABLE["a"] = 1

class Base:
    tone = "calm"

class Agent(Base):
    def __call__(self, question):
        return inner(question) + self.tone

def inner(text):
    return text[:LIMIT]

def answer(question):
    import pkg.deep
    prompt = open("prompt.txt").read()
    return inner(prompts.SYSTEM + texts.HELLO + help_me(question) + json.dumps(TABLE) + pkg.deep.X + FOUND + prompt)
""",
    "prompts.py": 'SYSTEM = "Be brief."\nOTHER = "unused"\n',
    "shared.py": "FOUND = 1\nALSO = 2\n",
    "pkg/__init__.py": "",
    "pkg/texts.py": 'HELLO = "hi"\nBYE = "bye"\n',
    "pkg/sub.py": "from .deep import Y\nfrom os import path\n\ndef helper(question):\n    return question + Y\n",
    "pkg/deep.py": 'X = "x"\nY = "y"\nZ = "z"\n',
    "prompt.txt": "Answer in English.\n",
    "other.txt": "unused\n",
}
PARTS = {
    "answers.LIMIT",
    "answers.TABLE",
    "answers.answer",
    "answers.inner",
    "file prompt.txt",
    "pkg.deep.X",
    "pkg.deep.Y",
    "pkg.sub.helper",
    "pkg.texts.HELLO",
    "prompts.SYSTEM",
    "shared.FOUND",
}
PROGRAM = """
import json, sys
sys.path.insert(0, ".")
import answers
from evalflows.specs.code_versions import code_parts
from evalflows.specs.reference import version_of
function = eval(sys.argv[1])
print(json.dumps([code_parts(function), version_of(function)]))
"""
Parts = Callable[..., tuple[dict[str, str], str]]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Return the parts and the version of a function in a process of its own, after changes to the files."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def found(function: str = "answers.answer", **changes: tuple[str, str]) -> tuple[dict[str, str], str]:
        for name, (old, new) in changes.items():
            path = tmp_path / name.replace("__", "/").replace("_txt", ".txt").replace("_py", ".py")
            assert old in path.read_text()
            path.write_text(path.read_text().replace(old, new))
        done = subprocess.run(
            [sys.executable, "-B", "-c", PROGRAM, function],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        code, version = json.loads(done.stdout)
        return code, version

    return found


def test_a_change_is_seen_and_named(parts: Parts) -> None:
    before, version = parts()
    for file, old, new, part in (
        ("prompts_py", "Be brief.", "Be long.", "prompts.SYSTEM"),
        ("answers_py", "LIMIT = 3", "LIMIT = 30", "answers.LIMIT"),
        ("answers_py", "text[:LIMIT]", "text[LIMIT:]", "answers.inner"),
        ("answers_py", 'TABLE["a"] = 1', 'TABLE["a"] = 2', "answers.TABLE"),
        ("pkg__sub_py", "question + Y", "Y + question", "pkg.sub.helper"),
        ("pkg__deep_py", 'X = "x"', 'X = "xx"', "pkg.deep.X"),
        ("shared_py", "FOUND = 1", "FOUND = 2", "shared.FOUND"),
        ("prompt_txt", "English", "French", "file prompt.txt"),
    ):
        after, changed = parts(**{file: (old, new)})
        assert [name for name in after if after[name] != before.get(name)] == [part]
        assert changed != version
        before, version = after, changed


def test_what_it_does_not_use_does_not_count(parts: Parts) -> None:
    before = parts()
    assert before[0].keys() == PARTS
    after = parts(
        prompts_py=(FILES["prompts.py"], '# the system prompt\nSYSTEM   =   "Be brief."\nOTHER = "another"\n'),
        answers_py=("UNUSED = 4", "UNUSED = 5"),
        pkg__deep_py=('Z = "z"', 'Z = "zz"'),
        shared_py=("ALSO = 2", "ALSO = 3"),
        other_txt=("unused", "changed"),
    )
    assert after == before


def test_an_object_depends_on_its_class_and_the_base_classes(parts: Parts) -> None:
    before, version = parts("answers.Agent()")
    assert before.keys() == {"answers.Agent", "answers.Base", "answers.inner", "answers.LIMIT"}
    after, changed = parts("answers.Agent()", answers_py=("calm", "stern"))
    assert [name for name in after if after[name] != before[name]] == ["answers.Base"]
    assert changed != version


@pytest.mark.parametrize("function", ["lambda question: prompts.SYSTEM + question", "partial(answers.inner)"])
def test_lambdas_and_partials_have_parts(parts: Parts, function: str) -> None:
    found, _ = parts(f"(__import__('functools'), exec('from functools import partial; import prompts'), {function})[2]")
    assert {"prompts.SYSTEM"} <= found.keys() or found.keys() == {"answers.inner", "answers.LIMIT"}


def test_installed_code_does_not_count(parts: Parts) -> None:
    assert parts("__import__('json').dumps")[0] == parts("len")[0] == {}
    assert len(parts("len")[1]) == 16
