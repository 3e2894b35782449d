"""The wheel in a clean environment, beside a repository whose folders are called as ours are: each finds its own."""

import json
import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from running_up import prefect_yaml, running_up

ROOT = Path(__file__).parent.parent
REPOSITORY = {
    **dict.fromkeys(("flows/__init__.py", "tasks/__init__.py", "store/__init__.py", "stats/__init__.py"), ""),
    "store/greetings.py": "GREETING = 'hello'\n",
    "stats/lengths.py": "def longer(one, other):\n    return len(one) > len(other)\n",
    "flows/app.py": """
from store.greetings import GREETING

def answer(question):
    return f"{GREETING} {question}"
""",
    "tasks/mine.py": """
from stats.lengths import longer

def my(inputs, outputs):
    return longer(outputs["output"], inputs["question"])
""",
    "tests/__init__.py": "",
    "tests/judges.py": "def greets(outputs):\n    return outputs['output'].startswith('hello')\n",
    "tests/test_x.py": """
from evalflows.pytest_plugin import assert_at_least
from flows.app import answer
from tasks.mine import my
from tests.judges import greets

def test_evaluate(evaluate):
    evaluate(answer, "rows.jsonl", [my, greets])
    assert_at_least("my", 1.0, sure=False)

def test_a_spec(evalflows_run):
    (done,) = evalflows_run("spec.yaml", "name=tested").values()
    assert_at_least("greets", 1.0, sure=False, experiment=done)
""",
    "script.py": """
import json, evalflows, flows, store
from evalflows import evaluate
from flows.app import answer
from tasks.mine import my

def main():
    evaluate(answer, "rows.jsonl", [my, "tests.judges:greets"], experiment_prefix="scripted")
    print(json.dumps([evalflows.__file__, flows.__file__, store.__file__]))

if __name__ == "__main__":
    main()
""",
    "rows.jsonl": "".join(json.dumps({"inputs": {"question": f"q{n}"}}) + "\n" for n in range(24)),
    "spec.yaml": """
name: specified
dataset: {path: rows.jsonl}
targets: [{kind: python, function: "flows.app:answer"}]
evaluators:
  - tasks.mine:my
  - {use: "tests.judges:greets", timeout_s: 30}
""",
    "prefect.yaml": prefect_yaml("theirs", pool="their-pool", changes="[name=deployed]"),
}


@dataclass(frozen=True)
class Beside:
    """A user's repository, and an environment that has the wheel."""

    folder: Path
    scripts: Path
    variables: dict[str, str]

    def run(self, command: str, *arguments: str) -> str:
        """Run one of the environment's commands in the repository, which must end well. Returns what it prints."""
        done = subprocess.run(
            [self.scripts / command, *arguments],
            cwd=self.folder,
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def means(self, name: str) -> dict[str, float]:
        """The mean of each of the user's metrics in the experiments of a name."""
        query = f"""select metric, avg(value) as mean from item_scores join experiments using (experiment_id)
            where experiments.name like '{name}%' and metric in ('my', 'greets') group by all"""
        rows = self.run("evalflows", "sql", query, "--format", "json").splitlines()
        return {row["metric"]: row["mean"] for row in map(json.loads, rows)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive, and that from a copy: a build leaves folders behind, and takes up earlier ones."""
    copy, made = tmp_path_factory.mktemp("source") / "evalflows", tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "data")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    run("build", "--no-isolation", "--outdir", str(made), str(copy))
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a new environment: the wheel is installed there, and what it needs is that of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    run("pip", "--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    # Path files in there are not read, so that an editable evalflows of this environment is not seen.
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin"


@pytest.fixture
def beside(scripts: Path, tmp_path: Path, prefect_environment: dict[str, str]) -> Iterator[Beside]:
    for name, content in REPOSITORY.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    yield Beside(tmp_path / "repository", scripts, prefect_environment | {"PYTHONPATH": "", "EVALFLOWS_STORE": ""})


def run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_licence(wheel: Path) -> None:
    """Every file in the folders that evalflows/ links to, and no package beside it."""
    rooms = (ROOT / "evalflows").iterdir()
    files = [path for room in rooms for path in [room, *room.resolve().rglob("*")] if path.is_file()]
    ours = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    assert held == {name if name.startswith("evalflows/") else f"evalflows/{name}" for name in ours}
    assert "License-Expression: Apache-2.0\n" in metadata


@pytest.mark.slow
def test_a_script_evaluates(beside: Beside) -> None:
    said = beside.run("python", "script.py")
    evalflows, flows, store = (Path(path) for path in json.loads(said.splitlines()[-1]))
    assert evalflows.is_relative_to(beside.scripts.parent), "not the wheel's"
    assert (flows, store) == (beside.folder / "flows" / "__init__.py", beside.folder / "store" / "__init__.py")
    assert beside.means("scripted") == {"my": 1.0, "greets": 1.0}
    beside.run("evalflows", "init")
    assert "PASS" in beside.run("evalflows", "gate", "evals/experiment.yaml")


@pytest.mark.slow
def test_pytest_has_the_plugin(beside: Beside) -> None:
    assert "2 passed" in beside.run("python", "-P", "-m", "pytest", "tests/test_x.py")
    assert beside.means("tested") == {"my": 1.0, "greets": 1.0}


@pytest.mark.soak
def test_a_worker_runs_a_deployment(beside: Beside) -> None:
    with running_up(beside.folder, environment=beside.variables, command=beside.scripts / "evalflows") as up:
        assert "run_experiment/theirs" in up.printed
        said = beside.run("python", "-m", "prefect", "deployment", "run", "run_experiment/theirs", "--watch")
    assert "'Completed'" in said
    assert beside.means("deployed") == {"my": 1.0, "greets": 1.0}
