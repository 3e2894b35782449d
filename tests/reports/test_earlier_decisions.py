"""Decisions on one experiment with other rules or baselines are counted and said; the same one again is not."""

import json
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from past import Past

from evalflows import decide_on
from evalflows.cli.main import cli
from evalflows.reports.decisions import decisions_named
from evalflows.specs.gate import GateSpec
from evalflows.store.records import DecisionRow
from evalflows.store.sql import connect
from evalflows.store.store import Store

RIGHT = np.arange(60) % 10 > 0
LOOKS = "its p-values are not adjusted for earlier ones with other rules or another baseline"


@pytest.fixture(autouse=True)
def past(monkeypatch: pytest.MonkeyPatch) -> Past:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    made = Past()
    for _ in range(3):
        made.experiment({"right": RIGHT})
    return made


def decide(candidate: str = "exp-001", baseline: str | None = "exp-000", level: float = 0.95, **rules: Any) -> str:
    return decide_on(candidate, baseline, GateSpec.model_validate(rules), level).decision_id


def earlier(identity: str) -> int:
    (found,) = decisions_named(Store(), [identity])
    return found.earlier_decisions


def test_each_other_set_of_rules_is_one_look_more_and_the_same_again_is_none() -> None:
    first = decide(thresholds={"right": 0.5})
    assert (earlier(first), decide(thresholds={"right": 0.5}) == first, earlier(first)) == (0, True, 0)
    second = decide(thresholds={"right": 0.6})
    third = decide(thresholds={"right": 0.5}, min_examples=10)
    assert [earlier(one) for one in (first, second, third)] == [0, 1, 2]
    assert decide(thresholds={"right": 0.5}) == first and earlier(first) == 0, "asked again, it keeps its place"


def test_what_makes_a_look_another_one() -> None:
    rules: dict[str, Any] = {"thresholds": {"right": 0.5}}
    decide(**rules)
    changes: list[tuple[dict[str, Any], int]] = [
        ({"name": "another"}, 0),
        ({"candidate": "exp-002"}, 0),
        ({"baseline": "exp-002"}, 1),
        ({"baseline": None}, 2),
        ({"level": 0.9}, 3),
        ({"adjustment": "none"}, 4),
    ]
    for change, count in changes:
        assert earlier(decide(**rules | change)) == count, change


def test_the_gates_of_one_run_were_declared_together(past: Past) -> None:
    rows = [past.store.read("decisions", decide(thresholds={"right": bound}))[0] for bound in (0.3, 0.4, 0.5)]
    for number, row in enumerate(rows):
        again: DecisionRow = replace(row, flow_run_id="one run" if number else "before")
        past.store.publish("decisions", row.decision_id, [again])
    assert [earlier(row.decision_id) for row in rows] == [0, 1, 1]


def test_how_many_is_said_in_words() -> None:
    for place, said in enumerate((None, "2nd", "3rd", "4th")):
        last = decide(baseline=None, thresholds={"right": 0.1 + place / 100})
        (found,) = decisions_named(Store(), [last])
        assert found.notes == ([] if said is None else [f"{said} decision on this experiment: {LOOKS}"])


@pytest.mark.slow
def test_the_commands_and_documents_say_it() -> None:
    decide(thresholds={"right": 0.5})
    last = decide(thresholds={"right": 0.6})
    printed = " ".join(CliRunner().invoke(cli, ["explain", last]).output.split())
    assert f"2nd decision on this experiment: {LOOKS}" in printed
    document = json.loads(CliRunner().invoke(cli, ["show", "exp-001", "--format", "json"]).stdout)
    assert [one["earlier_decisions"] for one in document["decisions"]] == [1]
    with connect() as catalog:
        assert catalog.execute("select max(earlier_decisions) from gate_decisions").fetchall() == [(1,)]
