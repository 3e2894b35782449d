"""A gate against a window of production, from traces and their judgements to the decision."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gated import recorded, rows
from production import produce, trace

from evalflows import decide_again, decide_on, evaluate_traces, gate, run
from evalflows.cli.main import cli
from evalflows.reports.decisions import Decision, decisions_named, find_decision
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.errors import GateFailedError
from evalflows.specs.gate import GateSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

MODULE = """
def always_no(inputs) -> dict:
    return {"output": "no"}

def right(outputs) -> bool:
    return (outputs.get("output") or outputs.get("a")) == "yes"

def grade(outputs) -> float:
    return 1.0 if (outputs.get("output") or outputs.get("a")) == "yes" else 0.25
"""
BEGAN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=20)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "judges_of_production.py").write_text(MODULE)


def watched(right: Sequence[bool], uses: Sequence[str] = ("right", "grade"), **fields: Any) -> None:
    """Store one trace for each answer, three to a session, in the last 20 hours, and judge them."""
    produce(
        Store(),
        *(
            trace(
                f"t{i}",
                f"Question {i}?",
                "yes" if one else "no",
                session=f"s{i // 3}",
                version="1.4" if i % 2 else "1.5",
                began=BEGAN + timedelta(seconds=i),
            )
            for i, one in enumerate(right)
        ),
    )
    names = ("right", "grade")
    evaluators = [
        {"use": f"judges_of_production:{use}", "name": name, **fields} for use, name in zip(uses, names, strict=True)
    ]
    spec = {"name": "watch", "evaluators": evaluators, "settle_s": 0, "metrics": METRICS, "composites": [COMPOSITE]}
    evaluate_traces(TraceEvaluationSpec.model_validate(spec))


METRICS: Any = {"grade": {"range": (0.0, 1.0)}}
COMPOSITE = {"name": "both", "weights": {"right": 0.5, "grade": 0.5}}


def spec_of(folder: Path, right: Sequence[bool], **fields: Any) -> ExperimentSpec:
    given = {
        "name": "app",
        "dataset": {"rows": rows(len(right))},
        "targets": [recorded(folder, "new", right)],
        "evaluators": ["judges_of_production:right", "judges_of_production:grade"],
        "metrics": METRICS,
        "composites": [COMPOSITE],
        "gates": [{"non_inferiority": {"right": 0.1}, "baseline": "production:watch@24h", **fields}],
    }
    return ExperimentSpec.model_validate(given)


def decided(spec: ExperimentSpec) -> Decision:
    try:
        (one,) = decisions_named(Store(), gate(spec))
    except GateFailedError as error:
        (one,) = decisions_named(Store(), error.decisions)
    return one


def mostly(share: float, n: int) -> list[bool]:
    return [(i * 7919) % n < share * n for i in range(n)]


@pytest.mark.slow
def test_a_candidate_passes_or_fails_against_production(tmp_path: Path) -> None:
    watched(mostly(0.8, 600))
    one = decided(spec_of(tmp_path, mostly(0.9, 400)))
    assert one.conclusion == "PASS", one.summary
    assert one.baseline is not None and one.baseline_experiment_id is None
    assert one.baseline.startswith("production:watch@2")
    assert one.summary.startswith("right is not worse by more than 0.1: +0.100 [")
    assert one.summary.endswith("400 examples against 600 traces of production, which are different items")
    assert "not the same examples, so the difference includes the difference in traffic" in one.notes[0]
    assert decide_again(one.decision_id).decision_id == one.decision_id
    assert find_decision(Store(), "release").title == f"gate release: app against {one.baseline}"
    worse = decided(spec_of(tmp_path, mostly(0.5, 400), superiority={"grade": 0.0, "both": 0.0}))
    assert worse.conclusion == "FAIL"
    assert {rule.metric: rule.outcome for rule in worse.rules} == dict.fromkeys(("right", "grade", "both"), "broken")


@pytest.mark.slow
def test_sessions_that_agree_make_the_interval_wider(tmp_path: Path) -> None:
    watched([(i // 3 * 7919) % 200 < 160 for i in range(600)])  # all three of a session are the same
    one = decided(spec_of(tmp_path, mostly(0.8, 400), non_inferiority={"right": 0.5}))
    together = one.rules[0]
    alone = decide_on(one.candidate_experiment_id, None, GateSpec(confident_thresholds={"right": 0.1}))
    of_candidate = json.loads(alone.reasons)[0]
    wider = (together.value - together.low) ** 2 - (of_candidate["value"] - of_candidate["low"]) ** 2
    if_independent = 1.96**2 * 0.8 * 0.2 / 600
    assert 2.2 < wider / if_independent < 3.8


@pytest.mark.slow
def test_a_version_and_a_sampled_window_are_weighed(tmp_path: Path) -> None:
    """Version 1.5 is always right and 1.4 never; of 1.5, a quarter is judged."""
    right = [i % 2 == 0 for i in range(1200)]
    watched(right, sample_by="version", sample_rates={"1.5": 0.25}, sample_rate=1.0)
    whole = decided(spec_of(tmp_path, mostly(0.5, 400), non_inferiority={"right": 0.2}))
    assert whole.rules[0].value == pytest.approx(0.0, abs=0.03)  # 0.3 without weights
    sliced = decided(spec_of(tmp_path, mostly(0.5, 400), baseline="production:watch@24h[version=1.4]"))
    assert sliced.rules[0].value == pytest.approx(0.5, abs=1e-9)
    assert sliced.conclusion == "PASS" and "600 traces of production" in sliced.summary


def test_what_cannot_be_compared_is_refused_before_anything_runs(tmp_path: Path) -> None:
    watched(mostly(0.8, 60))

    def refused(**fields: Any) -> str:
        with pytest.raises(InputError) as raised:
            gate(spec_of(tmp_path, mostly(0.9, 60), **fields))
        assert Store().query("select count(*) from source.experiments") == [(0,)]
        return str(raised.value)

    assert "no trace evaluation is called 'other', wanted one of watch" in refused(baseline="production:other@24h")
    window = "production:watch@2026-01-01..2026-01-02"
    assert "no item of the window has a score of right" in refused(baseline=window)
    assert "no item of version 9 in the window" in refused(baseline="production:watch@24h[version=9]")
    assert "right: got 20 scored sessions, wanted at least 50" in refused(min_examples=50)
    timed = "latency cannot be compared with production: not measured side by side"
    assert timed in refused(non_inferiority={"latency": 0.5})
    assert "no item of the window has a score of answer_length" in refused(non_inferiority={"answer_length": 5.0})


@pytest.mark.slow
def test_another_version_of_the_evaluator_is_refused(tmp_path: Path) -> None:
    watched(mostly(0.8, 60), uses=("grade", "right"))
    spec = spec_of(tmp_path, mostly(0.9, 60))
    with pytest.raises(InputError, match=r"right: right has another version in production: \w+ there, \w+ now"):
        gate(spec)
    with pytest.raises(InputError, match=r"both: (right|grade) has another version in production"):
        gate(spec_of(tmp_path, mostly(0.9, 60), non_inferiority={"both": 0.1}))
    assert Store().query("select count(*) from source.experiments") == [(0,)]
    (identity,) = run(spec)  # decides too, without refusing
    (one,) = [find_decision(Store(), identity)]
    assert (one.conclusion, one.rules[0].reason_code) == ("NOT ENOUGH EVIDENCE", "not_comparable")


@pytest.mark.slow
def test_an_experiment_s_dataset_may_be_production(tmp_path: Path) -> None:
    watched(mostly(0.8, 60))
    spec = spec_of(tmp_path, mostly(0.9, 60)).model_dump(mode="json", exclude={"dataset", "targets"})
    worst = {"order": "worst", "metric": "grade", "limit": 5, "keep_output_as_reference": True}
    target = {"kind": "python", "name": "new", "function": "judges_of_production:always_no"}
    traces = {"dataset": {"name": "bad", "traces": worst}, "targets": [target], "gates": []}
    for _ in range(2):  # the second time, nothing is added
        (identity,) = run(ExperimentSpec.model_validate(spec | traces))
        scored = "select avg(value), count(*) from staging.scores where experiment_id = ? and metric = 'right'"
        assert Store().query(scored, [identity]) == [(0.0, 5)]
    ((source, metadata),) = Store().query("select source, metadata from source.dataset_versions where name = 'bad'")
    assert (source, json.loads(metadata)["added"]) == ("production", 5)


@pytest.mark.slow
def test_the_command_takes_a_window(tmp_path: Path) -> None:
    watched(mostly(0.8, 300))
    spec = spec_of(tmp_path, mostly(0.95, 300), baseline=None)
    Path("app.yaml").write_text(json.dumps(spec.model_dump(mode="json", exclude_none=True)))
    command = ["gate", "app.yaml", "--baseline", "production:watch@2d", "--wide"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "against production:watch@" in shown and "not the same examples" in shown
    explained = CliRunner().invoke(cli, ["explain", "release"])
    assert explained.exit_code == 0 and "baseline   production:watch@" in explained.output
    refused = CliRunner().invoke(cli, [*command[:3], "production:watch"])
    assert refused.exit_code == 2 and "wanted production:EVALUATION@24h" in refused.output
