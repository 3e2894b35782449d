"""The statements of docs/langsmith.md hold."""

import importlib
import re
from pathlib import Path

from evalflows.compat.langsmith import Client

TEXT = (Path(__file__).parent.parent.parent / "docs" / "langsmith.md").read_text(encoding="utf-8")


def test_every_method_of_the_client_is_listed() -> None:
    for name in (name for name in dir(Client) if name[0] != "_"):
        assert re.search(rf"`(Client\.)?{name}`", TEXT), name


def test_the_import_lines_work() -> None:
    lines = re.findall(r"`from (evalflows\.compat[\w.]*) import ([\w, ]+)`", TEXT)
    assert len(lines) == 8
    for module, names in lines:
        assert all(hasattr(importlib.import_module(module), name) for name in names.split(", "))


def test_the_programs_compile() -> None:
    programs = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert len(programs) == 3
    for program in programs:
        compile(program, "docs/langsmith.md", "exec")
