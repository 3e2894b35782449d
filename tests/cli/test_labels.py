"""evalflows labels import | ls | agreement | next | judges, in this process."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result
from labelled import judged, run_of, write_csv

from evalflows.cli.labels import labels
from evalflows.cli.schema import schema_of
from evalflows.engine.anchors import read_anchors
from evalflows.specs.evaluator import AnchorsSpec
from evalflows.store.records import new_id
from evalflows.store.store import Store

N = 200


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def truth() -> dict[str, float]:
    """Which answers of the experiment `small` are right; its judge says yes to them, and to half of the others."""
    rng = np.random.default_rng(0)
    found = {f"q{i:03}": float(rng.random() < 0.7) for i in range(N)}
    judged("small", {name: value or float(rng.random() < 0.5) for name, value in found.items()})
    return found


OWNER = "exp-00-small"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(labels, list(arguments))


def said(*arguments: str) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(*arguments: str) -> str:
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("evalflows: ") and done.stderr.count("\n") == 1
    return done.stderr


def form(path: str) -> list[dict[str, Any]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def filled(path: str, truth: dict[str, float]) -> None:
    run = {run_of(OWNER, name): name for name in truth}
    rows = [{**row, "value": "yes" if truth[run[row["run_id"]]] else "no"} for row in form(path)]
    write_csv(path, rows)


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_from_the_form_to_the_verdict_on_the_judge(truth: dict[str, float]) -> None:
    assert "'correct': got no labels for small, wanted one of: none yet" in refused("agreement", "small", "correct")
    done = invoke("next", "small", "correct", "--n", "120", "--out", "form.csv")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == (
        "60 drawn at random, 60 with an unsure judge; 80 more unlabelled; "
        "60 labels drawn at random will count for agreement\n"
    )
    rows = form("form.csv")
    assert [*rows[0]] == [*("run_id", "metric", "drawn", "inputs", "outputs", "reference_outputs", "value", "comment")]
    assert [row["drawn"] for row in rows] == ["fair"] * 60 + ["uncertain"] * 60
    assert rows[0]["inputs"].startswith('{"question":"q')
    filled("form.csv", truth)
    assert said("import", "form.csv", "--labeller", "ann") == "120 labels of correct imported\n"
    assert said("import", "form.csv", "--labeller", "ann") == "120 labels of correct already imported\n"
    assert "form.csv" in said("ls")
    told = said("agreement", "small", "correct")
    for part in ("Cohen's kappa", "Krippendorff's alpha", "bias (judge minus people)", "people", "judge: yes"):
        assert part in told, part
    assert "mean, judge only" in told and "mean, prediction-powered" in told
    assert "significantly better than chance" in told and "it is too generous" in told
    assert "60 labels are left out" in told
    board = said("judges")
    assert "judge-1" in board and "correct" in board
    jsonschema.validate(json.loads(said("judges", "--format", "json")), schema_of("labels judges"))


def test_imports_and_days_of_feedback_are_one_table(store: Store, make: Callable[..., Any]) -> None:
    for batch, source in (("feedback-2026-11-01", "a"), ("feedback-2026-11-02", "a"), (new_id("labels"), "form.csv")):
        store.publish("labels", batch, [make("labels", label_id=batch, batch_id=batch, metric="m", source=source)])
    done = CliRunner().invoke(labels, ["ls"], env={"COLUMNS": "80"})
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["from", "form.csv", "a", "a"]


def test_what_has_a_label_is_not_asked_for_again(truth: dict[str, float]) -> None:
    said("next", "small", "correct", "--n", "150", "--out", "one.csv")
    filled("one.csv", truth)
    said("import", "one.csv")
    said("next", "small", "correct", "--n", "150", "--out", "two.csv")
    one, two = ({row["run_id"] for row in form(name)} for name in ("one.csv", "two.csv"))
    assert (len(one), len(two), len(one & two)) == (150, 50, 0)
    filled("two.csv", truth)
    said("import", "two.csv")
    done = invoke("next", "small", "correct")
    assert (done.stdout, done.stderr) == ("", "every judged run of small has a label of correct\n")
    other = invoke("next", "small", "correct", "--people", "right", "--n", "2")
    assert other.stdout.count(",right,") == 2


def test_labelled_answers_become_anchors_where_people_agree(truth: dict[str, float]) -> None:
    assert "got none of 'correct' in 'small', wanted some: `evalflows labels import FILE` imports" in refused(
        "anchors", "small", "correct"
    )
    said("next", "small", "correct", "--n", "40", "--out", "one.csv")
    filled("one.csv", truth)
    said("import", "one.csv", "--labeller", "ann")
    first = form("one.csv")[0]
    write_csv("two.csv", [{**first, "value": "no" if first["value"] == "yes" else "yes"}])
    said("import", "two.csv", "--labeller", "ben")  # a tie
    done = invoke("anchors", "small", "correct", "--out", "anchors.jsonl")
    assert (done.stdout, done.stderr) == (
        "",
        "39 anchors; next: `anchors: anchors.jsonl` of the evaluator of correct\n",
    )
    run = {run_of(OWNER, name): truth[name] for name in truth}
    anchors = [json.loads(line) for line in Path("anchors.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["id"]: row["known"] for row in anchors} == {row["id"]: run[row["id"]] for row in anchors}
    assert {*anchors[0]} >= {"id", "inputs", "outputs", "known"}
    read = read_anchors(Store(), AnchorsSpec(dataset="anchors.jsonl"))
    assert sorted(read.ids) == sorted(row["id"] for row in anchors)


def test_bad_input_is_one_line(truth: dict[str, float]) -> None:
    Path("bad.csv").write_text("run_id,metric,value\nx,correct,1\n")
    Path("empty.csv").write_text("run_id,metric,value\n")
    Path("form.csv").write_text("labels of a day")
    for arguments, message in (
        (("import", "nowhere.csv"), "nowhere.csv: cannot be read: No such file"),
        (("import", "bad.csv"), "bad.csv:2: run_id: got 'x'"),
        (("import", "empty.csv"), "empty.csv: has no labels"),
        (("next", "nothing", "correct"), "experiment 'nothing': not in"),
        (("next", "small", "tone"), "metric 'tone': not in small, wanted one of: correct"),
        (("next", "small", "correct", "--out", "form.csv"), "form.csv: exists and may contain labels"),
    ):
        assert message in refused(*arguments)
    assert Path("form.csv").read_text() == "labels of a day"


def test_a_form_with_what_looks_like_a_formula_can_be_imported(store: Store) -> None:
    judged("small", {f"q{i}": 1.0 for i in range(3)}, metric="@right")
    assert said("next", "small", "@right", "--n", "3").count(",'@right,") == 3
    said("next", "small", "@right", "--n", "3", "--out", "form.csv")
    rows = form("form.csv")
    assert {row["metric"] for row in rows} == {"'@right"}
    write_csv("form.csv", [{**row, "value": "good", "comment": "'=well"} for row in rows])
    assert said("import", "form.csv") == "3 labels of @right imported\n"
    assert store.query("select distinct metric, label, comment from source.labels") == [("@right", "good", "=well")]
