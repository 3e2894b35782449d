"""20 of 300 examples flip by chance: they are found, and in quarantine they no longer decide, but a real fall does."""

from datetime import date
from typing import Any

import numpy as np
import pytest
from past import START, Past, guard

import evalflows.store.records as clock
from evalflows import decide_again, decide_on
from evalflows.analysis.backtest import backtest
from evalflows.analysis.differences import ExperimentPair, MetricReader, publish_differences, verdicts_on
from evalflows.analysis.flaky import check_quarantine, flaky_report
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.engine.prepare import prepare
from evalflows.reports.decisions import decisions_named, explained, with_limits
from evalflows.reports.experiment_report import experiments_report
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.records import ExperimentRow
from evalflows.store.snapshots import load_snapshot

N, FLAKY, WRONG = 300, 20, 22
FLOOR = GateSpec(thresholds={"right": 0.886})
"""Unchanged, 268 of 300 are right on average, and 265.8 are wanted."""


class Repeated(Past):
    """Runs in which 20 examples are right half of the time, 258 always, and 22 never."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def run(self, fall: float = 0.0, version: str = "v1", **fields: Any) -> ExperimentRow:
        right = np.arange(N) >= FLAKY + WRONG
        right[:FLAKY] = self.rng.random(FLAKY) < 0.5
        right[self.rng.choice(np.flatnonzero(right), round(fall * N), replace=False)] = False
        return self.experiment({"right": right}, target_version=version, **fields)


def rule(**fields: Any) -> dict[str, Any]:
    return {"flip_rate_above": 0.2, "until": "2026-12-31", "reason": "it samples", **fields}


def conclusions(
    reader: MetricReader, spec: ExperimentSpec, gate: GateSpec, rows: list[ExperimentRow], base: ExperimentRow
) -> list[str]:
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=base) for row in rows]
    return [GateEvaluation(gate=gate, pair=pair).conclusion for pair in pairs]


@pytest.mark.slow
def test_unchanged_re_runs_and_a_fall_of_8_points() -> None:
    past = Repeated(6)
    history = [past.run() for _ in range(12)]
    report = flaky_report(past.store, history[-1])
    (found,) = report.metrics
    assert {example.example_id for example in found.flaky} == {f"e{place}" for place in range(FLAKY)}
    for example in found.flaky:
        assert example.flip_rate is not None and example.flip_rate > 0.2 and example.n == 12
        assert example.flip_rate_low <= example.flip_rate <= example.flip_rate_high <= 0.5  # type: ignore[operator]
        assert example.weight < 0.5
    assert found.share == pytest.approx(1) and found.half_width(weights={"e0": 0.0}) < found.half_width()
    again, fallen = [past.run() for _ in range(6)], [past.run(0.08, "v2") for _ in range(2)]
    reader = MetricReader(past.store)
    plain = conclusions(reader, past.spec(), FLOOR, again, history[0])
    assert plain.count("FAIL") == 1
    for weigh in ("by_noise", "not_at_all"):
        spec = past.spec(quarantine=[rule(weigh=weigh)])
        assert conclusions(reader, spec, FLOOR, again, history[0]) == ["PASS"] * 6
        assert conclusions(reader, spec, FLOOR, fallen, history[0]) == ["FAIL"] * 2
        assert conclusions(reader, spec, guard(0.03), again, history[0]) == ["PASS"] * 6
        assert conclusions(reader, spec, guard(0.03), fallen, history[0]) == ["FAIL"] * 2
    assert conclusions(reader, past.spec(), guard(0.03), again, history[0]).count("PASS") < 5


def test_numbers_are_flaky_if_they_depart_more_often_than_others() -> None:
    past, rng = Past(), np.random.default_rng(0)
    for _ in range(12):
        grades, seconds = np.full(100, 4.0), rng.normal(10, 1, 100)
        grades[:3] = rng.integers(1, 6, 3)
        grades[rng.integers(100)] = 3.0  # the judge's ordinary noise
        seconds[:3] = rng.normal(10, 6, 3)
        past.experiment({"grade": grades, "points": seconds})
    for metric in flaky_report(past.store, past.rows[-1]).metrics:
        assert {example.example_id for example in metric.flaky} == {"e0", "e1", "e2"}, metric.metric
        assert all(example.flip_rate is None and example.weight < 0.5 for example in metric.flaky)


@pytest.mark.slow
def test_every_door_says_the_same_of_a_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    past = Repeated(1)
    base = [past.run() for _ in range(8)][-1]
    for weigh in ("by_noise", "not_at_all"):
        spec = past.spec(quarantine=[rule(weigh=weigh)])
        row = past.run(0.05, f"v2 {weigh}", spec=spec)
        reader, gate = MetricReader(past.store), guard(0.03)
        pair = ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=base)
        verdict = next(one for one in verdicts_on(reader, [base, row], spec) if one.metric == "right")
        (result,) = GateEvaluation(gate=gate, pair=pair).rule_results
        assert verdict.difference == result.value and verdict.ci_low == result.low
        assert f"{N if weigh == 'by_noise' else N - FLAKY} pairs" in result.text
        assert ("20 in quarantine" in result.text) and (verdict.n_pairs == N) == (weigh == "by_noise")
        decisions = backtest(past.store, gate, spec, replicates=3).decisions
        pairs = {(one.candidate_experiment_id, one.baseline_experiment_id): one.because for one in decisions}
        assert pairs[row.experiment_id, base.experiment_id] == result.text
        kept = keep_decision(past.store, GateEvaluation(gate=gate, pair=pair))
        assert decide_again(kept.decision_id).decision_id == kept.decision_id
        (decision,) = with_limits(past.store, decisions_named(past.store, [kept.decision_id]))
        said = next(text for text in decision.what_limits if text.startswith("in quarantine"))
        assert "20 of 300 examples (7%)" in said and "until 2026-12-31: it samples; examples: e" in said
        policy = dict(explained(past.store, decision))["Rules and settings"]
        assert "quarantine:" in policy and "  reason: it samples" in policy
        publish_differences(past.store, reader, [row], spec)
        shown = experiments_report(past.store, [row.experiment_id], [])
        assert said in shown.sentences and not any("; examples" in one for one in shown.sentences_without_data)
    monkeypatch.setattr(clock, "_clock", lambda zone=None: START.replace(year=2027))
    with pytest.raises(InputError, match=r"flip_rate_above 0.2: got until 2026-12-31, which has passed.*it samples"):
        decide_on(row.experiment_id, base.experiment_id, gate)


def test_a_quarantine_cannot_hide_a_fall() -> None:
    """Neither the candidate's own results nor too many examples nor later runs make a quarantine."""
    past = Repeated(2)
    base = past.experiment({"right": np.ones(N, dtype=bool)})
    half = np.ones((N, 4), dtype=bool)
    half[:10, :2] = False
    row = past.experiment({"right": half}, target_version="v2")  # its own repetitions flip
    past.experiment({"right": half}, target_version="v2")  # and so do later ones
    spec = past.spec(quarantine=[rule()], repetitions=4)
    pair = ExperimentPair(reader=MetricReader(past.store), spec=spec, candidate=row, baseline=base)
    (result,) = GateEvaluation(gate=guard(), pair=pair).rule_results
    assert result.value == pytest.approx(-10 * 0.5 / N) and "quarantine" not in result.text
    assert "0 of 300 examples (0%)" in pair.quarantine_notes[0].text
    ids = [f"e{place}" for place in range(31)]
    many = past.spec(quarantine=[{"examples": ids, "until": "2027-01-01", "reason": "hard", "weigh": "not_at_all"}])
    pair = ExperimentPair(reader=MetricReader(past.store), spec=many, candidate=row, baseline=base)
    (result,) = GateEvaluation(gate=guard(), pair=pair).rule_results
    verdict = next(one for one in verdicts_on(MetricReader(past.store), [base, row], many) if one.metric == "right")
    assert (result.outcome, result.reason_code) == ("open", "too_many_in_quarantine") == ("open", verdict.reason_code)
    assert "31 of 300 examples (10%) are in quarantine, wanted at most 10%" in result.text
    sliced = GateSpec(non_inferiority={"right@split=None": 0.05})
    assert GateEvaluation(gate=sliced, pair=pair).conclusion == "NOT ENOUGH EVIDENCE"
    unseen = past.spec(quarantine=[{"examples": ["e1"], "until": "2027-01-01", "reason": "hard"}])
    pair = ExperimentPair(reader=MetricReader(past.store), spec=unseen, candidate=base, baseline=None)
    assert "1 weigh 1, since they were never repeated" in pair.quarantine_notes[0].text


def test_what_flips_only_under_the_candidates_version_is_no_quarantine() -> None:
    past, steady = Past(), np.ones(N, dtype=bool)
    for _ in range(2):
        past.experiment({"right": steady}, target_version="v0")
    for number in range(7):
        right = steady.copy()
        right[:10] = number % 2
        row = past.experiment({"right": right}, target_version="v1")
    spec = past.spec(quarantine=[rule()])
    for candidate, count in ((row, 0), (past.experiment({"right": steady}, target_version="v2"), 10)):
        pair = ExperimentPair(reader=MetricReader(past.store), spec=spec, candidate=candidate, baseline=past.rows[0])
        assert f"flip_rate_above 0.2: {count} of 300 examples" in pair.quarantine_notes[0].text


def test_mistakes_in_a_quarantine_are_one_line() -> None:
    past = Past(fields=[{"split": "final"}, {"split": "dev"}])
    row = past.experiment({"right": np.array([True, False])})
    examples = load_snapshot(past.store, row.snapshot_id)
    for entry, message in (
        ({"examples": ["nobody"]}, "got 'nobody', wanted the id of an example of the dataset"),
        ({"examples": ["e0"]}, "got the final example 'e0', wanted final ones by flip_rate_above only"),
        ({"examples": ["e1"], "until": date(2020, 1, 1)}, "e1: got until 2020-01-01, which has passed"),
    ):
        spec = past.spec(quarantine=[{"until": "2100-01-01", "reason": "why", **entry}])
        with pytest.raises(InputError, match=message):
            check_quarantine(prepare(spec), examples)
    for entries, message in (
        ([{"examples": ["e0"]}, {"examples": ["e1", "e0"], "metric": "right"}], "got 'e0' twice"),
        ([{"flip_rate_above": 0.1}, {"flip_rate_above": 0.3, "metric": "right"}], "got 'flip_rate_above' twice"),
        ([{"examples": ["e0"], "flip_rate_above": 0.1}], "got both examples and flip_rate_above"),
        ([{}], "got neither examples"),
        ([{"examples": ["e0"], "reason": "?"}], "wanted a reason in words"),
    ):
        with pytest.raises(ValueError, match=message):
            past.spec(quarantine=[{"until": "2100-01-01", "reason": "why", **entry} for entry in entries])
    against = {"gates": [{"name": "live", "non_inferiority": {"right": 0.1}, "baseline": "production:support@24h"}]}
    with pytest.raises(ValueError, match="got gate 'live' against production"):
        past.spec(quarantine=[rule()], **against)
    held = past.experiment({"right": np.array([True, False])}, spec=past.spec(quarantine=[rule(until="2100-01-01")]))
    with pytest.raises(InputError, match="got by_noise and gate 'release' in batches"):
        decide_on(held.experiment_id, row.experiment_id, guard(batch=10))


def test_a_named_experiment_has_the_figures_of_its_own_version() -> None:
    past, steady = Past(repetitions=6), np.ones((60, 6), dtype=bool)
    some, many = steady.copy(), steady.copy()
    some[:3, ::2], many[:24, ::2] = False, False
    for version, scores in (("v1", some), ("v2", many), ("v1", some)):
        past.experiment({"right": scores}, target_version=version, name=f"{version}-{len(past.rows)}")

    def noise(experiment: int | None) -> tuple[str, set[str], float]:
        row = past.rows[experiment or 0]
        report = flaky_report(past.store, row, own_version=experiment is not None)
        (metric,) = report.metrics
        return report.sentences[0], {one.example_id for one in metric.flaky}, metric.half_width()

    first, of_first, width = noise(0)
    assert first.startswith("figures of the version of v1-0, from 2 experiments on ") and of_first == {"e0", "e1", "e2"}
    second, _, wide = noise(1)
    assert second.startswith("figures of the version of v2-1, from 1 experiment on ") and wide > 2 * width
    pooled, _, between = noise(None)
    assert pooled.startswith("figures pooled over 2 versions, from 3 experiments on ") and width < between < wide
