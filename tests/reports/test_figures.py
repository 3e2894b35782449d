"""Numbers have as many digits as their interval bears."""

from dataclasses import fields
from typing import Any

import pytest

from evalflows.analysis.figures import estimate, figure, percent
from evalflows.reports.results import Result, remarks_on


@pytest.mark.parametrize(
    ("value", "low", "high", "metric", "texts"),
    [
        (0.8, 0.739, 0.85, "contains", ("0.800", "[0.739, 0.850]")),
        (0.75, 0.51, 1.0, "contains", ("0.75", "[0.51, 1.00]")),
        (3.456, 1.2, 5.7, "rating", ("3.5", "[1.2, 5.7]")),
        (123.4, 80.0, 170.0, "points", ("123", "[80, 170]")),
        (0.5, 0.4999, 0.5001, "contains", ("0.500", "[0.500, 0.500]")),  # at most three digits
        (51.66, 51.44, 51.87, "answer_length", ("51.7", "[51.4, 51.9]")),  # at most one
        (0.00123, 0.0010, 0.0014, "cost", ("0.00123", "[0.00100, 0.00140]")),
        (8.1e-6, 7.9e-6, 8.3e-6, "cost", ("0.0000081", "[0.0000079, 0.0000083]")),
        (8.12e-6, 8.1e-6, 8.14e-6, "cost", ("0.00000812", "[0.00000810, 0.00000814]")),
        (8e-8, None, None, "cost", ("0.000000080", "")),
        (1.0, 1.0, 1.0, "contains", ("1.000", "[1.000, 1.000]")),
        (0.5, None, None, "contains", ("0.500", "")),
        (None, None, None, "contains", ("-", "")),
    ],
)
def test_half_the_interval_has_two_significant_digits(
    value: float | None, low: float | None, high: float | None, metric: str, texts: tuple[str, str]
) -> None:
    assert estimate(value, low, high, metric) == texts


def test_rounding_moves_no_end_onto_what_it_is_held_against() -> None:
    assert estimate(0.13, 0.003, 0.257, "contains", signed=True) == ("+0.13", "[+0.00, +0.26]")
    assert estimate(0.13, 0.003, 0.257, "contains", signed=True, marks=(0,)) == ("+0.130", "[+0.003, +0.257]")
    assert estimate(0.07, -0.0487, 0.19, "contains", signed=True, marks=(0, 0.05, -0.05))[1] == "[-0.049, +0.190]"
    assert estimate(0.1, 0.0, 0.2, "contains", signed=True, marks=(0,))[1] == "[+0.00, +0.20]", "an end that lies there"
    assert estimate(0.02, 0.0004, 0.04, "contains", signed=True, marks=(0,)) == ("+0.0200", "[+0.0004, +0.0400]")
    assert estimate(0.02, 1e-9, 0.04, "contains", signed=True, marks=(0,)) == ("+0.020", "[+0.000, +0.040]")
    assert estimate(1e-5, -2e-5, 4e-5, "latency", signed=True, marks=(0,)) == ("+0.000", "[+0.000, +0.000]")
    assert percent(0.6, 0.504, 0.7) == "60.0% [50.4%, 70.0%]"
    assert percent(0.7, 0.6, 0.8) == "70% [60%, 80%]"


def test_nothing_is_negative_zero() -> None:
    assert figure(-0.0001, "contains", signed=True) == "+0.000"
    assert figure(-0.0001, "contains", digits=1) == "0.0"


def test_the_reason_for_a_mean_without_an_interval_is_said_once_and_not_where_a_verdict_gives_its_own() -> None:
    def result(metric: str, **given: Any) -> Result:
        unknown = dict.fromkeys(field.name for field in fields(Result))
        return Result(**{**unknown, "metric": metric, "target": "app", "scored": 3, "missing": 0, "mean": 1.0, **given})

    rows = [
        result("same", reason="no variation"),
        result("length", reason="no variation"),
        result("known", ci_low=0.5, ci_high=1.0),
        result("both", reason="no variation"),
        result("both", reason="no variation", baseline_experiment_id="exp-1", conclusion="better"),
    ]
    said = [remark.text for remark in remarks_on(rows) if remark.kind == "no_interval"]
    assert said == ["no interval of same, length: no variation"]
