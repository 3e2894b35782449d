"""The plugin within pytest: its fixtures and its option, what a failure shows, and that it costs nothing unused."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

import evalflows
from evalflows.pytest_plugin.plugin import XDIST, _shared
from evalflows.store import Store, connect

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent.parent
NUMBERS = [n if n < 36 else 10**9 + n for n in range(80)]
ROWS = [
    {"id": f"q{place:02}", "inputs": {"question": f"Please say {n}"}, "reference_outputs": {"answer": str(n)}}
    for place, n in enumerate(NUMBERS)
]
"""An answer in a sentence is more than twice as long as the short ones, and not as the long ones."""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose pytest loads this plugin, and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = -p evalflows.pytest_plugin.plugin")
    return pytester


@pytest.fixture
def loaded(without_prefect: None) -> None:
    """Runs an experiment: what is imported within the other pytest, that one forgets, and some cannot load twice."""
    evalflows.evaluate(lambda question: question, ROWS[:2], ["contains"], experiment_prefix="loaded")


def text_of(run: pytest.RunResult) -> str:
    return re.sub(r"exp-\w+", "ID", "\n".join(run.outlines))


COLLECT = """
import sys, pytest
code = pytest.main(["--collect-only", "-q", "-p", "evalflows.pytest_plugin.plugin", sys.argv[1]])
print("LOADED", *sorted({"prefect", "duckdb", "pydantic", "numpy", "pandas"} & sys.modules.keys()))
sys.exit(code)
"""


@pytest.mark.parametrize("imported, loaded", [("", []), ("import evalflows.specs.gate", ["pydantic"])])
def test_collecting_imports_nothing_of_evalflows(tmp_path: Path, imported: str, loaded: list[str]) -> None:
    """Beside it a module that imports specs, to see that one would be seen."""
    path = tmp_path / "test_empty.py"
    path.write_text(
        f"{imported}\nfrom evalflows.pytest_plugin import assert_at_least\ndef test_nothing(evaluate): assert True\n"
    )
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COLLECT, str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert [name for name in line.split()[1:] if not loaded or name in loaded] == loaded


@pytest.mark.slow
@pytest.mark.usefixtures("loaded")
def test_the_file_in_the_document_does_what_it_says(inner: pytest.Pytester) -> None:
    """And what fails is shown in the test's own line, without the plugin's code or the log of what ran."""
    document = (ROOT / "docs" / "guides" / "pytest.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", document, flags=re.S)
    inner.makepyfile(program)
    (inner.path / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    run = inner.runpytest_inprocess("--junit-xml=report.xml", "--junit-examples")
    run.assert_outcomes(passed=2, failed=1)
    suite = ElementTree.parse(inner.path / "report.xml").getroot()[0]
    counts = {"tests": 3 + 2 * len(ROWS), "failures": 1, "errors": 0, "skipped": 36}  # 36 answers are not brief
    assert {name: int(suite.attrib[name]) for name in counts} == counts
    (case,) = (one for one in suite if (one.attrib["classname"], one.attrib["name"]) == ("after", "q00"))
    assert [one.attrib["value"] for one in case.iter("property")] == ["0.0", "1.0"]
    (wrong,) = case.iter("skipped")
    assert wrong.attrib["message"] == "8 characters, wanted at most 2 times 1"
    shown = text_of(run)
    promised = document.partition("The last one fails:\n\n")[2].partition("\n\n##")[0].replace("exp-01m8…", "ID")
    said = "\n".join(
        f"E       {'' if i else 'AssertionError: '}{line[4:]}" for i, line in enumerate(promised.split("\n"))
    )
    assert said in shown
    assert '>       assert_no_regression(new, now, "concision")' in shown
    assert "__tracebackhide__" not in shown
    assert "Captured" not in shown
    with connect() as catalog:
        assert catalog.execute("select name from experiments order by name").fetchall() == [
            ("after",),
            ("before",),
            ("loaded",),
        ], "each fixture ran once"


@pytest.mark.slow
@pytest.mark.usefixtures("loaded")
def test_a_spec_is_run_with_changes_and_gives_an_experiment_for_each_target(inner: pytest.Pytester) -> None:
    spec = """
        name: sums
        dataset: {rows: [{inputs: {question: one}, outputs: one}, {inputs: {question: two}, outputs: two}]}
        targets:
          - {kind: python, name: same, function: "shouting:same"}
          - {kind: python, name: loud, function: "shouting:loud"}
        evaluators: [exact_match]
    """
    (inner.path / "sums.yaml").write_text(spec)
    inner.syspathinsert()
    inner.makepyfile(
        shouting="""
        def same(question): return question
        def loud(question): return question.upper()
        """,
        test_spec="""
        def test_it(evalflows_run, assert_at_least):
            ran = evalflows_run("sums.yaml", "repetitions=2")
            assert {name: len(one) for name, one in ran.items()} == {"same": 4, "loud": 4}
            assert_at_least("exact_match", 0.9, experiment=ran["same"], sure=False, min_examples=2)
            assert ran["loud"].scores("exact_match") == [0.0] * 4
        """,
    )
    inner.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_mistake_is_shown_as_a_line_of_the_test(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import pytest
        def test_it(evaluate):
            evaluate(str, [{"inputs": {"a": 1}}], ["nosuch"])
        def test_spec(evalflows_run):
            evalflows_run("nosuch.yaml")
        def test_assertion(assert_at_least):
            assert_at_least("m", 1, experiment="nosuch")
        @pytest.fixture
        def broken(): raise KeyError("mine")
        def test_broken(broken): pass
        """
    )
    run = inner.runpytest_inprocess()
    run.assert_outcomes(failed=3, errors=1)
    shown = text_of(run)
    assert "E       evalflows.specs.errors.InputError: evaluator 'nosuch': wanted 'module:name' or one of" in shown
    assert "E       evalflows.specs.errors.InputError: nosuch.yaml: cannot be read: No such file or directory" in shown
    assert "E       evalflows.specs.errors.InputError: experiment 'nosuch': not in" in shown
    assert not re.search(r"(plugin|ran|asserts|api|lookup)\.py:\d+", shown)


MEANT = """
import pytest
from evalflows.pytest_plugin.asserts import _default_experiment
from evalflows.pytest_plugin.plugin import RAN

@pytest.fixture(scope="session")
def ran(request): return request.config.stash[RAN].add

@pytest.fixture(scope="module")
def one(ran): ran("one")

@pytest.fixture(scope="module", params=["first", "second"])
def each(ran, request): ran(request.param)

@pytest.fixture
def short(ran): ran("short")

def meant():
    try:
        return _default_experiment("m")
    except Exception as error:
        return str(error).partition("got ")[2].partition(" run")[0]

def test_its_own_last(ran, one):
    ran("a")
    ran("b")
    assert meant() == "b"

def test_its_fixture_s_and_not_another_test_s(one): assert meant() == "one"
def test_of_a_test_s_fixture(short): assert meant() == "short"
def test_each(each, request): assert meant() == request.node.callspec.params["each"]
def test_two(one, short): assert meant() == "2"
def test_none(): assert meant() == "none"

class TestThese:
    @pytest.fixture(scope="class")
    def ours(self, ran): ran("ours")
    def test_it(self, ours): assert meant() == "ours"
    def test_once_more(self, ours): assert meant() == "ours"
"""


def test_the_experiment_that_is_meant_is_the_test_s_own_or_its_fixture_s(inner: pytest.Pytester) -> None:
    inner.makepyfile(MEANT)
    run = inner.runpytest_inprocess()
    run.assert_outcomes(passed=9)


WHERE = """
import os
from pathlib import Path
from evalflows.pytest_plugin.plugin import STORE
def test_it(evalflows_store, monkeypatch):
    assert os.environ[STORE] == evalflows_store.layout.root
    assert evalflows_store.query("select count(*) from source.experiments") == [(0,)]
    Path("where").write_text(evalflows_store.layout.root)
    monkeypatch.chdir("/")
    assert type(evalflows_store)().layout.root == evalflows_store.layout.root
"""


def where(inner: pytest.Pytester, *options: str) -> tuple[Path, str]:
    """The store of a session, and what it printed. EVALFLOWS_STORE is as it was."""
    before = os.environ.get("EVALFLOWS_STORE")
    inner.makepyfile(WHERE)
    run = inner.runpytest_inprocess(*options)
    run.assert_outcomes(passed=1)
    assert os.environ.get("EVALFLOWS_STORE") == before
    return Path((inner.path / "where").read_text()), text_of(run)


def test_the_store_is_the_one_that_is_named_and_that_of_a_session_is_removed_at_its_end(
    inner: pytest.Pytester, store_root: Path
) -> None:
    root, shown = where(inner, "--evalflows-store", "kept")
    assert root == inner.path / "kept" and f"evalflows store: {root}" in shown
    assert Store(root).query("select count(*) from source.experiments") == [(0,)]
    root, shown = where(inner, "--evalflows-store=tmp")
    assert f"evalflows store: {root}" in shown
    assert not root.exists()
    assert not store_root.exists()


def test_a_store_that_cannot_be_is_told_in_a_line(inner: pytest.Pytester) -> None:
    inner.makepyfile(WHERE)
    run = inner.runpytest_inprocess("--evalflows-store=a*b")
    run.assert_outcomes(errors=1)
    assert re.search(
        r"^E   evalflows.specs.errors.InputError: store '.*a\*b': got 'a\*b', wanted a path", text_of(run), flags=re.M
    )


def test_workers_of_a_session_share_an_experiment_by_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    def target(suffix: str) -> Any:
        return lambda question: question + suffix

    def key(*arguments: Any, **settings: Any) -> str:
        return str(_shared(arguments, settings)["run_key"])

    monkeypatch.delenv(XDIST, raising=False)  # of the workers that run these tests
    assert _shared((target("a"), ROWS), {"name": "x"}) == {"name": "x"}, "without xdist"
    monkeypatch.setenv(XDIST, "one session")
    frame = pd.DataFrame({"q": range(100)})
    assert key(target("a"), frame, ["contains"], name="x") == key(target("a"), frame.copy(), ["contains"], name="x")
    changed = frame.assign(q=frame["q"].replace(50, 51))
    others = [(target("b"), frame, ["contains"]), (target("a"), changed, ["contains"]), (target("a"), frame, [])]
    assert len({key(*other, name="x") for other in others} | {key(*others[0], name="y")}) == 4
    assert key(target("a"), ROWS, run_key="own") == "own"
