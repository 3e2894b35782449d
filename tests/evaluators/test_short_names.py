"""The evaluators that a spec names by a short name."""

import inspect

import pytest

from evalflows import evaluators
from evalflows.evaluators import PAIRWISE, SHORT_NAMES
from evalflows.evaluators.binding import OFFERED, bind

NEEDED = {
    "regex": {"pattern": "a"},
    "keyword_safety": {"blocked": ["a"]},
    "recorded_preference": {"path": "votes.jsonl"},
}


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_each_is_a_function_of_its_name_that_can_be_bound_and_says_what_it_cannot_see(name: str) -> None:
    function = getattr(evaluators, name)
    scope = "run" if name in ("label_f1", "cost_per_solved", "corpus_bleu") else "pair" if name in PAIRWISE else "item"
    assert bind(function, settings=NEEDED.get(name), scope=scope).name == name  # type: ignore[arg-type]
    available = {*OFFERED["item"], *OFFERED["pair"], *OFFERED["run"]}
    settings = [p for p in inspect.signature(function).parameters.values() if p.name not in available]
    assert all(p.kind is p.KEYWORD_ONLY for p in settings)
    if name not in ("contains", "exact_match"):
        assert "cannot see" in " ".join(inspect.getdoc(function).split())  # type: ignore[union-attr]
