"""The pages of pairwise comparisons: figures of the records, filters, and hostile answers as text."""

import re
from collections.abc import Sequence

import pytest
from compared import Compared, run_id
from judges_of_pairs import by_text
from matched import compared, experiment
from page_tables import shown_text, table_rows

from evalflows.dashboard.comparisons import comparisons_page
from evalflows.dashboard.links import Links, NoLinks
from evalflows.dashboard.pairs import comparison_page, pair_page
from evalflows.dashboard.rendering import Query, Site
from evalflows.reports.comparison import comparison_report
from evalflows.specs.errors import InputError
from evalflows.store.store import Store

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \u202eevil \x1b[31m"


def fill() -> None:
    """Two experiments judged in both orders on seven examples, each with another outcome."""
    one = Compared(Store(), examples=[f"q{place}" for place in range(7)], both_orders=True)
    for place, verdicts in enumerate(
        (
            ("left", "left"),
            ("right", "right"),
            ("tie", "tie"),
            ("tie", "left"),
            ("left", "right"),
            ("left", "failed"),
            ("right", "right"),
        )
    ):
        one.judge(f"q{place}", *verdicts)
    one.write()


def page(identity: str = "cmp-1", *pairs: tuple[str, str], links: Links | None = None) -> str:
    site = Site(store=Store(), links=links or Links())
    return str(comparison_page(site, Query.of(pairs, {"id": identity})).body)


def shown_examples(html: str) -> list[str]:
    return re.findall(r"<strong>(.*?)</strong>", html)


judged = pytest.mark.usefixtures("filled")


@judged
def test_pairs_are_filtered_by_their_outcome() -> None:
    for outcome, examples in {
        "left": ["q0"],
        "right": ["q1", "q6"],
        "tie": ["q2"],
        "half": ["q3"],
        "flipped": ["q4"],
        "missing": ["q5"],
        "": ["q0", "q1", "q2", "q3", "q4", "q5", "q6"],
    }.items():
        html = page("cmp-1", ("outcome", outcome))
        assert shown_examples(html) == examples
    chips = shown_text(html[html.index('aria-label="Outcomes"') :].partition("</ul>")[0])
    for chip in ("all 7", "old better 1", "new better 2", "tie 1", "half tie 1", "flipped 1", "missing 1"):
        assert chip in chips


@judged
def test_a_pair_shows_both_answers_and_what_was_said_in_each_order() -> None:
    html = page("cmp-1", ("outcome", "flipped"))
    text = shown_text(html)
    assert "old on q4" in text and "new on q4" in text
    assert "with old shown first: left, left first" in text
    assert "with new shown first: right, right first" in text
    assert re.findall(r"<mark>(.*?)</mark>", html) == ["old", "new"]
    assert "no verdict: boom" in shown_text(page("cmp-1", ("outcome", "missing")))


@judged
def test_a_search_finds_answers_inputs_and_comments() -> None:
    assert shown_examples(page("cmp-1", ("q", "NEW on q3"))) == ["q3"]
    assert shown_examples(page("cmp-1", ("q", "q2?"))) == ["q2"]
    assert shown_examples(page("cmp-1", ("q", "tie, left first"))) == ["q2", "q3"]
    assert "No pair matches" in page("cmp-1", ("q", "100%_\\'"))


@judged
def test_one_pair_has_a_page_with_everything() -> None:
    runs = [("metric", "preference"), ("left", run_id(0, "q0")), ("right", run_id(1, "q0"))]
    site = Site(store=Store(), links=Links())
    text = shown_text(pair_page(site, Query.of(runs, {"id": "cmp-1"})).body)
    for part in (
        "old better",
        "old on q0",
        "new on q0",
        "judged in both orders",
        "old 1.000, new 0.000",
        "0.500000 USD",
    ):
        assert part in text
    with pytest.raises(InputError, match="not in old and new by preference"):
        pair_page(site, Query.of([*runs[:2], ("right", "other")], {"id": "cmp-1"}))


def test_hostile_answers_are_text() -> None:
    one = Compared(Store())
    one.answer(0, "q0", HOSTILE)
    one.judge("q0", "left", comment=HOSTILE)
    one.write()
    html = page()
    assert "<script" not in html and "<img" not in html
    assert "\u202e" not in html and "\x1b" not in html
    assert "<script>alert(1)</script>" in shown_text(html)


@pytest.mark.slow
def test_win_rates_ratings_and_a_matrix_are_those_of_the_report() -> None:
    examples = [f"q{place}" for place in range(12)]
    given = (("good", "b"), ("fair", "a"), ("poor", "Z"))
    ids = [
        experiment(name, {one: f"{start} {one}" for one in examples}, place=place)
        for place, (name, start) in enumerate(given)
    ]
    row = compared(ids, by_text, both_orders=True, name="tournament")
    html, report = page(row.comparison_id), comparison_report(Store(), row.comparison_id)
    cells = table_rows(html)
    assert ["", "good", "fair", "poor"] in cells
    assert next(line for line in cells if line[:1] == ["good"]) == ["good", "·", "100% ▲", "100% ▲"]
    assert ["poor", "0% ▼", "0% ▼", "·"] in cells
    rate = next(one for one in report.win_rates if one.is_overall and {one.candidate, one.baseline} == {"good", "poor"})
    assert any(line[1:3] == [rate.candidate, rate.baseline] and line[4] == rate.rate_text for line in cells)
    best = report.ranking[0]
    assert any(line[:4] == ["by_text", best.rank_text, "good", best.rating_text] for line in map(_without_badge, cells))
    for bias in report.biases:
        assert bias.message in shown_text(html)
    one_pair = shown_examples(page(row.comparison_id, ("system", ids[0]), ("against", ids[2])))
    assert len(one_pair) == len(examples)


def _without_badge(cells: Sequence[str]) -> list[str]:
    return [cell.removesuffix(" weak prior") for cell in cells]


def test_a_list_shows_comparisons_newest_first() -> None:
    site = Site(store=Store(), links=Links())
    assert "No comparisons yet" in comparisons_page(site, Query.of()).body
    for place, name in enumerate(("first", "second")):
        one = Compared(Store(), comparison_id=f"cmp-{place}", name=name)
        one.judge("q0", "left")
        one.write()

    def names(*pairs: tuple[str, str]) -> list[str]:
        rows = table_rows(comparisons_page(site, Query.of(pairs)).body)
        return [row[0] for row in rows[1:]]

    assert names() == ["second", "first"]
    assert names(("q", "FIRST")) == ["first"]
    assert names(("q", "old")) == ["second", "first"]
    assert names(("state", "running")) == []


@judged
def test_a_report_of_one_file_has_no_links() -> None:
    html = page("cmp-1", links=NoLinks())
    assert not re.findall(r"(?:href|action|data-load)=", html)
    assert "old on q4" in shown_text(html)
