"""Review: a person labels answers without seeing which system gave them, and what is given counts at once."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from judges_of_pairs import by_text
from labelled import judged, run_of, score
from matched import asked, compared, experiment
from production import produce, trace, trace_id
from production import score as score_of_trace

from evalflows.analysis.labels import judge_standings
from evalflows.analysis.reviewing import USD_PER_HOUR
from evalflows.dashboard.app import application, take_label
from evalflows.dashboard.datasets import take_reviewed
from evalflows.dashboard.links import Links, Proofs
from evalflows.dashboard.rendering import Query, Site
from evalflows.dashboard.review import review_page, review_start_page
from evalflows.specs.errors import InputError
from evalflows.store.queries.labels import effort_of, listed_batches
from evalflows.store.records import derived_id
from evalflows.store.store import Store

SAID = {"q0": 1.0, "q1": 1.0, "q2": 0.0, "q3": 1.0}
CURRENT = "select example_id, value, label, labeller, comment from current_labels order by example_id, labeller"


def address(subject: str, metric: str = "correct", by: str = "ann", **more: Any) -> Query:
    pairs = [(name, one) for name, value in more.items() for one in (value if isinstance(value, list) else [value])]
    return Query.of([("metric", metric), ("by", by), *pairs], {"subject": subject})


def shown(query: Query) -> str:
    return str(review_page(Site(store=Store(), links=Links()), query).body)


def item_of(html: str) -> str:
    return re.findall(r'data-item="(\w+)"', html)[0]


def give(query: Query, answer: str, item: str | None = None, comment: str | None = None) -> dict[str, Any]:
    fields = {"item": item or item_of(shown(query)), "answer": answer}
    return take_label(Store(), query, fields | ({"comment": comment} if comment else {}))


def answers(html: str) -> list[str]:
    return re.findall(r"(\w+ to q\d|\w+ says \w+)", html)


def in_random_order(owner: str, names: Sequence[str]) -> list[str]:
    """The examples by md5 of their runs' ids, the order of `labels next`, from another implementation."""
    lots = asked("select example_id from outputs where experiment_id = ? order by md5(run_id)", owner)
    return [name for (name,) in lots if name in names]


def test_a_page_shows_neither_system_nor_judge_and_a_label_counts_at_once() -> None:
    start = str(review_start_page(Site(store=Store(), links=Links()), Query.of()).body)
    assert "No experiments yet" in start
    owner = judged("secret-system", SAID, model="judge-model-x", comment="judge says fine", cost_usd=0.123)
    start = str(review_start_page(Site(store=Store(), links=Links()), Query.of()).body)
    assert (
        f'formaction="/review/{owner}"' in start
        and "0 of 4" in start
        and "4 labels estimate a share to within ±0.35" in start
    )
    html = shown(address(owner))
    assert "answer to q" in html
    for hidden in ("secret-system", "target of", "judge-model-x", "judge says", "0.123", owner, run_of(owner, "q0")):
        assert hidden not in html
    first = in_random_order(owner, [*SAID])[0]
    assert judge_standings(Store()) == []
    assert give(address(owner), "no", comment="It is Lyon.")["is_new"]
    assert asked(CURRENT) == [(first, 0.0, None, "ann", "It is Lyon.")]
    (standing,) = judge_standings(Store())
    assert (standing.n_labels, standing.agreement) == (1, float(SAID[first] == 0))


def test_the_question_is_stored_with_each_label_and_another_question_makes_another_label() -> None:
    owner = judged("small", SAID)
    query = address(owner)
    item = item_of(shown(query))
    written = address(owner, question="Is it right?")
    assert "Is it right?" in shown(written)
    given = [give(one, "yes", item)["is_new"] for one in (query, query, written, written)]
    assert given == [True, False, True, False]
    stored = asked("select metadata ->> 'question' from labels order by recorded_at")
    assert stored == [("correct",), ("Is it right?",)]
    assert asked("select metadata ->> 'question' from current_labels") == [("Is it right?",)]


@pytest.mark.slow
def test_a_random_review_follows_the_order_of_the_fair_sample() -> None:
    owner = judged("small", SAID)
    query = address(owner, order="random")
    seen = []
    for number, _ in enumerate(SAID, start=1):
        html = shown(query)
        seen.append(answers(html)[0].removeprefix("answer to "))
        ahead = shown(Query.of(parse_qsl(unescape(re.findall(r'data-ahead="\?([^"]*)"', html)[0])), {"subject": owner}))
        give(query, "yes")
        assert ahead == shown(query), "what is fetched before is the page as it is after the label"
        assert f"{number} of 4" in ahead
    assert seen == in_random_order(owner, [*SAID])
    assert "Everything is labelled" in shown(query)
    assert asked("select distinct is_fair, metadata ->> 'order' from current_labels") == [(True, "random")]


def test_the_worst_come_first_and_are_no_random_sample() -> None:
    owner = judged("small", {f"q{i}": i / 10 for i in range(10)}, data_type="NUMERIC")
    query = address(owner, order="worst", low="0", high="1.5")
    seen = []
    for _ in range(3):
        seen.append(answers(shown(query))[0].removeprefix("answer to "))
        give(query, "0.5")
    assert seen == ["q0", "q1", "q2"]
    first_of_all = in_random_order(owner, [f"q{i}" for i in range(10)])[0]
    fair = {name for (name,) in asked("select example_id from labels where metadata ->> 'drawn' = 'fair'")}
    assert fair <= {first_of_all}


def test_skipped_items_come_again_only_if_asked_for() -> None:
    owner = judged("small", {"q0": 1.0, "q1": 0.0})
    first = item_of(shown(address(owner)))
    second = item_of(shown(address(owner, skip=[first])))
    assert first != second
    html = shown(address(owner, skip=[first, second]))
    assert "You have skipped everything that is left" in html
    assert "skip=" not in re.findall(r'href="([^"]*)">Show them again', html)[0]


@pytest.mark.slow
def test_pairs_are_shown_in_a_drawn_order_that_is_stored() -> None:
    names = [f"q{i}" for i in range(12)]
    old = experiment("old", dict.fromkeys(names, "old says short"), place=0)
    new = experiment("new", dict.fromkeys(names, "new says long"), place=1)
    comparison = compared([old, new], by_text)
    query = address(comparison.comparison_id, by_text.__name__)
    firsts = set()
    for _ in names:
        html = shown(query)
        assert answers(html) == answers(shown(query)), "the order stays"
        firsts.add(answers(html)[0])
        give(query, "first" if answers(html)[0].startswith("old") else "second")
    assert len(firsts) == 2, "left and right are drawn"
    rows = asked("select value, label, metadata ->> 'shown_first' from current_labels")
    assert {row[:2] for row in rows} == {(1.0, "left")}, "the older one won, wherever it was shown"
    assert {row[2] for row in rows} == {"left", "right"}
    (standing,) = judge_standings(Store())
    assert standing.agreement == 1.0


def test_labels_of_a_category_are_those_that_the_judge_gives() -> None:
    owner = judged("tone", {"q0": "rude", "q1": "polite", "q2": 'odd "one"\n'}, metric="tone")
    query = address(owner, "tone")
    html = shown(query)
    tokens = dict(zip(("odd", "polite", "rude"), re.findall(r'data-answer="(\w+)" data-key="\d"', html), strict=True))
    give(query, tokens["odd"])
    assert asked("select value, label from labels") == [(None, 'odd "one"\n')]
    with pytest.raises(InputError, match="value: got 'kind', wanted one of"):
        give(query, "kind")


def test_a_scale_has_keys_and_its_bounds() -> None:
    spec = json.dumps({"metrics": {"stars": {"range": [1, 5]}}})
    owner = experiment("rated", {"q0": "a", "q1": "b"}, spec=spec)
    score(owner, {"q0": 2.0, "q1": 4.0}, metric="stars", data_type="NUMERIC")
    query = address(owner, "stars")
    assert re.findall(r'data-answer="(\d)" data-key="(\d)"', shown(query)) == [(n, n) for n in "12345"]
    give(query, "5")
    assert asked("select value, data_type from labels") == [(5.0, "NUMERIC")]
    with pytest.raises(InputError, match="wanted one of: 1, 2, 3, 4, 5"):
        give(query, "6")


@pytest.mark.slow
def test_several_people_are_shown_where_they_disagree() -> None:
    owner = judged("small", SAID)
    for by, said in (("ann", "yes no yes no"), ("bob", "yes yes yes no")):
        for answer in said.split():
            give(address(owner, by=by, order="random"), answer, comment=f"{by} thinks <b>")
    second = in_random_order(owner, [*SAID])[1]
    site = Site(store=Store(), links=Links())
    html = str(review_start_page(site, Query.of([("subject", owner), ("metric", "correct")])).body)
    assert "1 labelled differently" in html
    assert second in html.partition("labelled differently")[2]
    assert "ann thinks &lt;b&gt;" in html
    # of 8 values, 5 yes and 3 no; 2 of the 8 ordered pairs differ: alpha = 1 - 7 * 2 / (2 * 5 * 3)
    assert f"alpha {1 - 14 / 30:.2f}" in html or f"alpha {1 - 14 / 30:.3f}" in html
    assert "4 of 4" in html


def test_items_of_others_can_be_left_to_them() -> None:
    owner = judged("small", {"q0": 1.0, "q1": 0.0})
    give(address(owner, by="ann", order="random"), "yes")
    html = shown(address(owner, by="bob", order="random", others="leave"))
    assert answers(html)[0].removeprefix("answer to ") == in_random_order(owner, ["q0", "q1"])[1]


def test_wrong_addresses_are_refused_in_one_line() -> None:
    owner = judged("small", SAID)
    for query, message in (
        (address("nothing"), "experiment 'nothing'"),
        (address(owner, by=" "), "by: got none, wanted your name"),
        (address(owner, by="x" * 101), "by: got 101 characters"),
        (address(owner, order="best"), "order: got 'best'"),
        (address(owner, item="zz"), "item: got 'zz'"),
    ):
        with pytest.raises(InputError, match=message):
            shown(query)


def test_traces_are_labelled_by_a_condition_that_a_page_of_ours_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    produced = [
        trace(f"t{i}", f"question {i}", f"answer {i}", minute=i, session="odd" if i % 2 else "even") for i in range(6)
    ]
    step = replace(
        trace("t1", "searched for", "found this"), span_id="step", parent_id=produced[1].span_id, name="search"
    )
    scores = [score_of_trace(f"t{i}", "helpful", float(i > 2), data_type="BOOLEAN", cost_usd=0.001) for i in range(6)]
    produce(Store(), *produced, step, scores=scores)
    proofs, where = Proofs(), "session_id = 'odd'"
    site = Site(store=Store(), links=Links(proofs=proofs))
    start = str(review_start_page(site, Query.of([("subject", "traces"), ("where", where)])).body)
    assert 'action="/review/traces"' in start and proofs.of_form in start and 'value="helpful"' in start
    unproved = address("traces", "helpful", where=where, since="2026-11-01")
    with pytest.raises(InputError, match="where: this condition came with the address and is not run"):
        review_page(site, unproved)
    query = address("traces", "helpful", where=where, since="2026-11-01", order="random", proof=proofs.of(where))
    monkeypatch.setenv(USD_PER_HOUR, "36")
    seen = []
    for seconds in ("10", "20.04", "99999"):
        html = str(review_page(site, query).body)
        fields = dict(re.findall(r'type="hidden" name="(trace|drawn|drawn_from)" value="(\w+)"', html))
        assert (fields["drawn"], fields["drawn_from"]) == ("fair", "selection") and "yes" in html and "of 3;" in html
        assert "0.001" not in html and "helpful" in html
        name = next(f"t{i}" for i in range(6) if trace_id(f"t{i}") == fields["trace"])
        assert f"question {name[1]}" in html and f"answer {name[1]}" in html
        assert ("searched for" in html, "found this" in html) == (name == "t1", name == "t1")
        seen.append(name)
        given = {**fields, "item": item_of(html), "answer": "yes", "seconds": seconds}
        assert take_label(Store(), query, given)["is_new"]
        assert not take_label(Store(), query, given)["is_new"]
    assert sorted(seen) == ["t1", "t3", "t5"] and "Everything is labelled." in str(review_page(site, query).body)
    rows = asked(
        """select subject_kind, trace_id, value, labeller, source, seconds, round(cost_usd, 4) from trace_labels
           order by seconds"""
    )
    assert rows == [
        ("trace", trace_id(name), 1.0, "ann", "review", seconds, round(seconds / 100, 4))
        for name, seconds in zip(seen, (10.0, 20.0, 3600.0), strict=True)
    ]
    assert asked("select distinct is_fair from current_labels") == [(False,)], "traces of a condition are no sample"
    html = str(review_page(site, address("traces", "helpful", since="2026-11-01", by="bob")).body)
    assert 'name="drawn_from" value="traces since 2026-11-01"' in html
    (batch,) = listed_batches(Store())
    assert (batch.n_timed, batch.median_seconds, round(batch.usd_per_label or 0, 2)) == (3, 20.0, 12.1)
    taken = take_reviewed(Store(), query, {"item": "x", "trace": trace_id("t1"), "dataset": "hard"})
    assert "hard" in str(taken)
    start = str(review_start_page(site, Query.of([("subject", "traces"), ("metric", "helpful")])).body)
    assert "Fewer than two people have labelled it." in start and 'class="number">3</td>' in start
    with pytest.raises(InputError, match="trace_id: got 'nope', wanted a trace in"):
        take_label(Store(), query, {"trace": "nope", "item": item_of_trace("nope"), "answer": "yes"})
    other = address("traces", "polite", kind="yes_no", since="2026-11-01", order="random")
    give_to = {"trace": trace_id("t0"), "item": item_of_trace(trace_id("t0")), "answer": "no"}
    assert take_label(Store(), other, give_to)["is_new"]
    known = address("traces", "polite", since="2026-11-01", by="bob")
    give_to = {"trace": trace_id("t1"), "item": item_of_trace(trace_id("t1")), "answer": "yes"}
    assert take_label(Store(), known, give_to)["is_new"], "its kind is that of the labels so far"
    with pytest.raises(InputError, match="seconds: got -1, wanted at least 0"):
        take_label(Store(), query, {"trace": trace_id("t1"), "item": "x", "answer": "yes", "seconds": "-1"})


def item_of_trace(identity: str) -> str:
    return derived_id("review", identity, None)


def test_what_a_label_took_and_cost_stands_beside_a_verdict_of_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = judged("small", SAID, cost_usd=0.002)
    query = address(owner)
    give(query, "yes")
    effort = effort_of(Store(), "small", "correct", "correct")
    assert effort.sentence is None and effort.usd_per_verdict == 0.002
    monkeypatch.setenv(USD_PER_HOUR, "18")
    take_label(Store(), query, {"item": item_of(shown(query)), "answer": "no", "seconds": "8"})
    effort = effort_of(Store(), "small", "correct", "correct")
    assert effort.sentence == "a label took 8 s (median of 1) and cost 0.04 USD; a verdict of the judge cost 0.002 USD"
    monkeypatch.setenv(USD_PER_HOUR, "abc")
    with pytest.raises(InputError, match=f"{USD_PER_HOUR}.*'abc'"):  # before somebody has labelled
        application(Store())
