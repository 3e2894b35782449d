"""Samples of production items: the same traces wherever they are drawn, at the rate of their kind."""

from typing import Any

from made_traces import observation

from evalflows.engine.items import is_drawn, sampling_rate
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.telemetry.views import TraceView, observation_view, trace_view


def trace(number: int, **fields: Any) -> TraceView:
    return trace_view([observation(f"t{number}", **fields)])


def judge(**fields: Any) -> EvaluatorSpec:
    return EvaluatorSpec.model_validate({"use": "contains"} | fields)


def drawn(spec: EvaluatorSpec, items: list[Any]) -> set[str]:
    return {item.id for item in items if is_drawn(spec, item)}


ITEMS = [trace(number) for number in range(2000)]


def test_the_share_drawn_is_near_the_rate_and_smaller_samples_are_part_of_larger_ones() -> None:
    for rate in (0.05, 0.2, 0.5, 0.9):
        n = len(drawn(judge(sample_rate=rate), ITEMS))
        assert abs(n - 2000 * rate) < 4 * (2000 * rate * (1 - rate)) ** 0.5
    small, large = drawn(judge(sample_rate=0.1), ITEMS), drawn(judge(sample_rate=0.3), ITEMS)
    assert small < large
    assert drawn(judge(sample_rate=0.1, sample_seed=1), ITEMS) != small


def test_all_paying_users_and_a_tenth_of_the_rest() -> None:
    spec = judge(sample_by="metadata.plan", sample_rates={"paid": 1.0}, sample_rate=0.1)
    paid = [trace(n, attributes={"langfuse.trace.metadata.plan": "paid"}) for n in range(200)]
    free = [trace(n, attributes={"langfuse.trace.metadata.plan": "free"}) for n in range(200)]
    assert len(drawn(spec, paid)) == 200
    assert 5 <= len(drawn(spec, free)) <= 40
    assert (sampling_rate(spec, paid[0]), sampling_rate(spec, free[0])) == (1.0, 0.1)


def test_of_several_tags_the_highest_rate_counts() -> None:
    spec = judge(sample_by="tags", sample_rates={"beta": 0.5, "vip": 1.0}, sample_rate=0.1)
    assert sampling_rate(spec, trace(1, attributes={"tag.tags": ["beta", "vip"]})) == 1.0
    assert sampling_rate(spec, trace(1)) == 0.1


def test_observations_are_drawn_with_their_trace() -> None:
    spec = judge(sample_rate=0.3)
    for item in ITEMS[:100]:
        views = [observation_view(observation(item.id, span)) for span in ("a", "b")]
        assert {is_drawn(spec, view) for view in views} == {is_drawn(spec, item)}
