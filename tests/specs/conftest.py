"""Modules that a test writes and imports."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from referenced_code import APP, Import


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """`write_module(name, source)` writes and imports a module, and forgets it after the test."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(name: str, source: str) -> Any:
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return write


@pytest.fixture
def app(write_module: Import) -> Any:
    return write_module("reference_app", APP)
