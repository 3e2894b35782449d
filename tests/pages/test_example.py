"""The page of an example shows everything about it, harmless whatever it holds."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from answered import answered
from page_text import Seen, seen

from evalflows.dashboard.experiments import example_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import ON_PAGE, Query, Site
from evalflows.specs.errors import InputError
from evalflows.store.records import to_json
from evalflows.store.store import Store

Make = Callable[..., Any]
HOSTILE = "<script>alert(1)</script> \x1b[31m \u202egnp.exe [x](javascript:alert(1)) =HYPERLINK(1)"
ROWS = [
    {
        "id": one,
        "inputs": {"question": f"{one}: {HOSTILE}"},
        "outputs": {"answer": "42"},
        "split": "hard",
        "cluster": "doc",
    }
    for one in ("q0", "q 1/ä", "q2")
]
EXAMPLE = "q 1/ä"


def fill() -> str:
    """Two repetitions: one of a million characters, with steps and a spread judge, one that failed in user code."""
    answers = {"q0": ["x", "x"], EXAMPLE: ["y" * 1_000_000, "z"], "q2": ["x", "x"]}
    scores = {"right": {EXAMPLE: [0.25, None]}}
    identity = answered("bot", answers, scores, rows=ROWS)
    store = Store()
    outputs = store.read("outputs", identity)
    steps = [
        {"id": "a", "parent": None, "kind": "chain", "name": "plan", "inputs": {"q": HOSTILE}, "latency_s": 0.5},
        {"id": "b", "parent": "a", "kind": "tool", "name": "search", "error": "no index"},
    ]
    broken = {"status": "failed", "outputs": None, "error": "KeyError: 'x'", "error_trace": "app.py:3 answer"}
    changed = [
        replace(one, steps=to_json(steps)) if one.repetition == 0 else replace(one, **broken)
        for one in outputs
        if one.example_id == EXAMPLE
    ]
    store.publish("outputs", identity, [one for one in outputs if one.example_id != EXAMPLE] + changed)
    scored = [
        replace(one, repeats=5, spread=0.125) if one.repetition == 0 else one
        for one in store.read("judgements", identity)
    ]
    store.publish("judgements", identity, scored)
    return identity


@pytest.fixture
def identity() -> str:
    return fill()


def page(identity: str, example: str = EXAMPLE, **values: str) -> tuple[str, Seen]:
    given = {"experiment": identity, "id": example, **values}
    body = example_page(
        Site(store=Store(), links=Links()), Query({name: [value] for name, value in given.items()})
    ).body
    return body, seen(str(body))


def test_everything_of_an_example_is_there_harmless_and_clipped(filled: str) -> None:
    body, shown = page(filled)
    for text in (
        *("q 1/ä: <script>alert(1)</script>", "42", "hard", "doc", "repetition 1", "repetition 2"),
        *("KeyError: 'x'", "app.py:3 answer", "plan", "search", "no index", "judge-model"),
        *("right says 0.25 of q 1/ä", "judged 5 times, standard deviation 0.125", f"no verdict on {EXAMPLE}"),
    ):
        assert text in shown.text, text
    assert "<script>" not in body
    assert "\x1b" not in body and "\u202e" not in body
    assert not [address for _, address in shown.links if not address.startswith("/")]
    assert f"{1_000_000 - ON_PAGE:,} more characters" in shown.text
    assert len(body) < 2 * ON_PAGE


def test_its_neighbours_are_links(filled: str) -> None:
    body, shown = page(filled)
    assert 'rel="prev"' in body and 'rel="next"' in body
    links = dict(shown.links)
    assert links["previous"].endswith("example?id=q0")
    assert links["next"].endswith("example?id=q2")
    assert "2 of 3" in shown.text
    first, _ = page(filled, "q0")
    assert 'rel="prev"' not in first
    fragment, _ = page(filled, fragment="1")
    assert 'rel="next"' not in fragment


def test_labels_of_people_are_shown(identity: str, make: Make) -> None:
    run = next(one.run_id for one in Store().read("outputs", identity) if one.example_id == EXAMPLE)
    label = {"subject_kind": "run", "subject_id": run, "experiment_id": identity, "metric": "right"}
    row = make("labels", batch_id="labels-1", labeller="ann", label="no", comment="wrong <b>", **label)
    Store().append("labels", "labels-1", "p", [row])
    _, shown = page(identity)
    (found,) = [cells for cells in shown.rows if cells[:2] == ["right", "no"]]
    assert found[2:5] == ["ann", "1", "wrong <b>"]


def test_its_past_is_by_experiment(identity: str) -> None:
    answered("bot-2", {one["id"]: "x" for one in ROWS}, {"right": {EXAMPLE: 1.0}}, place=1, rows=ROWS)
    _, shown = page(identity)
    past = [cells for cells in shown.rows if cells and cells[0].startswith("bot")]
    assert [(cells[0], cells[3]) for cells in past] == [("bot-2", "1.000"), ("bot this one", "0.250 1 missing")]


def test_an_unknown_example_is_named(filled: str) -> None:
    with pytest.raises(InputError, match="example 'nope': in none of the experiments"):
        page(filled, "nope")
    with pytest.raises(InputError, match="id: got none"):
        example_page(Site(store=Store(), links=Links()), Query({"experiment": [filled]}))


def test_steps_that_are_no_steps_are_no_fault(identity: str) -> None:
    outputs = Store().read("outputs", identity)
    odd = json.dumps([1, None, {"parent": ["x"], "id": {}}, {"name": 3, "latency_s": "long"}])
    Store().publish("outputs", identity, [replace(one, steps=odd) for one in outputs])
    _, shown = page(identity)
    assert "2 steps" in shown.text
