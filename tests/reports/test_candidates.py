"""Several candidates of one gate: one table, whether they can be told apart, and the best by the gate's own metrics."""

from dataclasses import replace

import numpy as np
import pytest
from page_tables import shown_text, table_rows
from past import Past

from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.cli.decisions import limits_section
from evalflows.cli.output import console
from evalflows.cli.sections import print_sections
from evalflows.dashboard.decisions import decision_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Query, Site
from evalflows.reports.candidates import CandidatesOfGate, candidates_of_gates
from evalflows.reports.decisions import Decision, decisions_of
from evalflows.reports.markdown_pages import gate_page, gate_report
from evalflows.specs.gate import GateSpec
from evalflows.store.store import Store

GATE = GateSpec.model_validate({"thresholds": {"right": 0.6}, "non_inferiority": {"right": 0.05}})
N = 100


def decided(*rates: float) -> list[Decision]:
    """The decisions on candidates that are right so often, against a baseline that is right in half of the examples."""
    past = Past()
    for rate in (0.5, *rates):
        past.experiment({"right": np.arange(N) < rate * N}, yes_no=["right"], run_group="run")
    baseline, *candidates = past.rows
    for row in candidates:
        pair = ExperimentPair(reader=MetricReader(past.store), spec=past.spec(), candidate=row, baseline=baseline)
        keep_decision(past.store, GateEvaluation(gate=GATE, pair=pair))
    return decisions_of(past.store, [row.experiment_id for row in candidates])


def standing(*rates: float) -> str:
    (found,) = candidates_of_gates(Store(), decided(*rates))
    assert isinstance(found, CandidatesOfGate)
    return found.standing


def test_candidates_are_told_apart_or_not_by_the_metrics_of_the_gate() -> None:
    said = "compared by right: exp-002 is significantly better than exp-001 in right, and in none significantly worse"
    assert standing(0.7, 0.95, 0.3) == said


def test_candidates_that_do_not_differ_are_not_ranked() -> None:
    said = standing(0.7, 0.72, 0.95, 0.94)
    assert said.startswith("none of exp-001, exp-002, exp-003 and exp-004 is better than all others: ")
    assert "exp-003 is better than exp-001 in right" in said and "exp-003 is better than exp-004" not in said


def test_one_page_has_all_candidates_once() -> None:
    decisions = decided(0.7, 0.71, 0.3)
    report = gate_report(Store(), decisions, {"exp-001": 2, "a baseline of this run that no gate used": 30})
    assert report.calls_made == 32
    (one,) = report.candidates
    assert isinstance(one, CandidatesOfGate)
    assert one.title == "gate release against exp-000, 3 candidates: 2 PASS, 1 FAIL"
    assert one.standing == ("exp-001 and exp-002 cannot be told apart by right: no significant difference between them")
    assert [(rule.rule, rule.candidate, rule.outcome) for rule in one.rules][:3] == [
        ("non inferiority right 0.05", "exp-001", "met"),
        ("non inferiority right 0.05", "exp-002", "met"),
        ("non inferiority right 0.05", "exp-003", "broken"),
    ]
    assert str(report.next_command) == "evalflows diff exp-001 exp-002", "those that pass"
    assert len(report.reports) == 1 and report.document["standings"] == [one.standing]
    assert gate_page(report).count(one.standing) == 1
    site, query = Site(store=Store(), links=Links()), Query.of((), {"id": decisions[2].decision_id})
    body = decision_page(site, query).body
    assert [row[:2] for row in table_rows(body) if row[0] in ("decision", "threshold right 0.6")] == [
        ["decision", "PASS"],
        ["threshold right 0.6", "met 0.7000 [0.6002, 0.7876]"],
    ]
    assert one.standing in shown_text(body)
    (failing, passing) = (decisions[2], decisions[0])
    (alone,) = candidates_of_gates(Store(), [passing])
    assert alone == passing
    assert str(gate_report(Store(), [passing, failing]).next_command) == "evalflows diff exp-000 exp-001", "a target"


def test_limits_of_decisions_by_several_gates_name_their_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = decided(0.65, 0.7)
    decisions = [
        replace(first, gate="one", limits=["few", "both"], comparability="[]"),
        replace(second, gate="two", limits=["both"], comparability="[]"),
    ]
    assert candidates_of_gates(Store(), decisions) == decisions, "no table of candidates"
    print_sections(console(), [limits_section(decisions)], 24, "--all")
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["limits  exp-001: few", "both"]
