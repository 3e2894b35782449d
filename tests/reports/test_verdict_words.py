"""A verdict has the same words everywhere, and says which margin it depends on."""

import json
import os

import numpy as np
import pytest
from click.testing import CliRunner
from past import Past

from evalflows import decide_on
from evalflows.cli.main import cli
from evalflows.reports.results import conclusion_text
from evalflows.specs.gate import GateSpec

RIGHT = np.arange(100) % 10 > 0
NOW_RIGHT = np.where(np.arange(100) == 10, 1, np.where(np.arange(100) == 11, 0, RIGHT))
"""One example better and one worse: no significant difference, and equivalent within 0.1."""


@pytest.fixture(autouse=True)
def decision(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    past = Past()
    past.experiment({"right": RIGHT})
    past.experiment({"right": NOW_RIGHT})
    return decide_on("exp-001", "exp-000", GateSpec(non_inferiority={"right": 0.1}, min_examples=10)).decision_id


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_a_diff_says_what_a_gate_has_decided_unless_it_is_of_some_examples(decision: str) -> None:
    assert "equivalent (margin 0.1)" in printed("report", decision, "--format", "md")
    assert "equivalent (margin 0.1)" in printed("diff", "exp-000", "exp-001")
    some = ("diff", "exp-000", "exp-001", "--where", "example_id <> 'e00'")
    of_gate, of_diff, of_some = (
        json.loads(printed(*command, "--format", "json"))["metrics"][1]["against_baseline"]
        for command in (("report", decision), ("diff", "exp-000", "exp-001"), some)
    )
    named = ("margin", "conclusion", "verdict", "difference")
    assert [of_gate[name] for name in named] == [0.1, "equivalent", "equivalent (margin 0.1)", 0.0]
    assert [of_diff[name] for name in named] == [of_gate[name] for name in named]
    assert of_some["margin"] is None


def test_the_report_of_a_decision_lists_the_examples_that_got_worse(decision: str) -> None:
    page = printed("report", decision, "--format", "md")
    worst = page.partition("### examples that got worse by right: bot")[2]
    assert worst.splitlines()[2] == "**e11** was 1, now 0", page
    assert "- question: " in worst and "- answer: " in worst and "- baseline: " in worst
    assert worst.rstrip().endswith("All of them: `evalflows show exp-001 --worst right`")
    assert "was 1, now 0" in " ".join(printed("show", "exp-001", "--worst", "right").split()), "against the gate's"

    assert conclusion_text("better", None, 0.1) == "better", "it does not depend on the margin"
    assert conclusion_text("not_enough_evidence", "too_few", 0.1) == "not enough evidence"
