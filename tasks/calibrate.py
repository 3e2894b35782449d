"""Weights of a composite from cases that people put in order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specs.errors import InputError
from specs.metric import MetricSpec
from stats.calibration import ENOUGH_CASES, Calibration, calibrated_weights, ordered_pairs
from tasks.composite_parts import scaled_parts

GIVEN = {"rank": False, "score": True}
"""What people may have given a case, and whether higher is better: the best has rank 1."""

NOT_METRICS = ("id", "case", "comment", "name")

Numbered = Iterable[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedWeights:
    """Weights by metric, and what is to be said of them."""

    metrics: tuple[str, ...]
    figures: Calibration

    @property
    def weights(self) -> dict[str, float] | None:
        """What `composites` takes as `weights`; None where the cases are too few."""
        if self.figures.weights is None:
            return None
        return {metric: round(weight, 3) for metric, weight in zip(self.metrics, self.figures.weights, strict=True)}

    @property
    def warnings(self) -> list[str]:
        """Why not to rest on these weights; none where nothing is known against them."""
        found = self.figures
        if found.weights is None:
            return [found.reason or "no weights"]
        said = []
        if found.n_cases < ENOUGH_CASES:
            said.append(f"{found.n_cases} cases are few, wanted {ENOUGH_CASES} to {2 * ENOUGH_CASES}")
        if len(self.metrics) > 1 and not found.better_than_equal:
            said.append(
                "these cases do not tell the weights from equal ones: they order no better than chance explains"
            )
        if found.agreement_low is not None and found.agreement_low <= 0.5:
            said.append("no weights of these metrics are known to order cases as people do: another metric may lack")
        same = [metric for metric, constant in zip(self.metrics, found.constant, strict=True) if constant]
        return [*said, *(f"{metric} is the same in all cases, which say nothing of its weight" for metric in same)]

    @property
    def sentences(self) -> list[str]:
        """What the weights are worth."""
        found = self.figures
        if found.agreement is None or found.equal_agreement is None or found.gain is None:
            return []
        agreed = _span(found.agreement, found.agreement_low, found.agreement_high)
        pairs = f"{found.n_pairs} pairs of {found.n_cases} cases"
        gain = _span(found.gain, found.gain_low, found.gain_high)
        return [
            f"of {pairs}, weights that were fitted without one of the two order {agreed} as people do",
            f"equal weights order {found.equal_agreement:.0%}: the fitted ones are better by {gain}",
        ]


def calibrate(
    rows: Numbered, metrics: Sequence[str], declared: Mapping[str, MetricSpec], where: str = "cases"
) -> CalibratedWeights:
    """Weights from cases: a row each, with a number for each metric, and `rank` or `score` as people gave it.

    Without `metrics`, they are all columns of numbers. Raises InputError, with the place, for what is no number, is out
    of the metric's range, or is not there.
    """
    cases = list(rows)
    if not cases:
        raise InputError(f"{where}: got no cases, wanted 10 to 20")
    given = _given(cases, where)
    names = tuple(metrics) or _metrics(cases, where)
    parts = [_parts(row, names, declared, f"{where}:{number}") for number, row in cases]
    people = [_number(row.get(given), f"{where}:{number}: {given}") for number, row in cases]
    pairs = ordered_pairs(people, higher_is_better=GIVEN[given])
    return CalibratedWeights(metrics=names, figures=calibrated_weights(np.array(parts), pairs))


def _given(cases: Sequence[tuple[int, Mapping[str, Any]]], where: str) -> str:
    found = [name for name in GIVEN if any(name in row for _, row in cases)]
    if len(found) != 1:
        raise InputError(f"{where}: got {' and '.join(found) or 'neither'}, wanted a column rank or score")
    return found[0]


def _metrics(cases: Sequence[tuple[int, Mapping[str, Any]]], where: str) -> tuple[str, ...]:
    names = [name for name in cases[0][1] if name not in (*GIVEN, *NOT_METRICS)]
    found = tuple(name for name in names if all(_is_number(row.get(name)) for _, row in cases))
    if not found:
        raise InputError(f"{where}: got no column of numbers but people's, wanted one for each metric")
    return found


def _parts(row: Mapping[str, Any], names: Sequence[str], declared: Mapping[str, MetricSpec], where: str) -> list[float]:
    values = {name: _number(row.get(name), f"{where}: {name}") for name in names}
    return scaled_parts(values, dict(declared), where)


def _is_number(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False


def _number(value: Any, where: str) -> float:
    if not _is_number(value):
        raise InputError(f"{where}: got {value!r}, wanted a number")
    return float(value)


def _span(share: float, low: float | None, high: float | None) -> str:
    return f"{share:.0%}" + (f" [{low:.0%}, {high:.0%}]" if low is not None and high is not None else "")
