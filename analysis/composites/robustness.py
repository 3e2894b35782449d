"""Robustness of a composite's winner: would it still win under other weights?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.analysis.composites.parts import CompositeRuns, Criteria
from evalflows.analysis.composites.sentences import RobustnessSentences, pareto_sentences
from evalflows.reports.robustness import PARETO, WEIGHTS
from evalflows.stats.weights.pareto import ParetoFront, pareto_front
from evalflows.stats.weights.weight_space import OneAtATime, WeightShares, one_at_a_time, share_of_weights
from evalflows.store.records import CheckRow, ExperimentRow, derived_id, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightAnalysis:
    """The effect of other weights on the winner by one composite."""

    declared: OneAtATime
    shares: WeightShares


def analyse_weights(runs: CompositeRuns, change: float) -> WeightAnalysis | None:
    """Analyse a composite under other weights; None if it has no weights or no runs."""
    if runs.runs is None:
        return None
    weights = list(runs.composite.weights.values())
    return WeightAnalysis(
        declared=one_at_a_time(runs.runs, weights, change),
        shares=share_of_weights(runs.runs),
    )


def weights_check(batch: str, runs: CompositeRuns, change: float) -> CheckRow:
    """Check that changing any one weight a little does not change the winner."""
    analysis = analyse_weights(runs, change)
    sentences = _sentences(runs, analysis)
    decisive = [change.changes_winner for change in analysis.declared.changes] if analysis else []
    return CheckRow(
        check_id=derived_id(batch, WEIGHTS, runs.composite.name),
        batch_id=batch,
        subject_kind="experiment",
        subject_id=runs.composite.name,
        name=WEIGHTS,
        passed=not any(decisive) if decisive else None,
        severity="warning",
        n_checked=len(decisive),
        n_unexpected=sum(decisive),
        observed=to_json(_observed(runs, analysis) | {"sentences": sentences}),
        expected=to_json({"change": change, "winner": "the same"}),
        message="; ".join(sentences),
    )


def _sentences(runs: CompositeRuns, analysis: WeightAnalysis | None) -> list[str]:
    wording = RobustnessSentences(runs)
    if analysis is None:
        return [f"{runs.composite.name}: no weight analysis: {runs.reason}"]
    leaders = analysis.declared.leaders
    parts = [
        wording.lead(analysis.declared),
        *wording.changes(analysis.declared),
        wording.shares(leaders, analysis.shares),
        *wording.counted(),
    ]
    return [f"{runs.composite.name}: {sentence}" for sentence in parts if sentence]


def _observed(runs: CompositeRuns, analysis: WeightAnalysis | None) -> dict[str, Any]:
    """All figures, by name; None without a weight analysis."""
    empty = dict.fromkeys(("weights", "scores", "shares", "standard_errors"))
    kept = {"n_examples": runs.n_examples, "n_left_out": runs.n_left_out, "reason": runs.reason}
    if analysis is None:
        return {**empty, **kept, "changes": [], "leaders": []}
    declared, shares = analysis.declared, analysis.shares
    return {
        **kept,
        "how": runs.composite.aggregation,
        "weights": _by_name(runs.metrics, declared.weights),
        "scores": _by_name(runs.systems, declared.scores),
        "leaders": _names(runs, declared.leaders),
        "changes": _changes(runs, declared),
        "shares": _by_name(runs.systems, shares.shares),
        "standard_errors": _by_name(runs.systems, shares.standard_errors),
        "ties": [{"systems": _names(runs, leaders), "share": share} for leaders, share in shares.ties],
        "draws": shares.draws,
        "seed": shares.seed,
    }


def _changes(runs: CompositeRuns, declared: OneAtATime) -> list[dict[str, Any]]:
    return [
        {
            "part": runs.metrics[change.part],
            "factor": change.factor,
            "weight": change.weights[change.part],
            "weights": _by_name(runs.metrics, change.weights),
            "scores": _by_name(runs.systems, change.scores),
            "leaders": _names(runs, change.leaders),
            "changes_winner": change.changes_winner,
        }
        for change in declared.changes
    ]


def _by_name(names: Sequence[str], values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def _names(runs: CompositeRuns, leaders: Sequence[int]) -> list[str]:
    return [runs.systems[system] for system in leaders]


def pareto_check(batch: str, rows: Sequence[ExperimentRow], criteria: Criteria) -> CheckRow:
    """Report the Pareto front; neither passed nor failed, since any system on the front may be the right choice."""
    systems = [row.target for row in rows]
    front = pareto_front(criteria.means, criteria.higher_is_better, resamples=criteria.resampled)
    sentences = pareto_sentences(systems, criteria.metrics, front)
    observed = {
        "higher_is_better": dict(zip(criteria.metrics, criteria.higher_is_better, strict=True)),
        "systems": [_front_entry(system, systems, criteria, front) for system in range(len(systems))],
        "resamples": front.resamples,
        "sentences": sentences,
    }
    return CheckRow(
        check_id=derived_id(batch, PARETO),
        batch_id=batch,
        subject_kind="experiment",
        subject_id=rows[0].run_group,
        name=PARETO,
        severity="warning",
        n_checked=len(systems),
        n_unexpected=front.on_front.count(False),
        observed=to_json(observed),
        message="; ".join(sentences),
    )


def _front_entry(system: int, systems: Sequence[str], criteria: Criteria, front: ParetoFront) -> dict[str, Any]:
    dominator = front.dominated_by[system]
    return {
        "system": systems[system],
        "means": dict(zip(criteria.metrics, criteria.means[system].tolist(), strict=True)),
        "on_front": front.on_front[system],
        "share": None if front.shares is None else front.shares[system],
        "dominated_by": None if dominator is None else systems[dominator],
    }
