"""The experiments of a matrix as a grid: which cell is best by a metric, and the main effect of each factor.

A main effect is the mean difference between two levels of a factor, over all combinations of the other factors' levels
that both have, paired by example: each example has one mean per level. Its interval is widened for the number of levels
that are compared with the same one (Bonferroni).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from evalflows.analysis.best import Best, best_among
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.flaky import why_too_many
from evalflows.analysis.pairing import paired_metric
from evalflows.analysis.verdicts import classify
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, base_metric
from evalflows.store.queries.values import MetricValues
from evalflows.store.records import Conclusion, EstimateRow, ExperimentRow, ReasonCode
from evalflows.store.store import Store

Standing = Literal["best", "may_be_best", "not_best"]

Levels = Mapping[str, str]
"""The level of each factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The experiment of one combination of levels, by one metric."""

    experiment_id: str
    target: str
    levels: Levels
    mean: float | None
    low: float | None
    high: float | None
    standing: Standing | None  # None if the best is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class MainEffect:
    """How much a level of a factor differs from the baseline's, over the levels of all other factors."""

    factor: str
    level: str
    reference: str
    n_combinations: int  # of the other factors' levels, that both levels have
    n_examples: int
    difference: float | None
    low: float | None
    high: float | None
    confidence_level: float  # of all differences of the factor together
    conclusion: Conclusion
    margin: float | None
    reason: str | None
    reason_code: ReasonCode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All cells of a matrix by one metric."""

    metric: str
    factors: Mapping[str, Sequence[str]]  # the levels of each, in the spec's order
    cells: Sequence[Cell]
    best: Best | None
    reason: str | None  # why the best is not known
    effects: Sequence[MainEffect]


def grids_of(store: Store, cells: Mapping[str, Levels]) -> list[Grid]:
    """Return a grid for each metric of evaluators that several cells have a mean of, in the spec's order.

    `cells` are all experiments of a run by their ids, in the spec's order.
    """
    reader = MetricReader(store)
    rows: list[ExperimentRow] = [store.read("experiments", identity)[0] for identity in cells]
    estimates: list[EstimateRow] = [row for identity in cells for row in store.read("estimates", identity)]
    means = {(row.metric, row.experiment_id): row for row in estimates if row.mean is not None}
    spec = reader.spec(rows[0])
    targets = [row.target for row in rows]
    base = targets.index(spec.baseline) if spec.baseline in targets else 0
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=rows[0]) for row in rows]
    without = spec.model_copy(update={"quarantine": []})  # which is for verdicts
    alone = [replace(pair, spec=without) for pair in pairs] if spec.quarantine else pairs
    levels = [*cells.values()]
    factors = {factor: [*dict.fromkeys(each[factor] for each in levels)] for factor in levels[0]}
    found = []
    for metric in _metrics(means, spec):
        best, reason, effects = None, None, list[MainEffect]()
        if all(metric in pair.values for pair in pairs):
            effects = [effect for factor in factors for effect in _effects(pairs, levels, factor, metric, base)]
            try:
                best = best_among(alone, metric, base)
                if len({mean for variant in best.variants for mean in (variant.mean, variant.best_case)}) == 1:
                    best, reason = None, f"all cells have the same mean of {metric}"
            except InputError as error:
                reason = str(error)
        else:
            reason = f"{metric} has no value per example in every cell, so the best cell is unknown"
        standings = _standings(best)
        found.append(
            Grid(
                metric=metric,
                factors=factors,
                cells=[
                    Cell(
                        experiment_id=row.experiment_id,
                        target=row.target,
                        levels=cells[row.experiment_id],
                        mean=mean.mean if (mean := means.get((metric, row.experiment_id))) else None,
                        low=mean.ci_low if mean else None,
                        high=mean.ci_high if mean else None,
                        standing=standings.get(row.experiment_id),
                    )
                    for row in rows
                ],
                best=best,
                reason=reason,
                effects=effects,
            )
        )
    return found


def _metrics(means: Mapping[tuple[str, str], EstimateRow], spec: ExperimentSpec) -> list[str]:
    named = [*spec.judges, *(composite.name for composite in spec.composites)]
    several = dict.fromkeys(metric for metric, _ in means if metric not in {*MEASURES, *spec.panel_members})
    own = [metric for metric in several if sum(other == metric for other, _ in means) > 1]

    def place(metric: str) -> int:
        base = base_metric(metric)
        return named.index(base) if base in named else len(named)

    return sorted(own, key=place)


def _standings(best: Best | None) -> dict[str, Standing]:
    if best is None:
        return {}
    first, *others = best.variants
    rest: dict[str, Standing] = {
        other.experiment_id: "may_be_best" if other.may_be_best else "not_best"
        for other in others
        if other.may_be_best is not None
    }
    return {first.experiment_id: "best", **rest}


def _effects(
    pairs: Sequence[ExperimentPair], levels: Sequence[Levels], factor: str, metric: str, base: int
) -> Iterator[MainEffect]:
    reference = levels[base][factor]
    by_level: dict[str, dict[tuple[str, ...], int]] = {}
    for place, each in enumerate(levels):
        others = tuple(level for name, level in each.items() if name != factor)
        by_level.setdefault(each[factor], {})[others] = place
    spec, of_reference = pairs[0].spec, by_level.pop(reference)
    if not by_level:  # a single level, or the others are excluded
        return
    is_adjusted = spec.adjustment != "none"
    level_of_each = 1 - (1 - spec.confidence_level) / (len(by_level) if is_adjusted else 1)
    for level, of_level in by_level.items():
        shared = [others for others in of_level if others in of_reference]
        effect = MainEffect(
            factor=factor,
            level=level,
            reference=reference,
            n_combinations=len(shared),
            n_examples=0,
            difference=None,
            low=None,
            high=None,
            confidence_level=spec.confidence_level,
            conclusion="not_enough_evidence",
            margin=None,
            reason=f"no cell differs from one with {reference} only in this",
            reason_code="no_test",
        )
        if not shared:
            yield effect
            continue
        ours, theirs = ([pairs[side[others]] for others in shared] for side in (of_level, of_reference))
        candidate, baseline = (_averaged([pair.values[metric] for pair in side]) for side in (ours, theirs))
        paired = paired_metric(candidate, baseline, pairs[0].clusters, spec)
        why = [pair.why_refused(metric) or pair.why_excluded(metric) for pair in (*ours, *theirs)]
        why.append(why_too_many(paired.candidate, spec.quarantine_at_most))
        test = replace(paired, confidence_level=level_of_each).difference_test(next(filter(None, why), None))
        (verdict,) = classify([test], "none")
        yield replace(
            effect,
            n_examples=test.estimate.n_pairs,
            difference=test.estimate.difference,
            low=test.estimate.low,
            high=test.estimate.high,
            conclusion=verdict.conclusion,
            margin=test.margin,
            reason=verdict.reason,
            reason_code=verdict.reason_code,
        )


def _averaged(cells: Sequence[MetricValues]) -> MetricValues:
    """Return the mean of each example over some cells; missing if it is in any of them."""
    first, *others = cells
    if not others:
        return first
    return replace(
        first,
        values=np.mean([cell.values for cell in cells], axis=0),
        missing=np.any([cell.missing for cell in cells], axis=0),
        missing_share=None,
        inapplicable=np.max([cell.inapplicable_part for cell in cells], axis=0),
        weights=np.max([cell.weights for cell in cells], axis=0),
        is_binary=False,
        are_0_or_1=all(cell.are_0_or_1 for cell in cells),
        scored=sum(cell.scored for cell in cells),
        n_missing=sum(cell.n_missing for cell in cells),
    )
