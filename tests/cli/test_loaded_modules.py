"""Which slow libraries each command loads: a command waits only for those that it needs."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from endpoint import Endpoint, serving

import evalflows
import evalflows.llm
import evalflows.specs
import evalflows.stats
import evalflows.store
from evalflows.cli.late_commands import LateCommand
from evalflows.cli.main import cli
from evalflows.store import connect
from evalflows.store.files import FORMAT
from evalflows.store.store import Store

ROOT = Path(__file__).parent.parent.parent
SLOW = (
    *("duckdb", "fastapi", "great_expectations", "httpx2", "jinja2", "numpy", "openai", "pandas", "prefect"),
    *("pyarrow", "pyarrow.compute", "pydantic", "scipy", "scipy.special._orthogonal", "yaml"),
    *("evalflows.analysis.recalibration", "evalflows.tasks.bundles"),  # of gates, and of judges that share a call
)
STORE: set[str] = set()
"""Of a command that asks the store by SQL: DuckDB, without its interface for relations, which is slow to import."""
RELATIONS = {"duckdb"}
FILES = {*STORE, "numpy", "pyarrow"}
"""Of one that also reads or writes its files."""
SPECS = {*STORE, "pydantic"}
"""Of one that also reads specs of stored experiments; a file of a spec needs YAML."""

PROGRAM = f"""
import sys
from evalflows.cli.main import main
try:
    main()
finally:
    print("LOADED", *sorted({{*{SLOW}}} & sys.modules.keys()), file=sys.stderr)
"""

NEEDED: dict[str, set[str]] = {
    "--help": set(),
    "ls": STORE,
    "show kept": STORE,
    "diff kept-long kept-brief": STORE,
    "diff kept-brief kept-long": {*SPECS, "numpy", "scipy"},  # nothing has compared them so
    "flaky kept": {*FILES, *SPECS, "yaml"},
    "best kept --metric contains": {*FILES, *SPECS, "scipy"},
    "sql select\t1": RELATIONS,
    "explain release": STORE,
    "dataset ls": SPECS,
    "labels judges": {*RELATIONS, *FILES, *SPECS, "pandas", "pyarrow.compute"},  # agreement is computed from the items
    "traces ls": SPECS,
    "windows --help": {*SPECS, "numpy"},
    "doctor": {*FILES, "pandas", "pyarrow.compute"},  # pyarrow groups rows with it
    "compact": STORE,
    "forget --example nobody": SPECS,
    "export preferences kept": STORE,
    "export parquet bi --only results": {*RELATIONS, "yaml"},
    "export postgres --help": STORE,
    "sql --format parquet --output out.parquet select\t1": {*RELATIONS, *FILES},
    "connections": {"httpx2", "pydantic", "yaml"},  # of the list of prices
    "evaluators": {*SPECS, "numpy", "yaml"},
    "run no_such_file.yaml": SPECS,
    "robustness --help": STORE,
    "receive --help": set(),
}
SELDOM = ("export", "windows", "labels", "compact", "connections", "robustness", "doctor", "evaluators")
"""Commands whose time is theirs, or that nobody waits for."""


@pytest.fixture
def kept(store_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with finished experiments, a comparison and a decision."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(ROOT / f"tests/store/kept/format_{FORMAT}.zip") as archive:
        archive.extractall(store_root)
    for with_packed in (False, True):  # the first commands of a user keep the views, for which they load more
        Store(store_root).connect(with_packed=with_packed).close()


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "arguments", [pytest.param(one, marks=pytest.mark.soak) if one.startswith(SELDOM) else one for one in NEEDED]
)
def test_a_command_loads_only_what_it_needs(arguments: str) -> None:
    command = [sys.executable, "-P", "-c", PROGRAM, *(part.replace("\t", " ") for part in arguments.split(" "))]
    done = subprocess.run(command, capture_output=True, text=True)
    *_, loaded = done.stderr.splitlines()
    assert {*loaded.split()} == {"LOADED", *NEEDED[arguments]}, done.stderr
    assert done.returncode == (2 if "no_such_file" in arguments else 0), done.stderr


def test_the_table_of_commands_is_that_of_the_modules() -> None:
    for name, command in cli.commands.items():
        assert isinstance(command, LateCommand), name
        loaded = command.load()
        assert loaded.name == name
        assert len(command.short_help or "") <= 60, name  # a line of 80 columns


def test_every_package_lists_and_finds_its_names() -> None:
    for package in (evalflows, evalflows.llm, evalflows.specs, evalflows.stats, evalflows.store):
        assert {*package.__all__} <= {*dir(package)}, package
        assert all(getattr(package, name).__name__ == name for name in package.__all__ if name.islower())
        with pytest.raises(AttributeError, match=f"^module '{package.__name__}' has no attribute 'nothing'$"):
            _ = package.nothing
    code = (
        f"import sys; from evalflows import evaluate; sys.exit(' '.join({{*{SLOW}, 'asyncio'}} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stderr == "\n", "a program that imports `evaluate` waits for nothing that only a run needs"


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("kind", ["recorded", pytest.param("chat", marks=pytest.mark.soak)])
def test_a_run_loads_only_what_it_needs(kind: str, prefect_environment: dict[str, str], tmp_path: Path) -> None:
    spec: dict[str, object] = {
        "name": "rules",
        "dataset": {"rows": [{"inputs": {"question": f"{n} + 1?"}, "metadata": {"said": f"{n}"}} for n in range(3)]},
        "targets": [{"kind": "recorded", "column": "said"}],
        "evaluators": [{"use": "length_between", "args": {"most": 5}}],
    }
    needed = {*FILES, *SPECS, "prefect", "scipy", "yaml"}
    if kind == "chat":
        spec["targets"] = [{"kind": "chat", "connection": "mock"}]
        needed |= {"httpx2", "openai"}
    with serving(Endpoint()) as endpoint:
        spec["connections"] = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "mock"}}
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
        command = [sys.executable, "-P", "-c", PROGRAM, "run", "spec.yaml"]
        done = subprocess.run(command, env=os.environ | prefect_environment, capture_output=True, text=True)
    *_, loaded = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    in_other_order = {"pyarrow.compute"} if kind == "chat" else set()  # takes examples in the order of their answers
    assert {*loaded.split()} - in_other_order == {"LOADED", *needed}
    shown = subprocess.run([*command[:-2], "show", "rules"], capture_output=True, text=True)
    assert shown.stderr.splitlines()[-1].split() == ["LOADED", *sorted(STORE)], "no gate decided, nothing was compared"
    if kind == "recorded":
        planning = {*FILES, *SPECS, "scipy", "yaml", "evalflows.analysis.recalibration"}  # it decides past pairs again
        planned = subprocess.run([*command[:-2], "plan", "spec.yaml"], capture_output=True, text=True)
        assert {*planned.stderr.splitlines()[-1].split()} == {"LOADED", *planning}, planned.stderr
    with connect() as catalog:
        assert catalog.execute("select count(*) > 3, bool_and(passed) from checks").fetchall() == [(True, True)]
