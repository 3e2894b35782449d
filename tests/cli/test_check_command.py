"""evalflows check: a line per finding, exit codes, JSON, and pages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from finished import START, Rows, finished_experiment

from evalflows.cli.main import cli
from evalflows.store.store import Store


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", *arguments])


def above_range(outputs: Rows, scores: Rows) -> None:
    scores[0] = replace(scores[0], value=7.0)


def without_reason(outputs: Rows, scores: Rows) -> None:
    outputs[5] = replace(outputs[5], error=None)


def test_a_clean_experiment(store: Store) -> None:
    finished_experiment(store)
    done = asked("support")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "support (exp-1): 28 of 28 expectations hold\n"
    assert store.query("select count(*), bool_and(passed) from source.checks") == [(28, True)]
    finished_experiment(store, without_reason, identity="exp-2", name="other")
    warned = asked("exp-2")
    assert warned.exit_code == 0
    assert warned.stdout.splitlines()[1].startswith("warning: wanted outputs.error: column values to not be null where")


def test_errors_are_lines_and_exit_code_4(store: Store) -> None:
    finished_experiment(store, above_range)
    done = asked("exp-1")
    assert done.exit_code == 4
    assert done.stdout.splitlines() == [
        "support (exp-1): 27 of 28 expectations hold",
        "error: wanted scores.value.exact: column values to be between (min_value 0.0, max_value 1.0) where "
        "scores.value.exact is not null; 1 of 5 fail, such as 7.0 (example_id q0, metric exact, repetition 0)",
    ]


def test_by_default_the_newest_finished_run_is_checked(store: Store) -> None:
    later = START.replace(month=2)
    finished_experiment(store, run_group="first")
    finished_experiment(store, identity="exp-2", run_group="second", name="new", target="a", started_at=later)
    finished_experiment(store, identity="exp-3", run_group="second", name="other", target="b", started_at=later)
    newest = START.replace(month=3)
    finished_experiment(store, identity="exp-4", run_group="third", state="incomplete", started_at=newest)
    assert [line.partition(":")[0] for line in asked().stdout.splitlines()] == ["new (exp-2)", "other (exp-3)"]
    assert len(asked("exp-1", "new", "exp-2").stdout.splitlines()) == 2


def test_json_is_one_document(store: Store) -> None:
    finished_experiment(store, above_range)
    done = asked("exp-1", "--format", "json")
    (experiment,) = json.loads(done.stdout)["experiments"]
    checks = experiment.pop("checks")
    assert done.exit_code == 4
    assert experiment == {"experiment_id": "exp-1", "name": "support", "n_expectations": 28, "n_findings": 1}
    assert checks[0]["column_name"] == "scores.value.exact" and checks[0]["passed"] is False
    assert checks[0]["observed"]["partial_unexpected_list"] == [7.0]
    assert checks[0]["expected"]["max_value"] == 1


@pytest.mark.slow
def test_pages_are_written_for_experiments_and_snapshots(store: Store, tmp_path: Path) -> None:
    finished_experiment(store, above_range)
    folder = tmp_path / "new" / "docs"
    done = asked("exp-1", "--docs", str(folder))
    assert done.exit_code == 4
    results, dataset = sorted(folder.iterdir())
    assert (results.name, dataset.name[:5]) == ("exp-1.html", "snap-")
    assert done.stdout.splitlines()[2:] == [f"wrote {results}", f"wrote {dataset}"]
    assert "7.0 &#40;example_id q0" in results.read_text() and "inputs" in dataset.read_text()
    asked("exp-1", "--docs", str(folder), "--format", "json")
    assert len([*folder.iterdir()]) == 2


def test_lines_are_short_and_escaped(store: Store) -> None:
    def long(outputs: Rows, scores: Rows) -> None:
        outputs[0] = replace(outputs[0], outputs="\x1b[2J\n\u202e" + "x" * 1999)

    finished_experiment(store, long, name="a\nb\x1b")
    first, second = asked("exp-1").stdout.splitlines()
    assert first.startswith(r"a\nb\x1b (exp-1): 27")
    assert len(second) <= 510 and "\x1b" not in second and "\u202e" not in second


def test_unknown_and_unfinished_names(store: Store) -> None:
    nothing = asked()
    assert (nothing.exit_code, nothing.stderr.count("\n")) == (2, 1) and "got no finished experiment" in nothing.stderr
    finished_experiment(store)
    finished_experiment(store, identity="exp-2", name="half", state="incomplete")
    assert "experiment 'supports': not in" in asked("supports").stderr
    unfinished = asked("exp-1", "half")
    assert unfinished.exit_code == 2
    assert "'half' (exp-2): is not finished" in unfinished.stderr
    assert store.query("select count(*) from source.checks") == [(0,)], "nothing is half done"
