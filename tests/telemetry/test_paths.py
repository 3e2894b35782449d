"""Paths into traces, as mappers and samples name them."""

from typing import Any

import pytest
from made_traces import BEGAN, observation

from evalflows.specs.errors import InputError
from evalflows.telemetry.views import at_path, trace_view

TRACE = trace_view(
    [
        observation("t0", input='{"question": "why?", "history": ["a", "b"]}', attributes={"session.id": "s1"}),
        observation("t0", "x", parent="root", type="retriever", output='["one", "two"]', began=BEGAN),
        observation("t0", "y", parent="root", type="retriever", output='["three"]', began=BEGAN),
    ]
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("output", "answer"),
        ("input.question", "why?"),
        ("input.history[0]", "a"),
        ("input.history[2]", None),
        ("input.missing.deeper", None),
        ("session_id", "s1"),
        ("observations[type=retriever].output", [["one", "two"], ["three"]]),
        ("observations[type=tool].output", []),
        ("observations.name", ["user-query"] * 3),
    ],
)
def test_a_path_gives_what_is_there_or_none(path: str, value: Any) -> None:
    assert at_path(TRACE, path) == value


@pytest.mark.parametrize("path", ["", "a b", "a..b", "a.", "[0]", "output[", "a[0]b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="path"):
        at_path(TRACE, path)
