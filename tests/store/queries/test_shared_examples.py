"""Shared examples: only what all experiments were asked, in the same words, can be compared."""

from typing import Any

import pytest
from matched import experiment, rows_of

from evalflows.engine.pairs import experiments_of
from evalflows.store.queries.values import Shared, shared_examples
from evalflows.store.store import Store


def asked(place: int, *examples: str, rows: list[dict[str, Any]] | None = None) -> str:
    return experiment(f"e{place}", dict.fromkeys(examples, "yes"), place=place, rows=rows or [])


def shared(*experiments: str) -> Shared:
    store = Store()
    return shared_examples(store, experiments_of(store, experiments))


def ids(found: Shared) -> list[str]:
    return [example.example_id for example in found.examples]


def test_those_that_one_does_not_have_are_absent_whichever_it_is() -> None:
    few, many = asked(0, "a", "b"), asked(1, "a", "b", "c", "d")
    for order in ((few, many), (many, few)):
        found = shared(*order)
        assert (ids(found), found.absent, found.changed) == (["a", "b"], 2, 0)


def test_of_several_experiments_every_one_must_have_it() -> None:
    found = shared(asked(0, "a", "b", "c"), asked(1, "b", "c", "d"), asked(2, "c", "b", "e"))
    assert (sorted(ids(found)), found.absent, found.left_out) == (["b", "c"], 3, 3)


def test_the_same_id_with_other_inputs_is_another_question() -> None:
    changed = [{"id": "b", "inputs": {"question": "something else?"}}]
    found = shared(asked(0, "a", "b"), asked(1, "a", "b", rows=[*rows_of(["a"]), *changed]))
    assert (ids(found), found.absent, found.changed, found.left_out) == (["a"], 0, 1, 1)


@pytest.mark.parametrize("only", [{"reference_outputs": "new"}, {"metadata": {"x": 1}}, {"split": "test"}], ids=str)
def test_what_else_has_changed_of_an_example_does_not_count(only: dict[str, Any]) -> None:
    found = shared(asked(0, "a", "b"), asked(1, "a", "b", rows=rows_of(["a", "b"], **only)))
    assert (ids(found), found.left_out) == (["a", "b"], 0)
    first = found.examples[0]
    assert (first.reference_outputs, first.metadata, first.split) == (None, None, None), "as the first one froze it"
