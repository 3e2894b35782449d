"""A sample: which examples are drawn, how many of each kind, and that it is the same wherever it is drawn."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.engine.running import Sample, draw
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.store.records import ExampleRow


def examples(count: int, **fields: Any) -> list[ExampleRow]:
    """Examples e0, e1, …; a field may be a list, one element an example, and `metadata` any value."""
    return [example(i, **{name: value[i] for name, value in fields.items()}) for i in range(count)]


def example(number: int, metadata: Any = None, **fields: Any) -> ExampleRow:
    return ExampleRow(
        snapshot_id="snap-1",
        example_id=f"e{number}",
        position=number,
        inputs=json.dumps({"question": f"q{number}", "length": number % 3}),
        metadata=None if metadata is None else json.dumps(metadata),
        **fields,
    )


def sampled(of: list[ExampleRow], **said: Any) -> Sample:
    found = draw(EvaluatorSpec.model_validate({"use": "contains"} | said), of)
    assert found is not None
    return found


def by_risk(risks: list[Any], rates: dict[Any, float], **said: Any) -> Sample:
    """A sample by `metadata.risk`, of as many examples as there are risks."""
    rows = examples(len(risks), metadata=[{"risk": risk} for risk in risks])
    return sampled(rows, sample_by="metadata.risk", sample_rates=rates, **said)


def drawn_of(found: Sample, risks: list[Any], value: Any) -> int:
    return sum(f"e{i}" in found.drawn for i, risk in enumerate(risks) if risk == value)


def test_the_rate_is_rounded_to_whole_examples_and_one_at_least() -> None:
    for rate, among, count in ((0.1, 100, 10), (0.5, 5, 3), (0.25, 5, 1), (0.01, 5, 1), (0.99, 10, 10), (1.0, 7, 7)):
        found = sampled(examples(among), sample_rate=rate)
        assert len(found.drawn) == count
        assert found.rates == {f"e{i}": count / among for i in range(among)}, (
            "the rate that it came to, of every example"
        )
    assert draw(EvaluatorSpec(use="contains"), examples(5)) is None


def test_what_was_drawn_once_is_drawn_for_good_by_every_evaluator() -> None:
    """The four of e0 to e19 with the least SHA-256 of "0 e0" and so on: a run of another day goes on with these."""
    assert sampled(examples(20), sample_rate=0.2).drawn == {"e0", "e3", "e12", "e13"}
    rows, again = examples(200), [example(i, metadata={"new": i}) for i in reversed(range(200))]
    drawn = sampled(rows, sample_rate=0.2)
    assert sampled(again, sample_rate=0.2) == drawn, "neither their order nor their content counts"
    for other in ({"use": "exact_match"}, {"name": "another"}):
        assert sampled(rows, sample_rate=0.2, **other) == drawn


@settings(deadline=None)
@given(st.integers(0, 60), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 5))
def test_a_smaller_sample_is_part_of_a_larger_one(count: int, one: float, other: float, seed: int) -> None:
    small, large = (sampled(examples(count), sample_rate=rate, sample_seed=seed) for rate in sorted((one, other)))
    assert small.drawn <= large.drawn


def test_each_example_has_the_same_chance() -> None:
    """Over 2,000 seeds, 3 of 10: each some 600 times, with a standard deviation of 20."""
    times = dict.fromkeys((f"e{i}" for i in range(10)), 0)
    for seed in range(2000):
        for identity in sampled(examples(10), sample_rate=0.3, sample_seed=seed).drawn:
            times[identity] += 1
    assert sum(times.values()) == 6000
    assert all(500 < count < 700 for count in times.values()), times


RISKS = ["high"] * 4 + ["low"] * 20 + ["none"] * 10


def test_of_each_value_its_own_rate_is_drawn_and_of_the_others_together_the_rate_of_all() -> None:
    found = by_risk(RISKS, {"high": 1.0, "low": 0.25}, sample_rate=0.1)
    assert [drawn_of(found, RISKS, value) for value in ("high", "low", "none")] == [4, 5, 1]
    assert [found.rates[f"e{i}"] for i in (0, 4, 24)] == [1.0, 0.25, 0.1]


def test_where_no_example_has_any_of_the_values_they_are_taken_for_a_slip() -> None:
    with pytest.raises(InputError, match=r"sample_rates: no example has hihg as its metadata\.risk, got high, low"):
        by_risk(RISKS, {"hihg": 1.0}, sample_rate=0.5)


def test_a_value_is_found_by_its_key_whatever_it_is() -> None:
    for value, key in (
        *(("high", "high"), (1, "1"), (1.0, 1), (0.5, 0.5), (True, "true"), (None, None), (None, "null")),
        *((["a", 1], '["a", 1]'), ("1", 1), ("true", True)),
    ):
        risks = [value] * 4 + ["other"] * 4
        found = by_risk(risks, {key: 0.25}, sample_rate=0.5)
        assert (drawn_of(found, risks, value), drawn_of(found, risks, "other")) == (1, 2), (value, key)


def test_true_is_not_1_and_no_is_not_null() -> None:
    risks: list[Any] = [True] * 4 + [1] * 4 + [None] * 4 + [False] * 4
    found = by_risk(risks, {True: 0.25, None: 0.5}, sample_rate=1.0)
    counts = [sum(f"e{i}" in found.drawn for i in range(start, start + 4)) for start in (0, 4, 8, 12)]
    assert counts == [1, 4, 2, 4]


def test_any_field_of_the_examples_may_be_the_one() -> None:
    for field, rows in (
        ("split", examples(6, split=["a", "a", "b", "b", "b", "b"])),
        ("metadata.of.it", examples(6, metadata=[{"of": {"it": value}} for value in "aabbbb"])),
        ("reference_outputs.kind", examples(6, reference_outputs=[json.dumps({"kind": value}) for value in "aabbbb"])),
    ):
        found = sampled(rows, sample_by=field, sample_rates={"a": 1.0, "b": 0.25})
        assert {"e0", "e1"} < found.drawn and len(found.drawn) == 3


def test_an_example_that_lacks_the_field_is_one_of_the_others() -> None:
    for metadata in ({"other": 1}, None, {"risk": {}}):
        rows = examples(5, metadata=[{"risk": {"scope": "high"}}, *[metadata] * 4])
        found = sampled(rows, sample_by="metadata.risk.scope", sample_rates={"high": 1.0}, sample_rate=0.25)
        assert len(found.drawn) == 2 and "e0" in found.drawn
        assert found.rates == {"e0": 1.0} | dict.fromkeys(("e1", "e2", "e3", "e4"), 0.25)
