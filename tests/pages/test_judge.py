"""The pages of judges: agreement with people as of now, disagreements, controls and biases."""

from pathlib import Path
from typing import Any

import pytest
from judges_of_pairs import by_text
from labelled import judged, run_of, score, write_csv
from matched import compared, experiment
from page_tables import shown_text, table_rows
from production import produce, trace, trace_id
from production import score as score_of_trace
from store_rows import make_row

from evalflows.analysis.labels import judge_standings
from evalflows.dashboard.judges import judge_page, judges_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Query, Site
from evalflows.reports.judges import current_report, judge_record
from evalflows.specs.errors import InputError
from evalflows.store.labels import import_labels
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

N = 60
TRUTH = {f"q{place:02}": float(place % 3 > 0) for place in range(N)}  # 40 of 60 are right
SAID = {name: 1.0 if place % 6 == 0 else value for place, (name, value) in enumerate(TRUTH.items())}
"""The judge accepts every right answer, and half of the 20 wrong ones."""


def page(evaluator: str, *pairs: tuple[str, str]) -> str:
    site = Site(store=Store(), links=Links())
    return str(judge_page(site, Query.of(pairs, {"evaluator": evaluator})).body)


def label(rows: list[dict[str, Any]]) -> None:
    path = Path(Store().layout.root).with_name(f"labels-{len(rows)}.csv")
    import_labels(Store(), str(write_csv(path, rows)))


def fill() -> str:
    """An experiment whose 60 answers a judge scored, all labelled by ann. Return its id."""
    one = judged("small", SAID, comment="the judge's <b>reason</b>", cost_usd=0.002, calls=1, spread=0.25, repeats=3)
    label([_row(one, name, value) for name, value in TRUTH.items()])
    return one


@pytest.fixture
def owner() -> str:
    """The id of that experiment in a store of the test's own."""
    return fill()


def _row(owner: str, name: str, value: float, labeller: str = "ann") -> dict[str, Any]:
    row = {"run_id": run_of(owner, name), "metric": "correct", "labeller": labeller}
    return row | {"value": "yes" if value else "no", "comment": f"about {name}"}


def test_the_confusion_matrix_is_that_of_labels_and_judgements(filled: str) -> None:
    html = page("correct")
    rows, text = table_rows(html), shown_text(html)
    assert ["people", "judge: yes", "judge: no", "agreement"] in rows
    assert [row[:3] for row in rows if row[:1] in (["yes"], ["no"])] == [["yes", "40", "0"], ["no", "10", "10"]]
    # observed agreement 50/60; by chance (40 * 50 + 20 * 10) / 60²: kappa = (0.8333 - 0.6111) / 0.3889
    (kappa,) = (row for row in rows if row[:1] == ["Cohen's kappa"])
    assert float(kappa[1]) == pytest.approx(0.571, abs=0.01)
    assert "60 labelled of 60 judged, by 1 person" in text
    assert "agrees with people on 83%" in text and "it is too generous: 17%" in text
    assert "judge: 1 (yes)" in text and "ann: 0 (no)" in text
    assert "answer to q00" in text and "about q00" in text
    assert "the judge's <b>reason</b>" in text and "<b>reason" not in html
    assert f"/experiments/{filled}/example?id=q00" in html


def test_a_new_label_and_failed_controls_change_the_page_at_once(owner: str) -> None:
    before = shown_text(page("correct"))
    label([_row(owner, name, 1.0) for name in ("q00", "q06")])  # ann takes back two labels
    after = shown_text(page("correct"))
    check = {"subject_kind": "judge", "subject_id": "correct", "name": "controls", "passed": False}
    row = make_row("checks", check_id="c1", batch_id="b1", message="accepted 25% of 4 wrong answers", **check)
    Store().publish("checks", "b1", [row])
    assert "failed accepted 25% of 4 wrong answers" in shown_text(page("correct"))
    assert "10 labels that disagree" in before and "8 labels that disagree" in after
    assert ["no", "8", "10"] in [row[:3] for row in table_rows(page("correct"))]


def test_disagreements_are_paged(owner: str) -> None:
    label([_row(owner, name, 1 - value, "ben") for name, value in SAID.items()])
    first, second = page("correct"), page("correct", ("page", "2"))
    assert "70 labels that disagree" in shown_text(first) and "page 1 of 7" in shown_text(first)
    assert first[first.index('id="disagreements"') :] != second[second.index('id="disagreements"') :]


def test_the_report_is_the_one_that_the_command_stores(owner: str) -> None:
    from evalflows.reports.judges import judge_reports
    from evalflows.tasks.score import validate_judge

    _, _, (subject,) = judge_record(Store(), "correct")
    current = current_report(Store(), subject)
    (stored,) = judge_reports(Store(), validate_judge.fn("small", "correct", "correct", 0.95))
    assert (current.lines, current.means, current.sentences) == (stored.lines, stored.means, stored.sentences)
    assert (current.confusion, current.passed) == (stored.confusion, stored.passed)


def test_versions_are_chosen_and_compared(owner: str) -> None:
    score(owner, {name: float(place % 2) for place, name in enumerate(TRUTH)}, version="w2", model="judge-2")
    html = page("correct", ("evaluator_version", "w2"))
    assert "not significantly better than chance: do not rely on it" in shown_text(html)
    rows = [row for row in table_rows(html) if row[:1] in (["v1"], ["w2"])]
    assert [row[:2] for row in rows] == [["w2", "judge-2"], ["v1", "judge-1"]]
    (first,) = (row for row in rows if row[0] == "v1")
    assert "0.250" in first and "0.002000" in first and "0.0%" in first
    from evalflows.tasks.score import validate_judge

    validate_judge.fn("small", "correct", "correct", 0.95)
    score(owner, dict.fromkeys(TRUTH, 1.0), metric="another", version="x1", model="judge-3")
    html = str(judges_page(Site(store=Store(), links=Links()), Query.of()).body)
    names = [row[0] for row in table_rows(html)][1:4]
    assert names == ["2 correct rejected", "correct", "another"], "what needs action first, older versions folded"
    assert html.count('class="member"') == 1
    with pytest.raises(InputError, match="evaluator_version 'x3', which has no labels"):
        page("correct", ("evaluator_version", "x3"))


def labelled_pairs() -> None:
    """Compare 24 pairs of answers in both orders, and label each: b is better in 16."""
    examples = [f"q{place:02}" for place in range(24)]
    ids = [experiment(name, {one: f"{name} {one}" for one in examples}, place=place) for place, name in enumerate("ab")]
    row = compared(ids, by_text, both_orders=True, name="letters")
    Store().seal(row.comparison_id, ("judgements", "comparison_sets"))
    labels = [
        {"experiment": "b", "other_experiment": "a", "example_id": one, "metric": "by_text", "winner": winner}
        for one, winner in zip(examples, ["b"] * 16 + ["a"] * 8, strict=True)
    ]
    label(labels)


@pytest.mark.slow
def test_pairs_are_compared_with_people_once_for_both_orders() -> None:
    labelled_pairs()
    html = page("by_text")
    text = shown_text(html)
    assert "24 labelled of 24 judged" in text
    assert "second better" in text and "first better" in text
    assert "/pairwise/" in html
    assert ["letters", "by_text", "flip share", "passed"] in [cells[:4] for cells in table_rows(html)], "its biases"
    (standing,) = judge_standings(Store())
    _, _, (subject,) = judge_record(Store(), "by_text")
    observed = current_report(Store(), subject).observed
    assert (standing.n_items, standing.bias) == (24, None)
    assert standing.agreement == observed["agreement"]["share"]


def test_a_judge_of_production_is_compared_on_traces() -> None:
    names = [f"t{place:02}" for place in range(24)]
    traces = [trace(name, {"question": f"asked {name}"}, f"answer {name}") for name in names]
    scores = [score_of_trace(name, "helpful", float(place % 4 > 0)) for place, name in enumerate(names)]
    produce(Store(), *traces, scores=scores)
    watch = evaluation_id("watch")
    Store().publish("watermarks", watch, [make_row("watermarks", evaluation_id=watch, name="watch", scope="traces")])
    given = {"metric": "helpful", "labeller": "ann"}
    label([{"trace_id": trace_id(name), "value": float(place % 3 > 0), **given} for place, name in enumerate(names)])
    html = page("helpful")
    text = shown_text(html)
    assert "helpful in watch on 2026-11-01: 24 labelled of 24 judged, by 1 person" in text
    assert "10 labels that disagree" in text and "judge: 1 (yes)" in text and "ann: 0 (no)" in text
    assert "answer t03" in text and "asked t03" in text
    for address in (f"/production/traces/{trace_id('t03')}", "/production/evaluations/watch", "subject=traces"):
        assert address in html


def test_the_list_has_judges_and_their_agreement(filled: str) -> None:
    site = Site(store=Store(), links=Links())

    def rows(*pairs: tuple[str, str]) -> list[list[str]]:
        return table_rows(judges_page(site, Query.of(pairs)).body)

    (health, standing) = (row for row in rows() if "judge-1" in row)
    assert health[0] == "correct" and "83%, kappa 0.57 60 items, 60 labels" in health
    assert standing[:4] == ["correct", "correct", "judge-1", "correct"] and standing[5] == "83.3%"
    assert not any("judge-1" in row for row in rows(("q", "other")))


def test_an_empty_store_is_no_error() -> None:
    text = shown_text(judges_page(Site(store=Store(), links=Links()), Query.of()).body)
    assert "No model has judged anything yet." in text and "No judge has human labels yet" in text
    with pytest.raises(InputError, match="judge 'nobody': not in"):
        page("nobody")
