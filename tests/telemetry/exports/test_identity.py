"""Ids and times of exports in the store's form."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.specs.errors import InputError
from evalflows.telemetry.exports import ended_at_of, moment_of, span_id_of, trace_id_of

AT = datetime(2026, 1, 1, 10, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01T10:00:00.250Z",
        "2026-01-01 10:00:00.250 UTC",
        "2026-01-01T12:00:00.250+02:00",
        1_767_261_600.25,
        1_767_261_600_250_000_000,
        "1767261600250",
        AT.astimezone(timezone(timedelta(hours=5))),
    ],
)
def test_a_time_is_read_in_utc(value: Any) -> None:
    moment = moment_of(value, "at")
    assert moment == AT
    assert moment.tzinfo is UTC


@pytest.mark.parametrize("value", ["soon", True, [], {}, 1e300, float("nan"), float("inf"), "2026-02-30"])
def test_what_is_no_time_is_refused_in_one_line(value: Any) -> None:
    with pytest.raises(InputError, match=r"^at: got .+, wanted a time such as 2026-01-31T12:00:00Z$"):
        moment_of(value, "at")


@given(st.text())
def test_every_id_has_the_store_s_form_and_stays(text: str) -> None:
    for make, digits in ((trace_id_of, 32), (span_id_of, 16)):
        made = make("langfuse", text)
        assert (len(made), set(made) <= set("0123456789abcdef"), any(digit != "0" for digit in made)) == (
            digits,
            True,
            True,
        )
        assert make("langfuse", made) == made


def test_ids_of_other_projects_do_not_meet() -> None:
    assert trace_id_of("langfuse", "1") != trace_id_of("rows", "1")
    assert trace_id_of("langfuse", "0" * 32) != "0" * 32


def test_an_end_is_given_or_follows_from_the_latency() -> None:
    end = AT + timedelta(seconds=1.5)
    assert ended_at_of(AT, end, 99) == end
    assert ended_at_of(AT, None, "1.5") == ended_at_of(AT, None, 1.5) == end
    assert [ended_at_of(AT, None, value) for value in (None, "soon", True, 1e300, float("nan"))] == [None] * 5
