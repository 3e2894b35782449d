"""Which room may import which, and which room may use which library. Read off the source, so late imports count too."""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import evalflows

ROOT = Path(__file__).parent.parent
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    "specs": (),
    "stats": ("specs.frozen", "specs.late_names"),
    "server_watch": ("specs",),
    "serving": ("specs",),
    "store": ("specs",),
    "data_checks": ("store", "specs"),
    "evaluators": ("stats", "store.records", "store.schemas", "specs"),
    "llm": ("store", "specs"),
    "prefect_server": ("server_watch", "store.layout", "specs"),
    "prefect_texts": ("prefect_server", "store", "specs"),
    "targets": ("store.records", "store.spilled", "specs"),
    "telemetry": ("llm.prices", "store", "specs"),
    "harnesses": ("store", "specs"),
    "receiver": ("serving", "telemetry", "store", "specs"),
    "engine": ("prefect_server", "serving", "evaluators", "targets", "telemetry", "llm", "stats", "store", "specs"),
    "analysis": ("engine", "data_checks", "evaluators", "targets", "llm", "stats", "store", "specs"),
    "reports": ("analysis", "store", "specs"),
    "mcp_server": (
        *("analysis", "dashboard.links", "telemetry", "reports", "evaluators.fence", "prefect_server", "store"),
        "specs",
    ),
    "dashboard": ("serving", "analysis", "prefect_server", "reports", "telemetry", "store", "specs"),
    "tasks": (
        *("analysis", "engine", "data_checks", "dashboard.links", "reports", "evaluators", "llm", "store", "specs"),
        *("prefect_server", "prefect_texts", "server_watch"),
    ),
    "flows": ("tasks", "engine", "prefect_server", "specs"),
    "api": (
        *("flows", "tasks", "analysis", "engine", "harnesses", "dashboard", "reports", "evaluators", "store", "specs"),
        *("llm.ledger", "prefect_server", "server_watch"),
    ),
    "compat": ("api", "engine", "evaluators", "targets", "telemetry", "llm", "store", "specs"),
    "pytest_plugin": ("compat", "reports", "engine.run_context", "store", "specs"),
    "cli": (
        *("api", "flows", "dashboard", "receiver", "serving", "telemetry", "analysis", "engine", "data_checks"),
        *("harnesses", "mcp_server", "reports", "evaluators", "llm", "store", "specs", "prefect_server"),
        "prefect_texts",
    ),
}
"""Arrows run upward only. The doors also import `evalflows` itself, which offers what its `__init__` lists."""

DOORS = ("compat", "cli", "pytest_plugin")

ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "prefect": ("flows", "tasks", "api.calling", "engine.secret_blocks", "prefect_server", "server_watch"),
    "duckdb": ("store",),
    "pyarrow": ("store",),
    "obstore": ("store.file_systems", "store.object_store"),
    "asyncpg": ("store.postgres",),
    "openai": ("llm", "compat"),
    "anthropic": ("llm.protocols",),
    "google": ("llm.protocols", "receiver"),  # in receiver.py its protobuf
    "scipy": ("stats", "evaluators.agents.trajectory"),
    "sacrebleu": ("evaluators.overlap",),
    "rouge_score": ("evaluators.overlap",),
    "pytest": ("pytest_plugin", "compat.langsmith.testing"),
    "jinja2": ("dashboard.rendering",),
    "pypdf": ("engine.passages",),
    "uvicorn": ("serving", "prefect_server"),
    "watchfiles": ("cli.watch",),
    "mcp": ("mcp_server", "engine.worlds"),
    "great_expectations": ("data_checks.suites", "data_checks.data_docs"),
}

LINKS = ("flows", "tasks", "evaluators")
"""Rooms at the top of the repository, to which evalflows/ links."""


def modules() -> dict[str, Path]:
    """All modules by their names without `evalflows.`, except the files that `evalflows init` writes for users."""
    folders = [ROOT / "evalflows", *(ROOT / link for link in LINKS)]
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            name = name.removeprefix("evalflows").removeprefix(".")
            if not name.startswith("cli.templates."):
                found[name] = path
    return found


MODULES = modules()


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it: of our own, modules without `evalflows.`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("evalflows.") in MODULES else node.module or ""


def is_within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_the_walk_sees_every_room() -> None:
    assert {room_of(module) for module in MODULES} == {"", *MAY_IMPORT}
    linked = {path.name for path in (ROOT / "evalflows").iterdir() if path.is_symlink()}
    assert linked == {*LINKS}, "evalflows/ links to these, and holds the rest"


def test_every_package_is_built() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    packages = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    assert listed == sorted(f"evalflows.{package}".removesuffix(".") for package in packages)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    allowed = (room, *MAY_IMPORT[room])
    for module, path in MODULES.items():
        if room_of(module) != room:
            continue
        for name in imports(path):
            top, _, ours = name.partition(".")
            assert top not in MAY_IMPORT, f"{module} imports {name}, wanted evalflows.{name}"
            if top == "evalflows":
                fits = is_within(ours, allowed) or (not ours and room in DOORS)
                assert fits, f"{module} imports {name}, wanted only {', '.join(allowed)}"
            homes = ONLY_IN.get(top, (room,))
            assert is_within(module, homes), f"{module} imports {top}, wanted it in {', '.join(homes)} only"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    arrows = {
        module: {name.removeprefix("evalflows.") for name in imports(path)} & MODULES.keys() - {module}
        for module, path in MODULES.items()
        if module
    }
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_every_public_name_is_found() -> None:
    """They are imported when they are first used, so a module that moves takes them away unseen."""
    assert [name for name in evalflows.__all__ if not hasattr(evalflows, name)] == []
