"""How robust composites are, as a person reads it: what was kept in `checks`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from store.catalog import ask
from store.parquet import Store
from store.records import derived_id, from_json

WEIGHTS, PARETO = "weights", "pareto"
"""What the checks are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsReport:
    """Of one composite: who wins as declared, with each weight changed, and under all weights."""

    composite: str
    passed: bool | None  # whether no weight alone, changed a little, changes who wins
    observed: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        return list(self.observed["sentences"])

    @property
    def systems(self) -> list[tuple[str, str, str, str]]:
        """Each system, its mean composite, the share of weights under which it wins, and how sure that share is."""
        found: dict[str, float | None] = self.observed["scores"] or {}
        shares, errors = self.observed["shares"] or {}, self.observed["standard_errors"] or {}
        how = "exact" if shares and not errors else ""
        return [
            (one, _figure(score), _share(shares.get(one)), _share(errors.get(one)) or how)
            for one, score in found.items()
        ]

    @property
    def changes(self) -> list[tuple[str, str, str, str]]:
        """Each weight that was changed: the part, what it was, what it became, and who then leads."""
        weights = self.observed["weights"]
        return [
            (one["part"], _figure(weights[one["part"]]), _figure(one["weight"]), " and ".join(one["leaders"]))
            for one in self.observed["changes"]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoReport:
    """Who is beaten in nothing, by which metrics."""

    observed: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        return list(self.observed["sentences"])

    @property
    def metrics(self) -> list[str]:
        """Each metric with the way that is better."""
        return [f"{one} ({'higher' if up else 'lower'})" for one, up in self.observed["higher_is_better"].items()]

    @property
    def systems(self) -> list[tuple[str, ...]]:
        """Each system, its means, whether it is on the front, in what share of resamples, and by whom it is beaten."""
        return [
            (
                one["system"],
                *(_figure(mean) for mean in one["means"].values()),
                "yes" if one["on_front"] else "no",
                _share(one["share"]),
                one["dominated_by"] or "",
            )
            for one in self.observed["systems"]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessReport:
    """Everything that is shown of a start's robustness."""

    composites: Sequence[WeightsReport]
    pareto: ParetoReport | None


def robustness_batch(run_group: str) -> str:
    """The batch of checks that say how robust the composites of one start are."""
    return derived_id(run_group, "robustness")


def robustness_report(store: Store, run_group: str) -> RobustnessReport:
    """What was last found of a start; nothing where it was never looked into."""
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
