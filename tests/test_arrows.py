"""Who may import whom, and which package may use which library. Read off the source, so that late imports count too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *("specs", "stats", "store", "evaluators", "targets", "llm"),
    *("tasks", "flows", "compat", "cli", "pytest_plugin"),
)
MAY_IMPORT = {
    "specs": (),
    "stats": (),
    "store": ("specs",),
    "evaluators": ("specs", "store.records"),
    "targets": ("specs", "store.records"),
    "llm": ("specs", "store"),
    "tasks": ("evaluators", "targets", "llm", "stats", "store", "specs"),
    "flows": ("tasks", "store", "specs"),
    "compat": ("flows", "evaluators", "llm", "store", "specs"),
    # What is listed of connections must be there at once, and to import flows takes seconds.
    "cli": ("flows", "evaluators", "llm.connections", "llm.prices", "store", "specs"),
    "pytest_plugin": ("flows", "evaluators", "store", "specs"),
}
ONLY_IN = {
    "prefect": ("flows", "tasks"),
    "duckdb": ("store",),
    "pyarrow": ("store",),
    "openai": ("llm", "compat"),
    "scipy": ("stats",),
    "pytest": ("pytest_plugin",),
}


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module or ""


def test_the_walk_sees_the_modules() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in modules()} >= {"specs", "store", "tasks", "flows", "cli"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_package_may(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    allowed = (package, *MAY_IMPORT[package])
    for name in imports(path):
        top = name.partition(".")[0]
        if top in PACKAGES:
            fits = any(name == one or name.startswith(f"{one}.") for one in allowed)
            assert fits, f"{package} imports {name}, wanted only {', '.join(allowed)}"
        assert package in ONLY_IN.get(top, (package,)), f"{package} imports {top}, wanted it in {ONLY_IN[top]} only"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_stays_readable(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    most = 550 if path.name == "records.py" else 300  # the records are one list
    assert lines <= most, f"{lines} lines, wanted at most {most}"
