"""Robustness of a composite's winner: would it still win under other weights?"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import CompositeSpec, MetricSpec
from evalflows.stats.arrays import FloatArray
from evalflows.stats.weights import (
    Leaders,
    OneAtATime,
    ParetoFront,
    RunParts,
    WeightShares,
    means_of_examples,
    one_at_a_time,
    pareto_front,
    run_parts,
    share_of_weights,
)
from evalflows.store.queries.values import MetricValues, clusters_of, metric_values
from evalflows.store.records import CheckRow, ExperimentRow, Json, JudgementRow, derived_id, from_json, to_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

WEIGHTS, PARETO = "weights", "pareto"
"""Names of the checks."""

ScoresByExample = dict[str, list[JudgementRow]]
"""The scores of an example's repetitions, by the example's id."""

_CHECKS = """
select name, subject_id, passed, observed::varchar from checks where batch_id = ? and subject_kind = 'experiment'
order by name, subject_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeRuns:
    """The parts of a composite in every system."""

    composite: CompositeSpec
    systems: tuple[str, ...]
    runs: RunParts | None  # None if there is a reason
    n_examples: int  # examples with the composite in every system
    n_left_out: int  # examples with it in only some systems
    n_unmet: tuple[int, ...]  # runs with an unmet requirement, by system
    reason: str | None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The parts, in the order of the columns."""
        return tuple(self.composite.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The metrics that systems are compared by, each in its own unit."""

    metrics: tuple[str, ...]
    higher_is_better: tuple[bool, ...]
    means: FloatArray  # shape (systems, metrics)
    resampled: FloatArray | None  # of resampled examples, shape (resamples, systems, metrics)


def composite_runs(store: Store, rows: Sequence[ExperimentRow], composite: CompositeSpec) -> CompositeRuns:
    """Return the scaled parts of each run, over the examples whose composite every system has.

    They come from the composites' score rows: missing parts that count as the worst are 0, omitted parts are NaN, and
    all parts are 0 if a requirement is not met, whatever the weights.
    """
    by_system = [scores_by_example(store.read("judgements", row.experiment_id), composite.name) for row in rows]
    shared = sorted(set.intersection(*(set(by_example) for by_example in by_system)))
    reason = None if shared else f"no example has {composite.name} in every system"
    if composite.function is not None:
        reason = f"{composite.function} computes it, without weights"
    return CompositeRuns(
        composite=composite,
        systems=tuple(row.target for row in rows),
        runs=None if reason else _run_parts(by_system, shared, composite),
        n_examples=len(shared),
        n_left_out=len(set.union(*(set(by_example) for by_example in by_system))) - len(shared),
        n_unmet=tuple(
            sum(from_json(score.metadata)["unmet_requirement"] is not None for e in shared for score in by_example[e])
            for by_example in by_system
        ),
        reason=reason,
    )


def criteria(store: Store, rows: Sequence[ExperimentRow], spec: ExperimentSpec, names: Sequence[str]) -> Criteria:
    """Return the means of metrics over the examples that all systems have.

    `names` are the metrics; if empty, those of composites and those declared under `metrics`. Metrics without a common
    example are left out. Raise InputError for a name that is not a metric of these experiments.
    """
    of_system = [{values.metric: values for values in metric_values(store, row)} for row in rows]
    every = [*(m for c in spec.composites for m in c.weights), *spec.metrics]
    wanted = list(names) or [name for name in dict.fromkeys(every) if name not in spec.panel_members]
    known = {name for name in of_system[0] if _is_common([metrics.get(name) for metrics in of_system])}
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"over: got {unknown[0]!r}, wanted some of {', '.join(sorted(known))}")
    chosen = [name for name in wanted if name in known]
    if not chosen:
        empty = np.zeros((len(rows), 0))
        return Criteria(metrics=(), higher_is_better=(), means=empty, resampled=None)
    means, resampled = means_of_examples(
        [[metrics[name].values for name in chosen] for metrics in of_system],
        weights=[of_system[0][name].weights for name in chosen],
        clusters=clusters_of(store, rows[0].snapshot_id),
    )
    higher = tuple(spec.metrics.get(name, MetricSpec()).is_higher_better(name) for name in chosen)
    return Criteria(metrics=tuple(chosen), higher_is_better=higher, means=means, resampled=resampled)


def scores_by_example(scores: Sequence[JudgementRow], name: str) -> ScoresByExample:
    by_example: defaultdict[str, list[JudgementRow]] = defaultdict(list)
    for score in scores:
        is_of_composite = score.metric == name and score.evaluator == name and score.turn is None
        if is_of_composite and score.status == "scored" and score.example_id is not None:
            by_example[score.example_id].append(score)
    return dict(by_example)


def _run_parts(by_system: Sequence[ScoresByExample], shared: Sequence[str], composite: CompositeSpec) -> RunParts:
    """Weight runs so that each example counts once, and by its inverse sampling probability."""
    runs = [
        (system, score, 1 / ((score.sampling_rate or 1.0) * len(by_example[example])))
        for system, by_example in enumerate(by_system)
        for example in shared
        for score in by_example[example]
    ]
    return run_parts(
        [parts_of(score.metadata, tuple(composite.weights)) for _, score, _ in runs],
        [system for system, _, _ in runs],
        counts=[count for _, _, count in runs],
        aggregation=composite.aggregation,
    )


def parts_of(metadata: Json | None, metrics: Sequence[str]) -> list[float]:
    """Return the scaled parts that the metadata of a composite's score has; all 0 if a requirement is not met."""
    known = from_json(metadata)
    if known["unmet_requirement"] is not None:
        return [0.0] * len(metrics)
    return [np.nan if (part := known["parts"].get(metric)) is None else part for metric in metrics]


def _is_common(of_systems: Sequence[MetricValues | None]) -> bool:
    """Return whether all systems have the metric on some common example."""
    is_missing = [np.isnan(metric.values) for metric in of_systems if metric is not None]
    return len(is_missing) == len(of_systems) and not np.logical_or.reduce(is_missing).all()


class RobustnessSentences:
    """Sentences on one composite of a run group."""

    def __init__(self, runs: CompositeRuns) -> None:
        self._runs, self._systems, self._metrics = runs, runs.systems, runs.metrics

    def lead(self, declared: OneAtATime) -> str:
        """Say which system leads at the declared weights."""
        scores = ", ".join(f"{name} {score:.3f}" for name, score in zip(self._systems, declared.scores, strict=True))
        weights = "" if self._runs.composite.aggregation == "minimum" else f" ({self._weights(declared.weights)})"
        return f"{self._lead(declared.leaders)} at the declared weights{weights}: {scores}"

    def changes(self, declared: OneAtATime) -> list[str]:
        """Say which single weights, changed a little, change the winner."""
        if declared.reason:
            return [declared.reason]
        decisive = [change for change in declared.changes if change.changes_winner]
        if not decisive:
            return [f"changing any one weight by {percent(declared.change)} does not change the winner"]
        return [
            f"with {self._metrics[change.part]} at {change.weights[change.part]:.2f} instead of "
            f"{declared.weights[change.part]:.2f}, {self._lead(change.leaders)}"
            for change in decisive
        ]

    def shares(self, leaders: Leaders, weights: WeightShares) -> str | None:
        """Say in which share of all possible weights each system leads, the declared leaders first."""
        if weights.shares is None:
            return None
        order = sorted(range(len(self._systems)), key=lambda system: (system not in leaders, system))
        parts = [
            f"{self._systems[system]} {'still leads' if leaders == (system,) else 'leads'} in "
            f"{percent(weights.shares[system])}"
            for system in order
            if weights.shares[system] > 0 or system in leaders
        ]
        parts += [f"{self._names(tied)} tie in {percent(share)}" for tied, share in weights.ties]
        error = 100 * max(weights.standard_errors or [0.0])
        draws = f"{weights.draws} draws, standard error at most {error:.1f} points"
        return f"over all possible weights, {', '.join(parts)} ({draws})"

    def counted(self) -> list[str]:
        """Say which examples are left out, and which runs have an unmet requirement."""
        runs, sentences = self._runs, []
        if runs.n_left_out:
            name = runs.composite.name
            sentences.append(f"{runs.n_left_out} examples are left out because not every system has {name}")
        unmet = [f"{count} of {name}" for name, count in zip(self._systems, runs.n_unmet, strict=True) if count]
        if unmet:
            sentences.append(f"runs scored 0 by an unmet requirement, whatever the weights: {', '.join(unmet)}")
        return sentences

    def _weights(self, weights: Sequence[float]) -> str:
        return ", ".join(f"{metric} {weight:.2f}" for metric, weight in zip(self._metrics, weights, strict=True))

    def _lead(self, leaders: Leaders) -> str:
        return f"{self._names(leaders)} {'leads' if len(leaders) == 1 else 'tie for the lead'}"

    def _names(self, systems: Leaders) -> str:
        return " and ".join(self._systems[system] for system in systems)


def pareto_sentences(systems: Sequence[str], metrics: Sequence[str], front: ParetoFront) -> list[str]:
    """Say which systems are on the Pareto front, which dominate others, and how stable the front is."""
    on_front = [name for name, is_on_front in zip(systems, front.on_front, strict=True) if is_on_front]
    sentences = [f"on {', '.join(metrics)}, no system dominates {' or '.join(on_front)}"]
    for index, dominator in enumerate(front.dominated_by):
        if dominator is not None:
            better = f"{systems[dominator]} dominates {systems[index]}"
            sentences.append(f"{better}: at least as good on every metric, better on at least one")
    if front.shares is not None:
        shares = ", ".join(f"{name} {percent(share)}" for name, share in zip(systems, front.shares, strict=True))
        sentences.append(f"share of {front.resamples} resamples on the Pareto front: {shares}")
    return sentences


def percent(share: float) -> str:
    """Format a share without decimals; 0 % and 100 % only if exact."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


def weights_check(batch: str, runs: CompositeRuns, change: float) -> CheckRow:
    """Check that changing any one weight a little does not change the winner."""
    analysis = None
    if runs.runs is not None:
        weights = list(runs.composite.weights.values())
        analysis = one_at_a_time(runs.runs, weights, change), share_of_weights(runs.runs)
    sentences = _sentences(runs, analysis)
    decisive = [change.changes_winner for change in analysis[0].changes] if analysis else []
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


def _sentences(runs: CompositeRuns, analysis: tuple[OneAtATime, WeightShares] | None) -> list[str]:
    wording = RobustnessSentences(runs)
    if analysis is None:
        return [f"{runs.composite.name}: no weight analysis: {runs.reason}"]
    declared, shares = analysis
    parts = [
        wording.lead(declared),
        *wording.changes(declared),
        wording.shares(declared.leaders, shares),
        *wording.counted(),
    ]
    return [f"{runs.composite.name}: {sentence}" for sentence in parts if sentence]


def _observed(runs: CompositeRuns, analysis: tuple[OneAtATime, WeightShares] | None) -> dict[str, Any]:
    """Return all figures, by name; None without a weight analysis."""
    empty = dict.fromkeys(("weights", "scores", "shares", "standard_errors"))
    kept = {"n_examples": runs.n_examples, "n_left_out": runs.n_left_out, "reason": runs.reason}
    if analysis is None:
        return {**empty, **kept, "changes": [], "leaders": []}
    declared, shares = analysis
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
