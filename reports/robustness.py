"""The report of how robust composites are to their weights, read from `checks`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.records import derived_id, from_json

WEIGHTS, PARETO = "weights", "pareto"
"""Names of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsReport:
    """One composite: which system wins with the declared weights, with each weight changed, and over all weights."""

    composite: str
    passed: bool | None  # whether no small change of a single weight changes the winner
    observed: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        return list(self.observed["sentences"])

    @property
    def systems(self) -> list[tuple[str, str, str, str]]:
        """Each system, its mean composite, the share of weights under which it wins, and the share's standard error."""
        scores: dict[str, float | None] = self.observed["scores"] or {}
        shares, errors = self.observed["shares"] or {}, self.observed["standard_errors"] or {}
        return [
            (system, _figure(score), _share(shares.get(system)), _share(errors.get(system)))
            for system, score in scores.items()
        ]

    @property
    def changes(self) -> list[tuple[str, str, str, str]]:
        """Each changed weight: the metric, its old and new weight, and the leading systems."""
        weights = self.observed["weights"]
        return [
            (
                change["part"],
                _figure(weights[change["part"]]),
                _figure(change["weight"]),
                " and ".join(change["leaders"]),
            )
            for change in self.observed["changes"]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoReport:
    """The Pareto front: systems that no other system dominates."""

    observed: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        return list(self.observed["sentences"])

    @property
    def metrics(self) -> list[str]:
        """Each metric with its better direction."""
        return [f"{metric} ({'higher' if up else 'lower'})" for metric, up in self.observed["higher_is_better"].items()]

    @property
    def systems(self) -> list[tuple[str, ...]]:
        """Each system, its means, whether it is on the front, in what share of resamples, and what dominates it."""
        return [
            (
                system["system"],
                *(_figure(mean) for mean in system["means"].values()),
                "yes" if system["on_front"] else "no",
                _share(system["share"]),
                system["dominated_by"] or "",
            )
            for system in self.observed["systems"]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessReport:
    """Everything that is shown about the robustness of a run group's composites."""

    composites: Sequence[WeightsReport]
    pareto: ParetoReport | None


def robustness_batch(run_group: str) -> str:
    """Return the id of the batch of robustness checks of a run group."""
    return derived_id(run_group, "robustness")


def robustness_report(store: Store, run_group: str) -> RobustnessReport:
    """Return the latest robustness report of a run group; empty if it was never checked."""
    (rows,) = ask(store, (_CHECKS, [robustness_batch(run_group)]))
    weights = [
        WeightsReport(composite=subject, passed=passed, observed=from_json(observed))
        for name, subject, passed, observed in rows
        if name == WEIGHTS
    ]
    fronts = [ParetoReport(observed=from_json(observed)) for name, _, _, observed in rows if name == PARETO]
    return RobustnessReport(composites=weights, pareto=next(iter(fronts), None))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


_CHECKS = """
select name, subject_id, passed, observed::varchar from checks where batch_id = ? and subject_kind = 'experiment'
order by name, subject_id
"""
