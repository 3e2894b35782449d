"""evalflows robustness, from a run to what is printed."""

import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from evalflows.analysis.robustness import robustness_report
from evalflows.cli.calibrate import calibrate
from evalflows.cli.labels import labels
from evalflows.cli.robustness import robustness
from evalflows.cli.schema import schema_of
from evalflows.store import Store

MODULE = """
def plain(question):
    return "The answer to this question is surely " + question.upper()

def brief(question):
    return question.upper() if int(question[1:]) % 5 else "no"

def muddled(question):
    return "Who could say what the answer to it may be"
"""
N = 20


def wide(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


@pytest.fixture
def run_group(tmp_path: Path, without_prefect: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """A start of three systems: plain is right and long, brief mostly right and short, muddled wrong and long."""
    from evalflows import run
    from evalflows.specs.experiment import load_experiment

    (tmp_path / "robustly.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    spec = {
        "name": "demo",
        "dataset": {"path": "rows.jsonl"},
        "targets": [
            {"kind": "python", "name": one, "function": f"robustly:{one}"} for one in ("plain", "brief", "muddled")
        ],
        "evaluators": ["contains", {"use": "length_between", "name": "short", "args": {"most": 20}}],
        "composites": [{"name": "quality", "weights": {"contains": 3, "short": 1}}],
        "metrics": {"answer_length": {}},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = run(load_experiment("spec.yaml"))
    (row,) = Store().read("experiments", done[0])
    return str(row.run_group)


@pytest.mark.slow
def test_a_start_is_looked_into_and_told_in_tables_and_sentences(run_group: str) -> None:
    """Contains: plain 1, brief 0.8; short: plain 0, brief 1. Level where contains weighs 1 / 1.2."""
    done = wide(robustness, "demo")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    (under,) = [float(line[3].rstrip("%")) for line in lines if line[:3] == ["quality", "plain", "0.750"]]
    assert under == pytest.approx(100 / 6, abs=2)
    assert ["contains", "0.750", "0.900", "plain"] in lines
    assert ["contains", "0.750", "0.600", "brief"] in lines
    assert "quality: brief leads at the declared weights (contains 0.75, short 0.25): " in done.stdout
    assert "on contains, short, answer_length, no system dominates " in done.stdout
    assert ["muddled", "42.000", "0.000", "0.000", "no", "0.0%", "plain"] in lines
    as_json = json.loads(wide(robustness, "demo", "--format", "json").stdout)
    jsonschema.validate(as_json, schema_of("robustness"))
    assert as_json["composites"][0]["passed"] is not None and as_json["pareto"]["observed"]["systems"]
    report = robustness_report(Store(), run_group)
    assert [one.composite for one in report.composites] == ["quality"]
    smaller = wide(
        robustness, run_group, "--change", "0.1", "--composite", "quality", "--over", "contains,answer_length"
    )
    assert "changing any one weight by 10 % does not change the winner" in smaller.stdout
    assert "on contains, answer_length, no system dominates " in smaller.stdout
    from evalflows.api.planning import robustness as look_into

    assert look_into(run_group) == robustness_report(Store(), run_group), "the Python door gives the same report"
    for arguments, message in (
        (("nowhere",), "experiment 'nowhere': not in "),
        (("demo", "--composite", "none"), "composite 'none': not in 'demo', wanted one of quality"),
        (("demo", "--over", "charm"), "over: got 'charm', wanted some of answer_length, contains, "),
    ):
        refused = wide(robustness, *arguments)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert refused.stderr.startswith(f"evalflows: {message}")


@pytest.mark.slow
def test_weights_are_calibrated_by_ranked_cases_or_refused(run_group: str, tmp_path: Path) -> None:
    """The answers of brief differ in `contains` alone, so its weight can be anything above none."""
    ids = [f"{i}" for i in range(N)]

    def ranked(ranks: list[Any]) -> str:
        rows = [f"{example},{rank}" for example, rank in zip(ids, ranks, strict=False)]
        (tmp_path / "ranked.csv").write_text("\n".join(["example_id,rank", *rows]))
        return str(tmp_path / "ranked.csv")

    by_contains = [2 if i % 5 == 0 else 1 for i in range(N)]
    done = wide(calibrate, "demo-brief", ranked(by_contains))
    assert "quality: 100% of the pairs of 20 ranked cases are in order" in done.stdout, done.output
    assert ["contains", "0.75", "0.50", "0.00", "to", "1.00"] in [line.split() for line in done.stdout.splitlines()]
    as_json = json.loads(wide(calibrate, "demo-brief", ranked(by_contains), "--format", "json").stdout)
    jsonschema.validate(as_json, schema_of("calibrate"))
    assert as_json["agreement_declared"] == 1
    few = wide(calibrate, "demo-brief", ranked(by_contains[:6]))
    assert "quality: no weights: 6 ranked cases, wanted at least 10" in few.stdout
    chance = wide(calibrate, "demo-brief", ranked([1 + i % 2 for i in range(N)]))
    assert "quality: no weights: the ranks are ordered no better than by chance (p = " in chance.stdout
    form = list(
        csv.DictReader(wide(labels, "next", "demo-brief", "quality", "--disagree", "--n", "2").stdout.splitlines())
    )
    assert [(row["metric"], row["drawn"]) for row in form] == [("quality", "uncertain")] * 2
    for asked, message in (
        (("contains", "--disagree"), "metric 'contains': is not a composite of several metrics, wanted one"),
        (("quality", "--disagree", "--order", "random"), "labels next: got --disagree with --order random"),
    ):
        refused = wide(labels, "next", "demo-brief", *asked)
        assert refused.exit_code == 2 and message in refused.stderr
    by_label = [f"demo-brief,{example},{float(rank == 1)}" for example, rank in zip(ids, by_contains, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["experiment,example_id,value", *by_label]))
    imported = wide(labels, "import", "labels.csv", "--metric", "helpful")
    assert imported.exit_code == 0, imported.output
    done = wide(calibrate, "demo-brief", "--labels", "helpful")
    assert "quality: 100% of the pairs of 20 labelled cases" in done.stdout and "out of sample" in done.stdout
    assert "got neither, wanted RANKED or --labels" in wide(calibrate, "demo-brief").stderr
    from evalflows.flows.review_weights import review_weights

    said = review_weights("demo-brief", "helpful")
    checked = Store().query("select passed, message, n_unexpected from source.checks where name = 'weights_by_labels'")
    assert checked == [(True, said, 0)] and said.startswith("quality: 100% of the pairs of 20 labelled cases")
    refused = wide(calibrate, "demo-brief", ranked(["first"]))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "ranked.csv: row 2: got " in refused.stderr
