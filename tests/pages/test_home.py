"""Home: what got worse, since when, and what an empty store says."""

import re
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from page_client import page_client
from past import START, Past
from store_rows import make_row

from evalflows.reports.fallen import fallen
from evalflows.store.records import ExperimentRow, derived_id, to_json
from evalflows.store.store import Store


def keep(table: str, owner: str, **fields: Any) -> None:
    Store().publish(table, owner, [make_row(table, **fields)])


def decide(
    row: ExperimentRow, gate: str, conclusion: str, baseline: ExperimentRow | None = None, reasons: str = "[]"
) -> None:
    identity = f"dec-{gate}-{row.experiment_id}"
    of = {"candidate_experiment_id": row.experiment_id, "baseline_experiment_id": baseline and baseline.experiment_id}
    at = row.started_at + timedelta(hours=1)
    said = {"summary": f"{gate} says {conclusion}", "reasons": reasons, "policy": "{}", "comparability": None}
    keep(
        "decisions",
        identity,
        decision_id=identity,
        gate=gate,
        conclusion=conclusion,
        decided_at=at,
        recorded_at=at,
        **of,
        **said,
    )


def judge(row: ExperimentRow, baseline: ExperimentRow, conclusion: str, difference: float) -> None:
    of = {"candidate_experiment_id": row.experiment_id, "baseline_experiment_id": baseline.experiment_id}
    ends = {"difference": difference, "ci_low": difference - 0.1, "ci_high": difference + 0.1}
    found = {"verdict_id": derived_id(row.run_group), "run_group": row.run_group, "metric": "right", "slice": None}
    keep(
        "verdicts",
        row.run_group,
        conclusion=conclusion,
        reason_code=None,
        **of,
        **ends,
        **found,
    )


def mean(row: ExperimentRow, value: float) -> None:
    of = {"experiment_id": row.experiment_id, "metric": "right", "evaluator_version": "e1", "slice": None}
    ends = {"mean": value, "ci_low": value - 0.02, "ci_high": value + 0.02}
    keep("estimates", row.experiment_id, estimate_id=derived_id(row.experiment_id), **of, **ends)


def test_an_empty_store_says_which_commands_fill_it(store: Store) -> None:
    page = page_client().get("/home").text
    commands = re.findall(r"<pre>(.*?)</pre>", page)
    assert commands == ["evalflows init", "evalflows gate evals/experiment.yaml", "evalflows traces add FILE"]
    assert store.layout.root in page and "Nothing got worse" not in page


def test_what_got_worse_comes_first_with_the_first_time_in_a_row(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    past = Past()
    scores = {"right": np.ones(4)}

    def ran(name: str, **fields: Any) -> ExperimentRow:
        return past.experiment(scores, name=name, spec=past.spec(name), **fields)

    good = [ran("qa", application_version="v1")]
    decide(good[0], "release", "PASS")
    page = page_client().get("/home").text
    assert "Nothing got worse" in page and "Gates that pass" in page and "What got worse" not in page
    bad = [ran("qa", application_version=f"v{number}") for number in (2, 3)]
    for row, difference in zip(bad, (-0.2, -0.3), strict=True):
        judge(row, good[0], "worse", difference)
        decide(row, "release", "FAIL", good[0])
        decide(row, "strict", "NOT ENOUGH EVIDENCE", good[0])
    ruled = ran("ruled")
    judge(ruled, good[0], "worse", -0.5)
    rules = [{"rule": "superiority", "metric": "right", "bound": 0.0, "outcome": "broken", "text": "it is worse"}]
    decide(ruled, "main", "FAIL", good[0], to_json(rules))
    lacking = ran("other")
    decide(lacking, "small", "NOT ENOUGH EVIDENCE")
    trial = ran("trial", tags=["trial"])
    decide(trial, "tried", "FAIL")
    for name, means in (("alone", (0.9, 0.8)), ("steady", (0.9, 0.88))):
        for value in means:
            mean(last := ran(name), value)
        assert last.started_at > START
    recovered = [ran("mended"), ran("mended")]
    judge(recovered[0], good[0], "worse", -0.4)
    judge(recovered[1], good[0], "better", 0.1)

    begun = ran("under_way", state="running")
    monkeypatch.setattr("evalflows.store.sql.held_leases", lambda _: [begun.run_group])
    found = fallen(store)
    assert [one.name for one in found] == ["alone", "ruled", "qa v3", "other"], "sure ones first, the newest first"
    alone, by_rule, qa, other = found
    assert by_rule.text == "main says FAIL", "the rule says how much worse the metric is"
    assert qa.text == (
        "release: release says FAIL; strict: strict says NOT ENOUGH EVIDENCE; also right -0.30 [-0.40, -0.20]"
    )
    assert alone.metrics[0].text == "right -0.100 (not tested)" and not alone.gates
    assert qa.baseline == "qa v1" and [gate.gate for gate in qa.gates] == ["release", "strict"]
    assert qa.metrics[0].text == "right -0.30 [-0.40, -0.20]" and qa.metrics[0].since == bad[0].started_at
    assert qa.since == bad[0].started_at and other.is_open and other.since == lacking.started_at + timedelta(hours=1)
    page = page_client().get("/home").text
    assert page.index("What got worse") < page.index("Newest experiments") and "small says NOT ENOUGH" in page
    (since,) = re.findall(r'right -0.30.*?<time datetime="([^"]+)"', page, re.S)
    assert since == bad[0].started_at.isoformat()
    assert f"/compare?baseline={good[0].experiment_id}&amp;candidate={bad[1].experiment_id}" in page
    assert page.index('<progress max="4" value="4"') < page.index("What got worse") and "data-refresh" in page
    assert "tried says FAIL" not in page and "Gates that pass" not in page
