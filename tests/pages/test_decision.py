"""The pages of gate decisions: rules as intervals against bounds, notes, and how to make a decision again."""

import numpy as np
import pytest
from page_tables import shown_text, table_rows
from past import FAILED, Past, guard

from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.dashboard.decisions import decision_page, decisions_page, stored_rules
from evalflows.dashboard.links import Links, NoLinks
from evalflows.dashboard.rendering import Query, Site
from evalflows.reports.decisions import find_decision
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.records import DecisionRow, ExperimentRow
from evalflows.store.store import Store


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


def fill() -> dict[str, DecisionRow]:
    """Decisions on one of two experiments of one name, by what they are about.

    Of its 100 examples the newer one has 10 more right, and 5 without a value.
    """
    past = Past()
    values = np.where(np.arange(100) < 80, 1.0, 0.0)
    values[:5] = FAILED
    spec = past.spec(metrics={"words": {"higher_is_better": False}})
    for right, words in ((np.arange(100) < 70, np.full(100, 2.0)), (values, np.linspace(1.0, 1.5, 100))):
        past.experiment({"right": right, "words": words}, yes_no=["right"], spec=spec, name="app")
    old, new = past.rows
    past.approve(old, "product")
    window = guard(0.1, name="window", baseline="production:watch@2026-01-01..2026-01-02")
    other = GateSpec.model_validate({"name": "other", "thresholds": {"other": 0.5}})
    return {
        "guard": decided(past, guard(0.3, name="guard"), new, old, spec),
        "both": decided(past, both_kinds(), new, old, spec),
        "alone": decided(past, other, new, None, past.spec()),
        "window": decided(past, window, new, None, past.spec()),
    }


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


def test_rules_have_their_bounds_in_the_direction_of_the_metric(filled: dict[str, DecisionRow]) -> None:
    row = filled["both"]
    rules = {(rule.rule, rule.metric): rule for rule in stored_rules(Store(), find_decision(Store(), row.decision_id))}
    assert {key: rule.threshold for key, rule in rules.items()} == {
        ("non_inferiority", "right"): -0.3,
        ("superiority", "words"): -0.1,  # it must fall
        ("threshold", "right"): 0.95,
        ("confident_threshold", "words"): 1.6,
    }
    words = rules["superiority", "words"]
    assert words.value == pytest.approx(1.25 - 2.0)
    assert (words.is_difference, words.higher_is_better, words.has_worst_case) == (True, False, False)
    right = rules["non_inferiority", "right"]
    assert right.n_missing == 5 and right.has_worst_case
    assert right.low is not None and right.worst_case_low is not None and right.worst_case_low < right.low


def test_a_page_says_what_was_decided_and_how_to_make_it_again(filled: dict[str, DecisionRow]) -> None:
    row = filled["both"]
    html, decision = page(row.decision_id), find_decision(Store(), row.decision_id)
    text = shown_text(html)
    assert decision.conclusion in text and decision.summary in text
    for rule in decision.rules:
        assert rule.text in text
    rows = [cells for cells in table_rows(html) if cells and cells[0] in ("met", "broken", "open")]
    assert [(cells[1], cells[2], cells[4]) for cells in rows] == [
        ("non-inferiority", "right", "above -0.3"),
        ("superiority", "words", "below -0.1"),
        ("threshold", "right", "at least 0.95"),
        ("confident threshold", "words", "below 1.6"),
    ]
    for part in (
        f"evalflows explain {row.decision_id} --again",
        "select * from gate_rules where decision_id",
        "missing values at their extremes",
        "right, non inferiority: 5 missing values",
        "approved baseline product, approved by me 2026-01-01",
        "compare them example by example",
        "2nd decision on this experiment",
    ):
        assert part in text, part
    assert 'href="/decisions#baselines"' in html
    assert "guard" in text.partition("Other decisions on this candidate")[2]
    assert "href=" not in page(row.decision_id, NoLinks()), "in a report of one file"


def test_rules_about_the_candidate_alone_and_windows_have_no_baseline(filled: dict[str, DecisionRow]) -> None:
    html = page(filled["alone"].decision_id)
    assert "no estimate" in shown_text(html) and 'class="chart' not in html
    assert "its rules are about the candidate alone" in shown_text(html)
    text = shown_text(page(filled["window"].decision_id))
    assert "a window of production" in text and "production:watch@" in text
    assert "compare them example by example" not in text


def test_decisions_and_approvals_are_listed_and_filtered(filled: dict[str, DecisionRow]) -> None:
    guarded, both = filled["guard"], filled["both"]
    rows = listed()
    assert [cells[:2] for cells in rows[3:5]] == [["release", both.conclusion], ["guard", guarded.conclusion]]
    assert ["product", "app"] in [cells[:2] for cells in rows] and "me" in rows[-1]
    assert rows[4][2:4] == ["app (2026-01-02 00:00 UTC)", "app (2026-01-01 00:00 UTC)"], (
        "of one name, they are told apart"
    )
    assert [cells[0] for cells in listed(("gate", "guard"))[1:2]] == ["guard"]
    filtered = listed(("conclusion", guarded.conclusion), ("q", "APP"))
    assert ["guard", guarded.conclusion] in [cells[:2] for cells in filtered]
    assert listed(("q", "nobody"))[0][0] == "Baseline"
    with pytest.raises(InputError, match="conclusion: got 'MAYBE'"):
        listed(("conclusion", "MAYBE"))


def test_an_empty_store_has_no_decisions() -> None:
    text = shown_text(decisions_page(Site(store=Store(), links=Links()), Query.of()).body)
    assert "No gate has decided yet" in text and "No baseline is approved yet" in text
    with pytest.raises(InputError, match=r"decision 'nothing': not in .*, which has no decisions"):
        page("nothing")
