"""Who may import whom, and which package may use which library. Read off the source, so that late imports count too."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    "specs": (),
    "stats": (),
    "store": ("specs",),
    "evaluators": ("specs", "store.records"),
    "targets": ("specs", "store.records", "store.spilled_lines"),
    "telemetry": ("specs", "store"),
    "serving": ("specs",),
    "receiver": ("serving", "telemetry", "store", "specs"),
    "llm": ("specs", "store"),
    "reports": ("specs", "store"),
    "execution": ("evaluators", "targets", "telemetry", "llm", "store", "specs"),
    "analysis": ("execution", "reports", "evaluators", "targets", "llm", "stats", "store", "specs"),
    "tasks": (
        "analysis",
        "execution",
        "pages.links",
        "reports",
        "evaluators",
        "targets",
        "telemetry",
        "llm",
        "store",
        "specs",
    ),
    "flows": (
        *("tasks", "analysis", "execution", "pages", "reports", "telemetry", "store", "specs"),
        *("evaluators.foreign", "evaluators.subject"),
    ),
    "compat": ("flows", "execution", "evaluators", "targets", "telemetry", "llm", "store", "specs"),
    "pages": ("analysis", "reports", "telemetry", "stats", "store", "specs"),
    "dashboard": ("serving", "pages", "execution.server", "analysis", "reports", "store", "specs"),
    "cli": (
        "flows",
        "dashboard",
        "pages",
        "serving",
        "receiver",
        "telemetry",
        "analysis",
        "execution",
        "reports",
        "evaluators",
        "llm",
        "store",
        "specs",
    ),
    "pytest_plugin": ("compat", "flows", "reports", "evaluators", "store", "specs"),
}
"""Arrows run downward only. The doors (compat, cli, pytest_plugin) also import `evalflows` itself."""

DOORS = ("compat", "cli", "pytest_plugin", "receiver", "dashboard")
WITH_ROOMS = ("stats", "store", "execution", "analysis", "flows")
"""Packages whose sub-packages must not import each other in a circle."""

ONLY_IN = {
    "prefect": ("flows", "tasks", "execution.secret_blocks", "execution.server"),
    "duckdb": ("store",),
    "pyarrow": ("store",),
    "obstore": ("store",),
    "asyncpg": ("store",),
    "openai": ("llm", "compat"),
    "scipy": ("stats",),
    "pytest": ("pytest_plugin",),
    "jinja2": ("pages",),
    "uvicorn": ("serving", "execution.server"),
    "great_expectations": (
        "execution.data_checks.validator",
        "execution.data_checks.data_docs",
        "execution.data_checks.data_docs_table",
    ),
}


TEMPLATES = ROOT / "cli" / "templates"
"""Files that `evalflows init` writes for users: no modules of evalflows."""


def modules() -> list[Path]:
    paths = [path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in paths if path.parent != TEMPLATES]


def name_of(path: Path) -> str:
    """A module's dotted name, without `evalflows.`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"evalflows.{alias.name}" for alias in node.names if alias.name in MAY_IMPORT]
            yield from names if node.module == "evalflows" and names else [node.module or ""]


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_the_walk_sees_every_package() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in modules()} == {*MAY_IMPORT}
    linked = {path.name for path in (ROOT / "evalflows").iterdir() if path.is_symlink()}
    assert linked == {*MAY_IMPORT}, "evalflows/ links to every package"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_what_its_package_may(path: Path) -> None:
    module = name_of(path)
    package = module.partition(".")[0]
    allowed = (package, *MAY_IMPORT[package])
    for name in imports(path):
        top, _, ours = name.partition(".")
        assert top not in MAY_IMPORT, f"{module} imports {name}, wanted evalflows.{name}"
        if top == "evalflows":
            fits = any(is_within(ours, one) for one in allowed) or (not ours and package in DOORS)
            assert fits, f"{package} imports {name}, wanted only {', '.join(allowed)}"
        homes = ONLY_IN.get(top, (package,))
        assert any(is_within(module, home) for home in homes), f"{module} imports {top}, wanted it in {homes} only"


@pytest.mark.parametrize("package", WITH_ROOMS)
def test_rooms_do_not_import_each_other_in_a_circle(package: str) -> None:
    arrows: dict[str | None, set[str]] = defaultdict(set)
    for path in sorted((ROOT / package).glob("*/**/*.py")):
        room = room_of(name_of(path), package)
        for name in imports(path):
            other = room_of(name.removeprefix("evalflows."), package) if name.startswith("evalflows.") else None
            if other not in (room, None):
                arrows[room].add(other)
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def room_of(module: str, package: str) -> str | None:
    """The sub-package that a module lies in; None for what lies beside them, or elsewhere."""
    first = module.removeprefix(f"{package}.").partition(".")[0]
    return first if is_within(module, package) and (ROOT / package / first).is_dir() else None
