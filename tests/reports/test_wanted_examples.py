"""Which examples a table of several systems shows, and in which order."""

from typing import Any

import pytest

from evalflows.analysis.changes import Change, ExampleChange, SharedExample
from evalflows.reports.side_by_side import RowFilter, wanted_examples

GAINS: dict[str, tuple[float | None, float | None]] = {
    "d": (-0.5, 0.0),
    "a": (0.0, 0.0),
    "c": (0.2, -0.9),
    "b": (None, None),
    "e": (1.0, None),
}
"""By example, in the order of the dataset: the gain in each of two candidates; None: missing."""


def change(example: str, candidate: str, gain: float | None) -> ExampleChange:
    kind: Change = "missing" if gain is None else "same" if not gain else "improved" if gain > 0 else "regressed"
    fields: dict[str, Any] = {"position": 0, "value": gain, "baseline_value": 0.0, "label": None}
    fields |= {"baseline_label": None, "missing": 0, "baseline_missing": 0}
    return ExampleChange(
        candidate_experiment_id=candidate, metric="m", example_id=example, change=kind, gain=gain, **fields
    )


CHANGES = {
    example: [change(example, name, gain) for name, gain in zip(("x", "y"), gains, strict=True)]
    for example, gains in GAINS.items()
}
EXAMPLES = [
    SharedExample(example_id=example, position=place, split="odd" if place % 2 else "even", candidates=["x", "y"])
    for place, example in enumerate(GAINS)
] + [SharedExample(example_id="f", position=5, split=None, candidates=["y"])]


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        ({}, "cdaebf"),  # by the lowest gain; missing ones, then those without a change last
        ({"sort": "best"}, "ecdabf"),
        ({"sort": "position"}, "dacbef"),
        ({"sort": "example"}, "abcdef"),
        ({"candidate": "x"}, "daceb"),  # f is not among x's examples
        ({"candidate": "x", "sort": "best"}, "ecadb"),
        ({"change": "regressed"}, "cd"),
        ({"change": "regressed", "candidate": "x"}, "d"),
        ({"change": "missing"}, "be"),
        ({"split": "odd"}, "ab"),
        ({"split": "none"}, ""),
    ],
)
def test_wanted_examples_in_their_order(wanted: dict[str, Any], order: str) -> None:
    assert wanted_examples(EXAMPLES, CHANGES, RowFilter(**wanted)) == [*order]
