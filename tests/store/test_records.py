"""Ids and JSON texts, on which every key of the store rests."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.store.records import dependent_id, derived_id, from_json, new_id, to_json

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


times = st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC))


@given(times, st.integers(1, 10**12))
def test_ids_sort_by_their_time(at: datetime, later_ms: int) -> None:
    assert new_id("exp", at) < new_id("exp", at + timedelta(milliseconds=later_ms))


def test_a_dependent_id_keeps_the_time_of_the_id_it_comes_from_to_the_millisecond() -> None:
    origin = new_id("group", AT)
    time = origin.removeprefix("group-")[:10]
    assert dependent_id("exp", origin, origin, "target").startswith(f"exp-{time}")
    assert dependent_id("exp", AT, "anything").startswith(f"exp-{time}")
    moments = [datetime(2243, 1, 1, tzinfo=UTC) + timedelta(milliseconds=n) for n in range(2000)]
    times = [dependent_id("exp", moment, "x") for moment in moments]
    assert times == sorted(set(times))


def test_ids_are_pinned() -> None:
    """Stored keys are made by them, and a run key finds its experiments, also those that an older version began."""
    found = dependent_id("group", datetime(1970, 1, 1, tzinfo=UTC), "run_key", "demo")
    assert found == "group-00000000008yqy20skhj2f40ax"
    assert derived_id("exp-1", "q1", 0) == "ce4a90eff5075853a16525d5da7c92d0"


def test_no_two_small_tuples_share_an_id() -> None:
    texts = ("", "a", "b", "ab", "a\x1fb", "\x1f", "\x1fa", "a\x1f", "\x00", "a,b")
    tuples = [parts for length in (1, 2, 3) for parts in product(texts, repeat=length)]
    for identity in (derived_id, partial(dependent_id, "exp", AT)):
        assert len({identity(*parts) for parts in tuples}) == len(tuples) == 1110


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(json_values)
def test_json_text_holds_the_value(value: object) -> None:
    text = to_json(value)
    assert json.loads(text) == value
    text.encode()


@given(st.dictionaries(st.text(), json_values, max_size=5), st.randoms())
def test_equal_mappings_share_their_text_whatever_the_order_of_their_keys(
    value: dict[str, object], random: object
) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert to_json(dict(shuffled)) == to_json(value)


def test_what_json_cannot_hold_is_refused_in_one_line() -> None:
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant") as refused:
            to_json({"deep": [{"value": value}]})
        assert "\n" not in str(refused.value)
    for other in (range(1), {1, 2}, b"bytes", AT, {(1, 2): 3}, {1: 1, "1": 2}):
        with pytest.raises(TypeError) as caught:
            to_json([other])
        assert "\n" not in str(caught.value)


def test_plain_objects_are_written_as_pythons_own_encoder_writes_them() -> None:
    letters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    plain = {"z": letters, "é": None, "\U0001f600": True, "￿": -(2**63), "a": 2**63 - 1, "long": 2**70}
    for value in (plain, {name: item for name, item in plain.items() if name != "long"}):
        expected = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        assert to_json(value) == expected
        assert from_json(expected) == value


def test_text_that_is_not_json_is_a_value_error() -> None:
    for text in ("", "{", '{"a":1} x', "nul"):
        with pytest.raises(ValueError):
            from_json(text)
    assert from_json(" [1] ") == [1]
