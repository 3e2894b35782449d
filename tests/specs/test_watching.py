"""Watch rules in specs: short forms, defaults, and what is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.traces import TraceEvaluationSpec, WatchSpec


@pytest.mark.parametrize(
    ("given", "kind", "title"),
    [
        ("accuracy", "change", "change accuracy"),
        ({"change": "accuracy", "window": "hour"}, "change", "change accuracy hourly"),
        ({"threshold": "accuracy", "minimum": 0.8}, "threshold", "threshold accuracy"),
        ({"fall": "accuracy", "against": "release", "name": "since release"}, "fall", "since release"),
        ({"failure_share": "traces", "maximum": 0.05}, "failure_share", "failure_share traces"),
    ],
)
def test_short_forms_name_the_kind_and_the_metric(given: Any, kind: str, title: str) -> None:
    rule = WatchSpec.model_validate(given)
    assert (rule.kind, rule.title, rule.min_n, rule.slices) == (kind, title, 30, ["all"])
    assert rule.closes_after_s == (900 if rule.window == "hour" else 3600)
    assert WatchSpec.model_validate(rule.model_dump(mode="json")) == rule


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threshold": "a"}, "threshold of 'a': wanted one of minimum and maximum"),
        ({"threshold": "a", "minimum": 0.1, "maximum": 0.2}, "wanted one of minimum and maximum"),
        ({"failure_share": "a", "maximum": 1.5}, "got maximum 1.5, wanted 0 to below 1"),
        ({"change": "a", "minimum": 0.5}, "minimum: got 0.5 in a rule of kind 'change', wanted none"),
        ({"fall": "a", "slices": ["user"]}, "slices: got 'user', wanted one of all, tag, version"),
        ({"fall": "a", "margin": -1}, "greater than or equal to 0"),
        ({"metric": "a"}, "kind"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        WatchSpec.model_validate(given)


def test_rules_have_unique_names_and_traces_to_measure() -> None:
    fields: dict[str, Any] = {"name": "production", "evaluators": ["exact_match"]}
    assert TraceEvaluationSpec(**fields, watch="exact_match").watch[0].kind == "change"
    with pytest.raises(ValidationError, match="two rules are called 'change exact_match'"):
        TraceEvaluationSpec(**fields, watch=["exact_match", {"change": "exact_match", "slices": ["version"]}])
    with pytest.raises(ValidationError, match="got scope 'sessions', wanted traces for 'latency'"):
        TraceEvaluationSpec(**fields, scope="sessions", watch=["latency"])


@pytest.mark.parametrize(("part", "is_watched"), [("version=1.4", True), ("version=1.3", False), ("tag=eu", True)])
def test_a_slice_is_one_value_or_all_values_of_a_field(part: str, is_watched: bool) -> None:
    rule = WatchSpec.model_validate({"change": "a", "slices": ["version=1.4", "tag"]})
    assert rule.watches(part) == is_watched and not rule.watches("all")
