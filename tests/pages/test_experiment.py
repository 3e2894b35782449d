"""The page of an experiment: results, distributions, slices, failures, cost, and its examples."""

from dataclasses import replace
from typing import Any

import pytest
from answered import answered
from page_text import Seen, seen
from store_rows import make_row

from evalflows.pages.experiment import experiment_page
from evalflows.pages.links import Links, NoLinks
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.reports.experiment_items import ItemFilter, items_of
from evalflows.reports.slice_means import slice_means
from evalflows.reports.value_distributions import BINS, distributions
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store

EXAMPLES = [f"q{place}" for place in range(6)]
ROWS = [
    {"id": one, "inputs": {"question": f"{one} <b>?</b>"}, "split": split, "metadata": {"topic": topic, "row": one}}
    for one, split, topic in zip(EXAMPLES, ["easy", "hard"] * 3, ["art"] * 4 + ["law", None], strict=True)
]
RIGHT = dict(zip(EXAMPLES, [1.0, 0.0, 0.5, None, 1.0, 1.0], strict=True))
TONE = dict.fromkeys(EXAMPLES[:4], "kind") | {"q4": "rude", "q5": None}


@pytest.fixture
def identity() -> str:
    """Six answers, the last of which failed; no value of `right` for q3; `tone` has labels."""
    answers: dict[str, Any] = {one: f"answer to {one}" for one in EXAMPLES}
    return answered("bot", answers, {"right": RIGHT, "tone": TONE}, rows=ROWS)


def page(reference: str, site: Site | None = None, **values: str) -> tuple[Page, Seen]:
    query = Query({name: [value] for name, value in {**values, "id": reference}.items()})
    made = experiment_page(site or Site(store=Store(), links=Links()), query)
    return made, seen(str(made.body))


def ids(shown: Seen) -> list[str]:
    return [text for text, address in shown.links if "/example?id=" in address and text.startswith("q")]


def test_metrics_say_how_many_were_scored_and_how_many_are_missing(identity: str) -> None:
    made, shown = page(identity)
    (right,) = [row for row in shown.rows if row[:1] == ["right"] and len(row) == 6]
    (tone,) = [row for row in shown.rows if row[:1] == ["tone"] and len(row) == 6]
    assert right[1].startswith("0.7")  # the mean of 1, 0, 0.5, 1, 1
    assert right[3:] == ["5", "1", "0"]
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


def test_distributions_count_every_scored_run(identity: str) -> None:
    found = {one.metric: one for one in distributions(Store(), identity)}
    assert found["right"].counts == [("0", 1), ("0.5", 1), ("1", 3)]
    assert (found["right"].scored, found["right"].missing) == (5, 1)
    assert found["tone"].counts == [("kind", 4), ("rude", 1)]


def test_many_values_are_counted_in_intervals_without_gaps() -> None:
    examples = [f"e{place}" for place in range(21)]
    values = {one: float(place) for place, one in enumerate(examples)}
    values["e20"] = 100.0
    identity = answered(
        "many", dict.fromkeys(examples, "x"), {"score": values}, rows=[{"id": one, "inputs": one} for one in examples]
    )
    (found,) = [one for one in distributions(Store(), identity) if one.metric == "score"]
    counts = [count for _, count in found.counts]
    assert (len(counts), sum(counts)) == (BINS, 21)
    assert counts == [5, 5, 5, 5, *[0] * 15, 1]
    assert found.counts[0][0] == "0.000 to 5.000"


def test_slices_are_splits_and_fields_with_few_values(identity: str) -> None:
    (row,) = Store().read("experiments", identity)
    found = {(one.field, one.value): one for one in slice_means(Store(), identity, row.snapshot_id)}
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
    _, shown = page(identity)
    assert next(row[:3] for row in shown.rows if row[:1] == ["hard"]) == ["hard", "3", "0.500 n=2, too few, 1 missing"]


@pytest.mark.slow
def test_failures_are_counted_by_kind_with_links_to_examples(identity: str) -> None:
    _, shown = page(identity)
    failed = [row for row in shown.rows if len(row) == 5 and "no verdict on q3" in row[3]]
    assert [row[:2] for row in failed] == [["1", "right"]]
    assert failed[0][4] == "q3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, EXAMPLES),
        ({"metric": "right"}, ["q1", "q2", "q0", "q4", "q5", "q3"]),
        ({"metric": "right", "show": "missing"}, ["q3"]),
        ({"show": "failed"}, []),
        ({"q": "ANSWER TO Q2"}, ["q2"]),
        ({"q": "<b>?</b>", "metric": "right"}, ["q1", "q2", "q0", "q4", "q5", "q3"]),
    ],
)
def test_examples_are_filtered_and_sorted(identity: str, values: dict[str, str], wanted: list[str]) -> None:
    (row,) = Store().read("experiments", identity)
    wished = ItemFilter(metric=values.get("metric"), shown=values.get("show", "all"), text=values.get("q"))  # type: ignore[arg-type]
    found = items_of(Store(), identity, row.snapshot_id, wished, limit=10)
    assert [one.example_id for one in found.items] == wanted
    assert found.count == len(wanted)
    _, shown = page(identity, **values)
    assert [one for one in ids(shown) if one in wanted][-len(wanted) or len(ids(shown)) :] == wanted


@pytest.mark.slow
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


def test_a_running_experiment_fills_in(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = Store().read("experiments", identity)
    Store().publish("experiments", identity, [replace(row, state="running")])
    monkeypatch.setattr("evalflows.store.catalog.held_leases", lambda _: [row.run_group])
    made, shown = page(identity)
    assert made.refresh_s == 5
    assert "running" in shown.text


def test_wrong_parameters_are_named(identity: str) -> None:
    for name, value in {"metric": "x", "show": "x", "page": "x"}.items():
        with pytest.raises(InputError, match=f"^{name}: got 'x'"):
            page(identity, **{name: value})


def test_a_report_of_one_file_has_no_links_and_no_form(identity: str) -> None:
    _, shown = page(identity, Site(store=Store(), links=NoLinks()))
    assert not shown.links
    assert "form" not in shown.tags
    assert "answer to q0" in shown.text


def test_gate_decisions_and_judge_checks_are_shown(identity: str) -> None:
    decision = make_row("decisions", decision_id="dec-1", gate="release", candidate_experiment_id=identity)
    reasons = '[{"rule": "threshold", "metric": "right", "outcome": "met", "text": "right is high"}]'
    store = Store()
    store.publish(
        "decisions", "dec-1", [replace(decision, conclusion="PASS", summary="right is high", reasons=reasons)]
    )
    _, shown = page(identity)
    assert ("gate release: bot", "/decisions/dec-1") in shown.links
    assert "PASS" in shown.text


def test_an_approval_is_named_with_who_and_when(identity: str) -> None:
    row = make_row("baselines", baseline_id="b1", name="product", experiment_id=identity, approved_by="ann")
    Store().publish("baselines", "b1", [row])
    _, shown = page(identity)
    assert "approved by ann" in shown.text
    assert ("product", "/decisions#baselines") in shown.links
