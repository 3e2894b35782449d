"""evalflows compare, and what show, ls and resume say of comparisons."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from compared import SNAPSHOT, Compared
from endpoint import Endpoint, Reply, Request, completion, serving
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from evalflows.cli.main import cli
from evalflows.store import Store
from evalflows.store.records import SnapshotRow

MODULE = """
def lower(question):
    return question.lower()

def upper(question):
    return question.upper()

def twice(question):
    return question * 2

def shorter(outputs):
    first, second = (len(one["output"]) for one in outputs)
    return [second, first]

def louder(outputs):
    return [int(one["output"].isupper()) for one in outputs]

def wants_the_moon(outputs, moon):
    return moon
"""
N = 12
NAMES = ("lower", "upper", "twice")
ROWS = [
    {"id": i, "inputs": {"question": f"Question {i}"}, "metadata": {"topic": "odd" if i % 2 else "even"}}
    for i in range(N)
]
SPEC = {
    "name": "small",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "name": one, "function": f"preferring:{one}"} for one in NAMES],
}


class Folder:
    """A user's folder with three experiments in its store: rows, a module, a spec."""

    def __init__(self, place: Path, api_url: str) -> None:
        self.place = place
        self._settings = {PREFECT_API_URL: api_url, PREFECT_LOGGING_TO_API_ENABLED: False}
        (place / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
        (place / "preferring.py").write_text(MODULE)
        (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))

    def __call__(self, *arguments: str) -> Result:
        with pytest.MonkeyPatch.context() as patch, temporary_settings(self._settings):
            patch.chdir(self.place)
            patch.setattr(sys, "path", [*sys.path])
            patch.delitem(sys.modules, "preferring", raising=False)
            patch.setenv("EVALFLOWS_STORE", str(self.place / "store"))
            patch.setenv("EVALFLOWS_SPOOL", str(self.place / "spool"))
            patch.setenv("OPENAI_API_KEY", "")
            return command(*arguments)

    def well(self, *arguments: str) -> str:
        """What it prints, where it ends well."""
        done = self(*arguments)
        assert done.exit_code == 0, done.stderr
        assert all(line.startswith("evalflows: ") for line in done.stderr.splitlines())
        return done.stdout

    def badly(self, code: int, *arguments: str) -> str:
        """Its one line of an error, where it ends with this code."""
        done = self(*arguments)
        assert (done.exit_code, done.stdout) == (code, ""), done.stderr
        assert all(line.startswith("evalflows: ") for line in done.stderr.splitlines()), done.stderr
        return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prefect_environment: dict[str, str]) -> Folder:
    one = Folder(tmp_path_factory.mktemp("folder"), prefect_environment["PREFECT_API_URL"])
    one.well("run", "spec.yaml")
    return one


@pytest.fixture
def endpoint(folder: Folder) -> Iterator[Endpoint]:
    """A judge that prefers what is written in capitals, as the folder's connection `ours`."""
    with serving(Endpoint(answer=_prefers_capitals)) as one:
        connections = {"ours": {"base_url": one.base_url, "model": "m"}}
        (folder.place / "connections.yaml").write_text(yaml.safe_dump(connections))
        yield one


def _prefers_capitals(request: Request) -> Reply:
    answers = request["messages"][-1]["content"].partition("Answer A:")[2].partition("Criteria")[0]
    first, _, second = answers.partition("Answer B:")
    scores = ["QUESTION" in one for one in (first, second)]
    preference = 0 if scores[0] == scores[1] else 1 if scores[0] else 2
    return completion(json.dumps({"reasoning": "capitals", "preference": preference}))


def lines_of(text: str, *parts: str) -> list[str]:
    """The lines that hold all these, in which several spaces are one."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if all(part in line for part in parts)]


def id_in(text: str) -> str:
    return str(re.findall(r"cmp-\w+", text)[-1])


@pytest.mark.slow
def test_three_experiments_by_two_judges(folder: Folder) -> None:
    names = [f"small-{one}" for one in NAMES]
    judges = ("--judge", "preferring:shorter", "--judge", "preferring:louder")
    said = folder.well("compare", *names, *judges, "--both-orders", "--by", "metadata.topic", "--name", "three")
    everything = folder.well("show", "three", "--all")
    won = ["louder small-upper small-lower 100% [76%, 100%] 12/0/0 better"]
    assert lines_of(everything, "louder small-upper small-lower 100") == won
    of_slice = "shorter small-twice small-lower metadata.topic=odd"
    assert lines_of(everything, of_slice) == [f"{of_slice} 0% [0%, 39%] 0/0/6 not enough evidence"]
    adjusted = "0.031 0.375 not enough evidence"  # one slice of twelve, six by each judge
    wide = folder.well("show", "three", "--wide")
    assert lines_of(wide, of_slice) == [f"{of_slice} 0% [0%, 39%] 0 0 6 0 {adjusted}"]
    assert lines_of(said, "small-twice against small-lower, shorter: worse, win rate 0%")
    assert [line.split()[1] for line in lines_of(everything, "shorter", "75.0%")] == ["1", "1"], "they share a rank"
    assert lines_of(everything, "flip share: changed its verdict with the order in 0%")
    assert lines_of(everything, "agreement with shorter:", "kappa")
    assert lines_of(said, "three (cmp-", "completed: 3 experiments, 12 shared examples, each pair in both orders")
    assert folder.well("show", "three") == folder.well("show", id_in(said))
    assert folder.well("resume", "three") == said, "there was nothing left to do"
    assert lines_of(folder.well("ls", "--all"), "three", id_in(said), "completed", "144/144", ", ".join(names))


@pytest.mark.slow
def test_a_run_group_stands_for_its_experiments_and_one_more_joins(folder: Folder, endpoint: Endpoint) -> None:
    judged = ("--connection", "ours", "--criteria", "helpfulness", "--both-orders", "--run-key", "joined")
    first = folder.well("compare", "small-lower", "small-upper", *judged)
    assert "24 of 24 judged; 25 model calls" in " ".join(first.split())
    second = folder.well("compare", "small", *judged)
    assert id_in(first) == id_in(second)
    assert endpoint.calls == 3 * 24 + 1, "only the pairs of the one that joined were judged"
    assert "72 of 72 judged; 73 model calls" in " ".join(second.split())
    turned = folder.badly(2, "compare", "small-upper", "small-lower", *judged)
    assert "(new ones may only be appended); wanted a run_key other than 'joined'" in turned
    assert "then with seed 0, now with 1" in folder.badly(2, "compare", "small", *judged, "--set", "seed=1")


@pytest.mark.slow
def test_a_comparison_that_is_incomplete_is_gone_on_with(folder: Folder, endpoint: Endpoint) -> None:
    names = ("small-lower", "small-upper", "--name", "short of calls", "--connection", "ours", "--both-orders")
    line = folder.badly(4, "compare", *names, "--set", "max_calls=5")
    assert "not done: 20 of 24 by pairwise_preference (the budget is spent (5 of 5 calls))" in line
    assert line.endswith(f"; `evalflows resume {id_in(line)} --set max_calls=10` continues")
    shown = folder.well("show", "short of calls")
    assert lines_of(shown, "20 of 24 judgements are missing")
    assert "incomplete: 2 experiments" in shown and endpoint.calls == 5
    changed = folder.badly(2, "resume", "short of calls", "--set", "max_calls=24", "--set", "both_orders=false")
    assert "then with both_orders True, now with False; start a new one" in changed
    done = folder.well("resume", "short of calls", "--set", "max_calls=25")
    assert "24 of 24 judged; 25 model calls" in " ".join(done.split())
    assert id_in(done) == id_in(line) and endpoint.calls == 25


@pytest.mark.slow
def test_a_comparison_that_is_a_step_is_shown_with_its_experiments(folder: Folder) -> None:
    compare = {"evaluators": ["preferring:louder"], "both_orders": True}
    spec = SPEC | {"name": "whole", "compare": compare, "evaluators": ["json_valid"]}
    (folder.place / "whole.yaml").write_text(yaml.safe_dump(spec))
    folder.well("run", "whole.yaml")
    said = folder.well("show", "whole", "--all")
    assert lines_of(said, "json_valid upper 0.00 [") and lines_of(said, "louder whole-upper whole-lower 100%")
    by_id = folder.well("show", id_in(said[said.index("cmp-") :]), "--all")
    comparison, _, command = by_id.partition("\n\npage")
    assert "json_valid" not in by_id and comparison in said and said.endswith(command.partition("next: ")[2])


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experiments and a comparison of them in the store; a module and files in the folder, which is searched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "preferring", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path("preferring.py").write_text(MODULE)
    Path("spec.yaml").write_text(yaml.safe_dump(SPEC))
    Path("list.yaml").write_text("[old, new]")
    Path("connections.yaml").write_text("ours: {base_url: http://127.0.0.1:9/v1, model: m}")
    one = Compared(Store(), examples=["q0", "q1"])
    one.judge("q0", "left")
    one.judge("q1", "right")
    one.write()
    Store().publish("snapshots", SNAPSHOT, [SnapshotRow(snapshot_id=SNAPSHOT, n_examples=2, splits="{}")])


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.usefixtures("few")
def test_a_mistake_is_one_line_and_exit_2() -> None:
    louder = ("old", "new", "--judge", "preferring:louder")
    for arguments, message in (
        (("old",), "experiments: got old, which is one experiment, wanted at least two"),
        (("old", "exp-00"), "experiments: got old, exp-00, which is one experiment"),
        (("old", "older"), "experiment 'older': not in "),
        (("old", "new", "--judge", "preferring:nothing"), "'preferring' has no 'nothing'"),
        (("old", "new", "--judge", "exact_match"), "exact_match judges one answer, wanted one that"),
        (("old", "new", "--judge", "preferring:wants_the_moon"), "asks for 'moon', wanted any of inputs"),
        ((*louder, "--judge", "preferring:louder"), "evaluators: two are called 'louder'"),
        ((*louder, "--criteria", "depth"), "--criteria: got judges that take no criteria (preferring:louder)"),
        (("old", "new", "--criteria", "beauty", "--connection", "ours"), "'beauty'"),
        (("old", "new"), "connection 'openai': the environment variable OPENAI_API_KEY is not set"),
        (("old", "new", "--connection", "nowhere"), "connection 'nowhere': wanted one of ours, auto, local, openai"),
        ((*louder, "--baseline", "older"), "experiment 'older': not in "),
        ((*louder, "--by", "metadata.x"), "by: no example has 'me"),
        ((*louder, "--set", "seeds=3"), "seeds: no such field"),
        (("spec.yaml",), "spec.yaml: dataset: no such field"),
        (("list.yaml",), "list.yaml: got list, wanted a mapping with experiments"),
    ):
        refused(command("compare", *arguments), message)
    begun = Store().query("select comparison_id from source.comparison_sets")
    assert begun == [("cmp-1",)], "nothing is begun"
    for verb in ("show", "resume"):
        refused(command(verb, "cmp-2"), "comparison 'cmp-2': not in ", "wanted an id or one of: old and new")
        refused(command(verb, "new and old"), "experiment 'new and old': not in ")


def refused(done: Result, *messages: str) -> None:
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("evalflows: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(message in done.stderr for message in messages), done.stderr
