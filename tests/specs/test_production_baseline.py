"""Windows of production as baselines of gates."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from evalflows.specs.gate import GateSpec, production_baseline

NOW = datetime(2026, 11, 24, 12, 30, 15, 700, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("production:support@24h", "production:support@2026-11-23T12:30:15Z..2026-11-24T12:30:15Z"),
        (
            "production:a@b c@90m[version=1.4]",
            "production:a@b c@2026-11-24T11:00:15Z..2026-11-24T12:30:15Z[version=1.4]",
        ),
        ("production:support@2026-11-01..2026-11-08", "production:support@2026-11-01T00:00:00Z..2026-11-08T00:00:00Z"),
        (
            "production:support@2026-11-01T02:00+02:00..2026-11-01T08:30",
            "production:support@2026-11-01T00:00:00Z..2026-11-01T08:30:00Z",
        ),
    ],
)
def test_a_window_is_fixed_once(text: str, fixed: str) -> None:
    window = production_baseline(text).fixed(NOW)
    assert window.text == fixed
    assert production_baseline(fixed).fixed(NOW + timedelta(days=1)) == window


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("production:support", "wanted production:EVALUATION@24h"),
        ("production:@24h", "wanted production:EVALUATION@24h"),
        ("production:support@soon", "wanted production:EVALUATION@24h"),
        ("production:support@2026-11-01..", "wanted production:EVALUATION@24h"),
        ("production:support@2026-11-01..2026-11-02..2026-11-03", "wanted production:EVALUATION@24h"),
        ("production:support@0h", "wanted one of at most 3660 days"),
        ("production:support@999999w", "wanted one of at most 3660 days"),
        ("production:support@2026-11-08..2026-11-01", "wanted a window that ends after it begins"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GateSpec(baseline=text, non_inferiority={"correct": 0.05})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch": 50}, "got batch with a window of production"),
        ({"recalibrate": {"sample": 100}}, "got recalibrate with a window of production"),
        ({"non_inferiority": {"correct@split=hard": 0.1}}, "slices are of examples"),
    ],
)
def test_what_production_has_not_is_refused(fields: dict[str, object], message: str) -> None:
    given = {"baseline": "production:support@24h", "non_inferiority": {"correct": 0.05}, **fields}
    with pytest.raises(ValidationError, match=message):
        GateSpec.model_validate(given)
