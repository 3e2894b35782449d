"""Names of metrics that are computed from repetitions: one pattern, in Python and in SQL."""

import pytest

from evalflows.specs.errors import base_metric, is_pass_k, pass_k_name
from evalflows.store.sql import connect

NAMES = {
    "right pass@2": "right",
    "right pass^10": "right",
    "a b pass@1": "a b",
    "right": "right",
    "my passes": "my passes",
    "right pass@": "right pass@",
    "right pass@2x": "right pass@2x",
    "rightpass@2": "rightpass@2",
}


@pytest.mark.parametrize(("name", "base"), NAMES.items())
def test_the_base_of_a_name_is_told_in_one_way(name: str, base: str) -> None:
    assert base_metric(name) == base
    assert is_pass_k(name) == (name != base)
    with connect() as catalog:
        assert catalog.execute("select base_metric(?)", [name]).fetchall() == [(base,)]


def test_a_name_that_is_made_has_its_base() -> None:
    assert pass_k_name("right", "pass@", 2) == "right pass@2"
    assert base_metric(pass_k_name("right", "pass^", 12)) == "right"
