"""Specs of trace evaluations, their watch rules, and windows of production as baselines of gates."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.gate import production_baseline
from evalflows.specs.traces import TraceEvaluationSpec, load_trace_evaluation
from evalflows.specs.watch import WatchSpec

NOW = datetime(2026, 11, 24, 12, 30, 15, 700, tzinfo=UTC)


def test_items_settle_before_they_are_judged() -> None:
    def settled(**changes: Any) -> float:
        return TraceEvaluationSpec.model_validate({"name": "x", "evaluators": ["contains"]} | changes).settles_after_s

    assert (settled(), settled(settle_s=5), settled(scope="sessions")) == (60, 5, 1800)


def test_a_mistake_in_a_file_is_one_line_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "watch.yaml"
    path.write_text("name: watch\nevaluators: contains\ncolour: red\n")
    with pytest.raises(InputError, match=rf"^{path}: colour: no such field") as caught:
        load_trace_evaluation(path)
    assert "\n" not in str(caught.value)
    path.write_text("name: watch\nevaluators: contains\n")
    assert load_trace_evaluation(path, ["settle_s=7"]).settles_after_s == 7


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


def test_a_slice_is_one_value_or_all_values_of_a_field() -> None:
    rule = WatchSpec.model_validate({"change": "a", "slices": ["version=1.4", "tag", "metadata.plan"]})
    parts = ("version=1.4", "version=1.3", "tag=eu", "all", "metadata.plan=free", "metadata.team=a")
    assert [rule.watches(part) for part in parts] == [True, False, True, False, True, False]


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("support@24h", "support@2026-11-23T12:30:15Z..2026-11-24T12:30:15Z"),
        ("a@b c@90m[version=1.4]", "a@b c@2026-11-24T11:00:15Z..2026-11-24T12:30:15Z[version=1.4]"),
        ("support@2026-11-01..2026-11-08", "support@2026-11-01T00:00:00Z..2026-11-08T00:00:00Z"),
        ("s@2026-11-01T02:00+02:00..2026-11-01T08:30", "s@2026-11-01T00:00:00Z..2026-11-01T08:30:00Z"),
    ],
)
def test_a_window_of_production_is_fixed_once(text: str, fixed: str) -> None:
    window = production_baseline(f"production:{text}").fixed(NOW)
    assert window.text == f"production:{fixed}"
    assert production_baseline(window.text).fixed(NOW + timedelta(days=1)) == window
