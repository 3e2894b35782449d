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
class Robust:
    """The effect of other weights on one composite."""

    declared: OneAtATime
    shares: WeightShares


def robust(found: CompositeRuns, change: float) -> Robust | None:
    """Analyse a composite under other weights; None if it has no weights or no runs."""
    if found.runs is None:
        return None
    weights = list(found.composite.weights.values())
    return Robust(
        declared=one_at_a_time(found.runs, weights, change),
        shares=share_of_weights(found.runs),
    )


def weights_check(batch: str, found: CompositeRuns, change: float) -> CheckRow:
    """Check that changing any one weight a little does not change the winner."""
    one = robust(found, change)
    sentences = _sentences(found, one)
    turned = [change.changes_winner for change in one.declared.changes] if one else []
    return CheckRow(
        check_id=derived_id(batch, WEIGHTS, found.composite.name),
        batch_id=batch,
        subject_kind="experiment",
        subject_id=found.composite.name,
        name=WEIGHTS,
        passed=not any(turned) if turned else None,
        severity="warning",
        n_checked=len(turned),
        n_unexpected=sum(turned),
        observed=to_json(_observed(found, one) | {"sentences": sentences}),
        expected=to_json({"change": change, "winner": "the same"}),
        message="; ".join(sentences),
    )


def _sentences(found: CompositeRuns, one: Robust | None) -> list[str]:
    words = RobustnessSentences(found)
    if one is None:
        return [f"{found.composite.name}: no weight analysis: {found.reason}"]
    leaders = one.declared.leaders
    parts = [
        words.lead(one.declared),
        *words.changes(one.declared),
        words.shares(leaders, one.shares),
        *words.counted(),
    ]
    return [f"{found.composite.name}: {sentence}" for sentence in parts if sentence]


def _observed(found: CompositeRuns, one: Robust | None) -> dict[str, Any]:
    """All figures by name; None if there are none."""
    empty = dict.fromkeys(("weights", "scores", "shares", "standard_errors"))
    kept = {"n_examples": found.n_examples, "n_left_out": found.n_left_out, "reason": found.reason}
    if one is None:
        return {**empty, **kept, "changes": [], "leaders": []}
    declared, shares = one.declared, one.shares
    return {
        **kept,
        "how": found.composite.aggregation,
        "weights": _by(found.metrics, declared.weights),
        "scores": _by(found.systems, declared.scores),
        "leaders": _named(found, declared.leaders),
        "changes": _changes(found, declared),
        "shares": _by(found.systems, shares.shares),
        "standard_errors": _by(found.systems, shares.standard_errors),
        "ties": [{"systems": _named(found, who), "share": share} for who, share in shares.ties],
        "draws": shares.draws,
        "seed": shares.seed,
    }


def _changes(found: CompositeRuns, declared: OneAtATime) -> list[dict[str, Any]]:
    return [
        {
            "part": found.metrics[change.part],
            "factor": change.factor,
            "weight": change.weights[change.part],
            "weights": _by(found.metrics, change.weights),
            "scores": _by(found.systems, change.scores),
            "leaders": _named(found, change.leaders),
            "changes_winner": change.changes_winner,
        }
        for change in declared.changes
    ]


def _by(names: Sequence[str], values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def _named(found: CompositeRuns, leaders: Sequence[int]) -> list[str]:
    return [found.systems[system] for system in leaders]


def pareto_check(batch: str, rows: Sequence[ExperimentRow], by: Criteria) -> CheckRow:
    """Report the Pareto front; neither passed nor failed, since any system on the front may be the right choice."""
    systems = [row.target for row in rows]
    front = pareto_front(by.means, by.higher_is_better, resamples=by.resampled)
    sentences = pareto_sentences(systems, by.metrics, front)
    observed = {
        "higher_is_better": dict(zip(by.metrics, by.higher_is_better, strict=True)),
        "systems": [_of_front(place, systems, by, front) for place in range(len(systems))],
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


def _of_front(place: int, systems: Sequence[str], by: Criteria, front: ParetoFront) -> dict[str, Any]:
    dominator = front.dominated_by[place]
    return {
        "system": systems[place],
        "means": dict(zip(by.metrics, by.means[place].tolist(), strict=True)),
        "on_front": front.on_front[place],
        "share": None if front.shares is None else front.shares[place],
        "dominated_by": None if dominator is None else systems[dominator],
    }
