"""The pages of gate decisions: rules as intervals against bounds, notes, and how to make a decision again."""

from typing import Any

import numpy as np
import pytest
from page_tables import shown_text, table_rows
from past import FAILED, Past, guard, passes

from evalflows.analysis.differences.experiment_pair import ExperimentPair
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.analysis.gates.kept_decision import keep_decision
from evalflows.analysis.gates.stored_rules import stored_rules
from evalflows.pages.decision import decision_page
from evalflows.pages.decisions import decisions_page
from evalflows.pages.links import Links, NoLinks
from evalflows.pages.page import Site
from evalflows.pages.query import Query
from evalflows.reports.decisions import find_decision
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.parquet import Store
from evalflows.store.records import DecisionRow, ExperimentRow


def decided(
    past: Past, gate: GateSpec, candidate: ExperimentRow, baseline: ExperimentRow | None, spec: ExperimentSpec
) -> DecisionRow:
    pair = ExperimentPair(reader=MetricReader(past.store), spec=spec, candidate=candidate, baseline=baseline)
    return keep_decision(past.store, GateEvaluation(gate=gate, pair=pair))


def page(reference: str, links: Links | None = None) -> str:
    site = Site(store=Store(), links=links or Links())
    return str(decision_page(site, Query.of((), {"id": reference})).body)


def listed(*pairs: tuple[str, str]) -> list[list[str]]:
    return table_rows(decisions_page(Site(store=Store(), links=Links()), Query.of(pairs)).body)


@pytest.fixture
def past() -> Past:
    """Two experiments of one name: 100 examples, of which the newer has 10 more right and 5 without a value."""
    one = Past()
    old = np.arange(100) < 70
    new = np.where(np.arange(100) < 80, 1.0, 0.0)
    new[:5] = FAILED
    spec = one.spec(metrics={"words": {"higher_is_better": False}})
    for right, words in ((old, np.full(100, 2.0)), (new, np.linspace(1.0, 1.5, 100))):
        one.experiment({"right": right, "words": words}, yes_no=["right"], spec=spec, name="app")
    return one


def both_kinds() -> GateSpec:
    return GateSpec.model_validate(
        {
            "name": "release",
            "non_inferiority": {"right": 0.3},
            "superiority": {"words": 0.1},
            "thresholds": {"right": 0.95},
            "confident_thresholds": {"words": 1.6},
        }
    )


def test_rules_have_their_bounds_in_the_direction_of_the_metric(past: Past) -> None:
    old, new = past.rows
    row = decided(past, both_kinds(), new, old, past.spec(metrics={"words": {"higher_is_better": False}}))
    rules = {(rule.kind, rule.metric): rule for rule in stored_rules(Store(), find_decision(Store(), row.decision_id))}
    thresholds = {key: rule.threshold for key, rule in rules.items()}
    assert thresholds == {
        ("non_inferiority", "right"): -0.3,
        ("superiority", "words"): -0.1,  # it must fall
        ("threshold", "right"): 0.95,
        ("confident_threshold", "words"): 1.6,
    }
    words = rules["superiority", "words"]
    assert words.value == pytest.approx(1.25 - 2.0)
    assert (words.is_difference, words.higher_is_better, words.has_worst_case) == (True, False, False)


def test_missing_values_widen_the_interval_that_is_drawn(past: Past) -> None:
    old, new = past.rows
    row = decided(past, both_kinds(), new, old, past.spec(metrics={"words": {"higher_is_better": False}}))
    right, *_ = stored_rules(Store(), find_decision(Store(), row.decision_id))
    assert right.n_missing == 5 and right.has_worst_case
    assert right.low is not None and right.worst_case_low is not None and right.worst_case_low < right.low
    assert "missing values at their extremes" in shown_text(page(row.decision_id))


def test_a_page_says_what_was_decided_and_how_to_make_it_again(past: Past) -> None:
    old, new = past.rows
    row = decided(past, both_kinds(), new, old, past.spec(metrics={"words": {"higher_is_better": False}}))
    html, decision = page(row.decision_id), find_decision(Store(), row.decision_id)
    text = shown_text(html)
    assert decision.conclusion in text and decision.summary in text
    for rule in decision.rules:
        assert rule["text"] in text
    rows = [cells for cells in table_rows(html) if cells and cells[0] in ("met", "broken", "open")]
    assert [cells[1:3] for cells in rows] == [
        ["non-inferiority", "right"],
        ["superiority", "words"],
        ["threshold", "right"],
        ["confident threshold", "words"],
    ]
    assert [cells[4] for cells in rows] == ["above -0.3", "below -0.1", "at least 0.95", "below 1.6"]
    assert f"evalflows explain {row.decision_id} --again" in text
    assert "select * from gate_rules where decision_id" in text
    assert "non_inferiority:" in text
    assert "compare them example by example" in text


def test_limits_and_approvals_are_on_the_page(past: Past) -> None:
    old, new = past.rows
    past.approve(old, "product")
    row = decided(past, both_kinds(), new, old, past.spec(metrics={"words": {"higher_is_better": False}}))
    html = page(row.decision_id)
    text = " ".join(shown_text(html).split())
    assert "Limits of this decision" in text and "right, non inferiority: 5 missing values" in text
    assert "approved baseline product, approved by me 2026-01-01" in text
    assert 'href="/decisions#baselines"' in html


def test_earlier_decisions_on_the_candidate_are_listed(past: Past) -> None:
    old, new = past.rows
    spec = past.spec(metrics={"words": {"higher_is_better": False}})
    decided(past, guard(0.2, name="strict"), new, old, spec)
    row = decided(past, both_kinds(), new, old, spec)
    text = shown_text(page(row.decision_id))
    assert "Other decisions on this candidate" in text and "strict" in text
    assert "2nd decision on this experiment" in text


def test_a_rule_without_an_estimate_is_open_and_not_drawn(past: Past) -> None:
    _, new = past.rows
    row = decided(past, GateSpec.model_validate({"thresholds": {"other": 0.5}}), new, None, past.spec())
    html = page(row.decision_id)
    assert "no estimate" in shown_text(html) and 'class="chart' not in html
    assert "its rules are about the candidate alone" in shown_text(html)


def test_decisions_and_approvals_are_listed_and_filtered(past: Past) -> None:
    old, new = past.rows
    spec = past.spec(metrics={"words": {"higher_is_better": False}})
    first = decided(past, guard(0.3, name="guard"), new, old, spec)
    second = decided(past, both_kinds(), new, old, spec)
    past.approve(old, "product")
    rows = listed()
    assert [cells[:2] for cells in rows[1:3]] == [["release", second.conclusion], ["guard", first.conclusion]]
    assert ["product", "app"] in [cells[:2] for cells in rows] and "me" in rows[-1]
    assert [cells[0] for cells in listed(("gate", "guard"))[1:2]] == ["guard"]
    assert ["guard", first.conclusion] in [
        cells[:2] for cells in listed(("conclusion", first.conclusion), ("q", "APP"))
    ]
    assert listed(("q", "nobody"))[0][0] == "Baseline"
    with pytest.raises(InputError, match="conclusion: got 'MAYBE'"):
        listed(("conclusion", "MAYBE"))


def test_of_one_name_candidate_and_baseline_are_told_apart(past: Past) -> None:
    old, new = past.rows
    decided(past, guard(0.3), new, old, past.spec())
    (cells,) = (cells for cells in listed() if cells[0] == "release")
    assert cells[2] == "app (2026-01-02)" and cells[3] == "app (2026-01-01)"


def test_a_window_of_production_is_a_baseline_without_experiment(past: Past) -> None:
    _, new = past.rows
    gate = guard(0.1, baseline="production:watch@2026-01-01..2026-01-02")
    row = decided(past, gate, new, None, past.spec())
    text = shown_text(page(row.decision_id))
    assert "a window of production" in text and "production:watch@" in text
    assert "compare them example by example" not in text


def test_an_unknown_decision_is_one_line(past: Past) -> None:
    with pytest.raises(InputError, match=r"decision 'nothing': not in .*, which has no decisions"):
        page("nothing")


def test_an_empty_store_is_no_error() -> None:
    site: Any = Site(store=Store(), links=Links())
    text = shown_text(decisions_page(site, Query.of()).body)
    assert "No gate has decided yet" in text and "No baseline is approved yet" in text


def test_a_report_of_one_file_has_no_links(past: Past) -> None:
    old, new = past.rows
    row = decided(past, guard(0.3), new, old, past.spec())
    assert "href=" not in page(row.decision_id, NoLinks())


def test_identical_systems_pass_a_wide_margin() -> None:
    past = Past()
    values = passes(0.7, 100, 0)
    old, new = (past.experiment({"right": values}, yes_no=["right"]) for _ in range(2))
    row = decided(past, guard(0.2), new, old, past.spec())
    assert row.conclusion == "PASS" and "PASS" in shown_text(page(row.decision_id))
