"""The page of an experiment: results, distributions, slices, failures, cost, and its examples."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from answered import answered
from page_text import Seen, seen
from past import Past
from store_rows import make_row

from evalflows import decide_on
from evalflows.analysis.differences import ExperimentPair, MetricReader, verdicts_of
from evalflows.dashboard.experiments import experiment_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Page, Query, Site
from evalflows.reports.experiment_page import ItemFilter, items_of
from evalflows.reports.slices import slice_means
from evalflows.specs.errors import InputError
from evalflows.specs.gate import GateSpec
from evalflows.store.store import Store

EXAMPLES = [f"q{place}" for place in range(6)]
ROWS = [
    {"id": one, "inputs": {"question": f"{one} <b>?</b>"}, "split": split, "metadata": {"topic": topic, "row": one}}
    for one, split, topic in zip(EXAMPLES, ["easy", "hard"] * 3, ["art"] * 4 + ["law", None], strict=True)
]
RIGHT = dict(zip(EXAMPLES, [1.0, 0.0, 0.5, None, 1.0, 1.0], strict=True))
TONE = dict.fromkeys(EXAMPLES[:4], "kind") | {"q4": "rude", "q5": None}


def fill() -> str:
    """Six answers, the last of which failed; no value of `right` for q3; `tone` has labels."""
    answers: dict[str, Any] = {one: f"answer to {one}" for one in EXAMPLES}
    return answered("bot", answers, {"right": RIGHT, "tone": TONE}, rows=ROWS)


@pytest.fixture
def identity() -> str:
    """The id of that experiment in a store of the test's own."""
    return fill()


def page(reference: str, site: Site | None = None, **values: str) -> tuple[Page, Seen]:
    query = Query({name: [value] for name, value in {**values, "id": reference}.items()})
    made = experiment_page(site or Site(store=Store(), links=Links()), query)
    return made, seen(str(made.body))


def ids(shown: Seen) -> list[str]:
    return [text for text, address in shown.links if "/example?id=" in address and text.startswith("q")]


def test_metrics_say_how_many_were_scored_and_how_many_are_missing(filled: str) -> None:
    made, shown = page(filled)
    (right,) = [row for row in shown.rows if row[:1] == ["right"] and len(row) == 6]
    (tone,) = [row for row in shown.rows if row[:1] == ["tone"] and len(row) == 6]
    assert right[1].startswith("0.7")  # the mean of 1, 0, 0.5, 1, 1
    assert right[3:] == ["5", "1", "0"]
    assert (shown.rows[0][2], right[2]) == ("On a scale of", "0 to 1"), "so it is drawn; no range is declared"
    assert tone[1] == "kind 80 %, rude 20 %"
    assert tone[3:] == ["5", "1", "0"]
    assert made.title == "bot"
    assert "<b>" not in made.body.replace("&lt;b&gt;", "")


def test_an_experiment_is_found_by_its_name_and_a_run_lists_its_experiments(identity: str) -> None:
    (row,) = Store().read("experiments", identity)
    assert page("bot")[0].body == page(identity)[0].body
    other = replace(row, experiment_id="exp-zz", name="bot-2", target="bot-2")
    Store().publish("experiments", "exp-zz", [other])
    _, shown = page(row.run_group)
    assert {address for _, address in shown.links if "/experiments/" in address} == {
        f"/experiments/{identity}",
        "/experiments/exp-zz",
    }
    with pytest.raises(InputError, match="experiment 'nope': not in"):
        page("nope")


def test_slices_are_splits_and_fields_with_few_values(filled: str) -> None:
    (row,) = Store().read("experiments", filled)
    found = {(one.field, one.value): one for one in slice_means(Store(), filled, row.snapshot_id)}
    assert {key: one.n_examples for key, one in found.items()} == {
        ("split", "easy"): 3,
        ("split", "hard"): 3,
        ("metadata.topic", "art"): 4,
        ("metadata.topic", "law"): 1,
        **{("metadata.row", one): 1 for one in EXAMPLES},
    }
    hard = found["split", "hard"].mean("right")
    assert hard is not None
    assert (hard.mean, hard.n_examples, hard.missing, hard.is_few) == (0.5, 2, 1, True)
    _, shown = page(filled)
    assert next(row[:3] for row in shown.rows if row[:1] == ["hard"]) == ["hard", "3", "0.500 n=2, too few, 1 missing"]


@pytest.mark.slow
def test_examples_are_filtered_and_sorted(filled: str) -> None:
    (row,) = Store().read("experiments", filled)
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, EXAMPLES),
        ({"metric": "right"}, ["q1", "q2", "q0", "q4", "q5", "q3"]),
        ({"metric": "right", "show": "missing"}, ["q3"]),
        ({"show": "failed"}, []),
        ({"q": "ANSWER TO Q2"}, ["q2"]),
        ({"q": "<b>?</b>", "metric": "right"}, ["q1", "q2", "q0", "q4", "q5", "q3"]),
    ]
    for values, wanted in cases:
        wished = ItemFilter(metric=values.get("metric"), shown=values.get("show", "all"), text=values.get("q"))
        found = items_of(Store(), filled, row.snapshot_id, wished, limit=10)
        assert [one.example_id for one in found.items] == wanted
        assert found.count == len(wanted)
        _, shown = page(filled, **values)
        assert [one for one in ids(shown) if one in wanted][-len(wanted) or len(ids(shown)) :] == wanted


def test_a_failed_and_a_missing_answer_are_no_zeros(identity: str) -> None:
    (row,) = Store().read("experiments", identity)
    outputs = Store().read("outputs", identity)
    failed = replace(outputs[0], outputs=None, status="failed", error="boom <i>")
    Store().publish("outputs", identity, [failed, *outputs[2:]])
    made, shown = page(identity)
    texts = [" ".join(one) for one in shown.rows]
    assert any("1 of 1 failed: boom <i>" in text for text in texts)
    assert any("not attempted" in text for text in texts)
    assert "boom <i>" not in made.body
    assert row.n_examples == 6


def test_gate_decisions_and_approvals_are_shown(identity: str) -> None:
    decision = make_row("decisions", decision_id="dec-1", gate="release", candidate_experiment_id=identity)
    reasons = '[{"rule": "threshold", "metric": "right", "outcome": "met", "text": "right is high"}]'
    store = Store()
    store.publish(
        "decisions", "dec-1", [replace(decision, conclusion="PASS", summary="right is high", reasons=reasons)]
    )
    row = make_row("baselines", baseline_id="b1", name="product", experiment_id=identity, approved_by="ann")
    store.publish("baselines", "b1", [row])
    _, shown = page(identity)
    assert ("gate release: bot", "/decisions/dec-1") in shown.links
    assert "PASS" in shown.text and "approved by ann" in shown.text
    assert ("product", "/decisions#baselines") in shown.links


def test_the_means_of_a_gates_baseline_stand_beside_its_own() -> None:
    """Though it ran alone, and a gate compared it with an experiment of another run."""
    past = Past([f"c{place}" for place in range(40)])
    first, old, new = (past.experiment({"judge": np.arange(40) < good}) for good in (30, 36, 12))
    for one, baseline in ((old, first), (new, old)):
        gate = GateSpec(name="release", non_inferiority={"judge": 0.05})
        decide_on(one.experiment_id, baseline.experiment_id, gate)
    text = " ".join(page(new.experiment_id)[1].text.split())
    assert "judge 0 to 1 0.900 → 0.300" in text and "Verdict (p adjusted over 1)" in text
    assert text.count("worse in judge") == 1, "not once more below the table"


def test_metrics_that_are_folded_have_their_own_verdicts_and_the_header_the_number_of_tests_in_their_family() -> None:
    """Of a run with two candidates, of which the page shows one."""
    past, drawn = Past(), np.random.default_rng(1).random((3, 60))
    spec, reader = past.spec(metrics={"even": {"range": [0, 1], "margin": 0.2}}), MetricReader(past.store)
    rows = [past.experiment({"even": 0.5 + one / 100, "wide": one}, spec=spec, run_group="g") for one in drawn]
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=rows[0]) for row in rows[1:]]
    past.store.publish("verdicts", "g", [*verdicts_of(pairs, "holm")])
    text = " ".join(page(rows[1].experiment_id)[1].text.split())
    assert re.search(r"Equivalent \(margin 0\.2\): even [^;]*; no significant difference: wide", text)
    assert "Verdict (p adjusted over 4)" in text, "two metrics of two candidates"
