"""How far the winner by a composite rests on its weights: kept as checks of the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.metric import CompositeSpec
from stats.nearest_flip import NearestFlip, nearest_flip
from stats.pareto import ParetoFront, pareto_front
from stats.weight_space import (
    OneAtATime,
    WeightShares,
    WinnerStays,
    one_at_a_time,
    share_of_weights,
    winner_stays,
)
from store.lookup import find_experiments, run_groups
from store.parquet import Store
from store.records import CheckRow, ExperimentRow, derived_id, to_json
from store.robustness_report import PARETO, WEIGHTS, robustness_batch
from tasks.composite_parts import CompositeRuns, Criteria, composite_runs, criteria
from tasks.robustness_words import InWords, front_in_words

CHANGE = 0.2
"""By how much each weight is changed where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Robust:
    """What was found of one composite."""

    declared: OneAtATime
    shares: WeightShares
    flip: NearestFlip
    stays: WinnerStays


@task(cache_policy=NO_CACHE, persist_result=False)
def composite_robustness(
    experiment: str, composites: Sequence[str] = (), change: float = CHANGE, over: Sequence[str] = ()
) -> str:
    """Keep what other weights would change for the composites of a start, and its Pareto front. Returns the run group.

    `experiment` is a run group, or an experiment of it; `composites` are those to look into, all where left out; `over`
    the metrics of the front. What was kept of the same start before is replaced. Raises InputError for a reference that
    means nothing, a start of one system, and what is no composite or metric of it.
    """
    store = Store()
    rows = _rows(store, experiment)
    spec = ExperimentSpec.model_validate_json(rows[0].spec)
    if not 0 < change < 1:
        raise InputError(f"change: got {change:g}, wanted more than 0 and less than 1, such as 0.2 for 20 %")
    batch = robustness_batch(rows[0].run_group)
    found = [composite_runs(store, rows, one) for one in _chosen(spec, composites)]
    by = criteria(store, rows, spec, over)
    checks = [_weights_check(batch, one, change) for one in found]
    checks += [_pareto_check(batch, rows, by)] if len(by.metrics) > 1 else []
    if not checks:
        raise InputError(f"{spec.name}: has no composite and fewer than two metrics, wanted one of `composites`")
    store.publish("checks", batch, checks)
    return rows[0].run_group


def robust(found: CompositeRuns, change: float) -> Robust | None:
    """What other weights would make of a composite; None where it has none, or no run."""
    if found.runs is None:
        return None
    weights = list(found.composite.weights.values())
    return Robust(
        declared=one_at_a_time(found.runs, weights, change),
        shares=share_of_weights(found.runs),
        flip=nearest_flip(found.runs, weights),
        stays=winner_stays(found.runs, weights),
    )


def _rows(store: Store, experiment: str) -> list[ExperimentRow]:
    """All experiments of the start that is meant."""
    groups = run_groups(store, find_experiments(store, experiment))
    identities = find_experiments(store, groups[0])
    if len(identities) < 2:
        raise InputError(f"experiment {experiment!r}: has one system, wanted two or more of one start")
    return [store.read("experiments", identity)[0] for identity in identities]


def _chosen(spec: ExperimentSpec, names: Sequence[str]) -> list[CompositeSpec]:
    known = {one.name: one for one in spec.composites}
    for name in names:
        if name not in known:
            raise InputError(f"composite {name!r}: not of {spec.name!r}, wanted {_one_of(list(known))}")
    return [known[name] for name in names] if names else list(known.values())


def _one_of(known: Sequence[str]) -> str:
    return f"one of {', '.join(known)}" if known else "an experiment with `composites`"


def _weights_check(batch: str, found: CompositeRuns, change: float) -> CheckRow:
    """Passed where no weight alone, changed a little, changes who wins."""
    one = robust(found, change)
    sentences = _sentences(found, one)
    turned = [each.changes_winner for each in one.declared.changes] if one else []
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
    words = InWords(found)
    if one is None:
        return [f"{found.composite.name}: nothing to say of its weights: {found.reason}"]
    leaders = one.declared.leaders
    said = [
        words.lead(one.declared),
        *words.changes(one.declared),
        words.shares(leaders, one.shares),
        words.flip(one.declared.weights, one.flip),
        words.stays(one.stays),
        *words.counted(),
    ]
    return [f"{found.composite.name}: {sentence}" for sentence in said if sentence]


def _observed(found: CompositeRuns, one: Robust | None) -> dict[str, Any]:
    """All figures by name, None where there are none."""
    empty = dict.fromkeys(("weights", "scores", "shares", "standard_errors", "nearest", "winner_stays"))
    kept = {"n_examples": found.n_examples, "n_left_out": found.n_left_out, "reason": found.reason}
    if one is None:
        return {**empty, **kept, "changes": [], "leaders": []}
    declared, shares = one.declared, one.shares
    return {
        **kept,
        "how": found.composite.how,
        "weights": _by(found.metrics, declared.weights),
        "scores": _by(found.systems, declared.scores),
        "leaders": _named(found, declared.leaders),
        "changes": _changes(found, declared),
        "shares": _by(found.systems, shares.shares),
        "standard_errors": _by(found.systems, shares.standard_errors),
        "level": [{"systems": _named(found, who), "share": share} for who, share in shares.level],
        "method": shares.method,
        "draws": shares.draws,
        "seed": shares.seed,
        "nearest": _nearest(found, one.flip),
        "winner_stays": one.stays.stays,
        "resamples": one.stays.resamples,
        "n_clusters": one.stays.n_clusters,
    }


def _changes(found: CompositeRuns, declared: OneAtATime) -> list[dict[str, Any]]:
    return [
        {
            "part": found.metrics[one.part],
            "factor": one.factor,
            "weight": one.weights[one.part],
            "weights": _by(found.metrics, one.weights),
            "scores": _by(found.systems, one.scores),
            "leaders": _named(found, one.leaders),
            "changes_winner": one.changes_winner,
        }
        for one in declared.changes
    ]


def _nearest(found: CompositeRuns, flip: NearestFlip) -> dict[str, Any]:
    return {
        "weights": _by(found.metrics, flip.weights),
        "rival": None if flip.rival is None else found.systems[flip.rival],
        "change": flip.change,
        "overtakes": flip.overtakes,
        "method": flip.method,
        "reason": flip.reason,
    }


def _by(names: Sequence[str], values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def _named(found: CompositeRuns, leaders: Sequence[int]) -> list[str]:
    return [found.systems[one] for one in leaders]


def _pareto_check(batch: str, rows: Sequence[ExperimentRow], by: Criteria) -> CheckRow:
    """It tells against nobody: whoever is on the front may be the right one for somebody."""
    systems = [row.target for row in rows]
    front = pareto_front(by.means, by.higher_is_better, resamples=by.resampled)
    sentences = front_in_words(systems, by.metrics, front)
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
