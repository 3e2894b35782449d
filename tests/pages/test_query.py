"""The parameters of an address."""

import pytest

from evalflows.dashboard.links import Links, NoLinks, query_text
from evalflows.dashboard.rendering import Query
from evalflows.specs.errors import InputError


def test_names_have_several_values_and_empty_ones_do_not_count() -> None:
    query = Query.of([("tag", "a"), ("tag", ""), ("tag", "b"), ("q", "")], {"id": "exp-1"})
    assert query.all("tag") == ["a", "b"]
    assert query.text("tag") == "b"
    assert query.text("q") is None
    assert query.wanted("id") == "exp-1"
    with pytest.raises(InputError, match="q: got none, wanted a value"):
        query.wanted("q")


def test_choices_and_numbers_are_checked() -> None:
    query = Query.of([("sort", "worst"), ("page", "3")])
    assert query.choice("sort", ("best", "worst"), "best") == "worst"
    assert query.choice("order", ("up", "down"), "down") == "down"
    assert query.number("page") == 3
    assert query.number("size", 50) == 50
    with pytest.raises(InputError, match="sort: got 'worst', wanted one of best, first"):
        query.choice("sort", ("best", "first"), "best")
    for text in ("0", "-1", "1.5", "x", "²", "9" * 5000):
        with pytest.raises(InputError, match=r"page: got .*, wanted a whole number"):
            Query.of([("page", text)]).number("page")


def test_links_quote_what_they_contain() -> None:
    links = Links()
    assert links.experiment("a/b?c") == "/experiments/a%2Fb%3Fc"
    assert links.compare("x", "y&z", "w", metric=None) == "/compare?baseline=x&candidate=y%26z&candidate=w"
    assert links.example("e", 'a"b', 2) == "/experiments/e/example?id=a%22b&repetition=2"
    assert query_text(a="", b=None, c=[], d=0) == "d=0"
    assert NoLinks().experiment("x") is None
