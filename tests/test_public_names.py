"""The names that users may rely on: what the documents import is public, and is there."""

import re
from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMPORT = re.compile(r"from (evalflows[\w.]*) import (\([\w,\s]*\)|\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)")


def documented() -> Mapping[str, set[str]]:
    """The names that the documents and examples import, or that a page of the reference lists, by module."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for module, names in IMPORT.findall(text):
            named[module] |= {name.split(" as ")[0].strip() for name in names.strip("()").split(",")} - {""}
        for module in re.findall(r"^\.\. automodule:: (\S+)", text, re.MULTILINE):
            named[module] |= set()
    return named


DOCUMENTED = documented()


@pytest.mark.parametrize("module", DOCUMENTED)
def test_what_the_documents_import_is_public(module: str) -> None:
    loaded = import_module(module)
    public = loaded.__all__
    assert sorted(set(public), key=lambda name: (name.islower(), name)) and len(set(public)) == len(public)
    assert [name for name in public if not hasattr(loaded, name)] == []
    assert DOCUMENTED[module] - {*public} == set(), f"{module}.__all__ lacks what the documents import"
