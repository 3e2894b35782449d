"""One example of a comparison: everything of it, and its neighbours in the filter and order of the list."""

from urllib.parse import parse_qs, urlsplit

import pytest
from answered import answered
from page_text import Seen, seen

from evalflows.dashboard.compare import compare_example_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Query, Site
from evalflows.store.store import Store

EXAMPLES = [f"q{place}" for place in range(4)]
BASE, CANDIDATE = "exp-00-old", "exp-01-new"


pytestmark = pytest.mark.usefixtures("filled")


def fill() -> None:
    """Two repetitions of two systems, and a later experiment on the same dataset."""
    old = {"right": {one: [1.0, 1.0] for one in EXAMPLES}}
    new = {"right": dict(zip(EXAMPLES, ([0.5, 0.5], [0.0, 0.0], [1.0, 1.0], [None, 1.0]), strict=True))}
    for place, (name, scores) in enumerate((("old", old), ("new", new), ("later", old))):
        answers = {one: [f"{name} says a of {one}", f"{name} says b of {one}"] for one in EXAMPLES}
        answered(name, answers, scores, place=place)


def page(example: str, **values: str) -> Seen:
    given = {"baseline": [BASE], "candidate": [CANDIDATE], "id": [example], **{k: [v] for k, v in values.items()}}
    return seen(compare_example_page(Site(store=Store(), links=Links()), Query(given)).body)


def test_answers_of_all_repetitions_stand_beside_what_was_said_of_them() -> None:
    shown = page("q1")
    for said in ("q1?", "old says a of q1", "says b of q1", "right says 0.0 of q1", "judged by judge-model", "search"):
        assert said in shown.text, said
    assert "▼ regressed right 1.000 → 0.000" in shown.text
    assert "no verdict on q3" in page("q3").text
    assert "del" not in shown.tags and "Repetition 2" in shown.text
    assert "del" in page("q1", words="1").tags


def test_next_and_previous_follow_the_filter_and_the_order() -> None:
    links = {text: parse_qs(urlsplit(address).query) for text, address in page("q0", metric="right").links}
    assert links["previous"]["id"] == ["q1"], "the worst comes first"
    assert links["previous"]["metric"] == ["right"]
    found = dict(page("q1", metric="right", change="regressed").links)
    assert "previous" not in found and parse_qs(urlsplit(found["next"]).query)["change"] == ["regressed"]
    assert "not among the 2 of the list" in page("q2", metric="right", change="regressed").text


def test_other_experiments_are_its_past_and_within_the_table_it_has_no_neighbours() -> None:
    assert ["later", "later"] in [row[:2] for row in page("q0").rows]
    assert not {"next", "previous"} & {text for text, _ in page("q0", fragment="1").links}
