"""Steps of a run, whatever a target noted in them."""

import json

import pytest

from evalflows.dashboard.rendering import steps_of


def test_a_child_stands_below_its_parent() -> None:
    notes = [
        {"id": "a", "parent": None, "kind": "chain", "name": "plan", "inputs": {"q": 1}, "latency_s": 0.5},
        {"id": "b", "parent": "a", "kind": "tool", "name": "search", "outputs": ["x"], "error": "down", "mark": 7},
    ]
    first, second = steps_of(json.dumps(notes))
    assert (first.depth, first.kind, first.name, first.latency_s) == (0, "chain", "plan", 0.5)
    assert first.contents == [("inputs", '{"q": 1}')]
    assert (second.depth, second.error) == (1, "down")
    assert second.contents == [("outputs", '["x"]'), ("mark", "7")]


@pytest.mark.parametrize("content", [None, "null", "{}", '"text"', "[1, null, []]"])
def test_what_is_no_step_is_left_out(content: str | None) -> None:
    assert steps_of(content) == []
