"""Backtest a gate: its decisions on past pairs of experiments, and its error rates on simulated ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evalflows.analysis.backtest.halves import RepetitionHalves
from evalflows.analysis.backtest.null_replicates import Replicates
from evalflows.analysis.backtest.past_pairs import Past
from evalflows.analysis.differences.experiment_pair import ExperimentPair
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.reports.backtest import Backtest, Counted, PastDecision, PlantedFall, Relation, Share, Simulated
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.stats.preferences.pair_share import pair_share
from evalflows.stats.share import share_estimate
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow

LIMIT, REPLICATES = 200, 200
TIMES = (1, 2, 3)
"""The planted regressions, as multiples of the margin."""

SEED = 0


def backtest(
    store: Store,
    gate: GateSpec,
    spec: ExperimentSpec | None = None,
    *,
    replicates: int = REPLICATES,
    limit: int = LIMIT,
    seed: int = SEED,
) -> Backtest:
    """Evaluate a gate on the newest `limit` pairs, on pairs of the same target, and on `replicates` simulations of each
    pair without a difference and with a planted regression. Makes no calls and stores nothing.

    `spec` declares the metrics and the confidence level; by default, each candidate's own spec does.
    """
    past, evaluations = Past(store=store, gate=gate), _Evaluations(reader=MetricReader(store), gate=gate, spec=spec)
    pairs = past.pairs() if gate.compares else []
    evaluated = [(pair, evaluations.of_pair(pair.candidate, pair.baseline)) for pair in pairs[:limit]]
    repeated = [row for row in past.experiments if gate.compares and row.repetitions > 1][:limit]
    decisions = [_decision(one, pair.baseline, pair.relation) for pair, one in evaluated]
    of_halves = [_decision(evaluations.of_halves(row, seed), row, "halves") for row in repeated]
    fit = [one for _, one in evaluated if one.has_all_estimates]
    return Backtest(
        gate=gate.name,
        policy=gate.model_dump(mode="json"),
        experiments=len(past.experiments),
        decisions=[*decisions, *of_halves],
        left_out=max(0, len(pairs) - limit),
        past=_counted([one for one in decisions if not one.is_same_target]),
        same_target=_counted([one for one in decisions if one.is_same_target]),
        halves=_counted(of_halves),
        simulated=_simulated(gate, fit, replicates, seed) if fit and replicates else None,
        notes=_notes(gate),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluations:
    """A gate's evaluations on stored experiments, without interim analyses and without recalibration."""

    reader: MetricReader
    gate: GateSpec
    spec: ExperimentSpec | None

    def of_pair(self, candidate: ExperimentRow, baseline: ExperimentRow) -> GateEvaluation:
        pair = ExperimentPair(reader=self.reader, spec=self._spec(candidate), candidate=candidate, baseline=baseline)
        return GateEvaluation(gate=self._policy, pair=pair)

    def of_halves(self, row: ExperimentRow, seed: int) -> GateEvaluation:
        pair = RepetitionHalves(
            reader=self.reader,
            spec=self._spec(row),
            candidate=row,
            baseline=row,
            metrics=tuple(self.gate.metrics),
            seed=seed,
        )
        return GateEvaluation(gate=self._policy, pair=pair)

    @property
    def _policy(self) -> GateSpec:
        return self.gate.model_copy(update={"batch": None, "recalibrate": None})

    def _spec(self, row: ExperimentRow) -> ExperimentSpec:
        return self.spec or self.reader.spec(row)


def _decision(one: GateEvaluation, baseline: ExperimentRow, relation: Relation) -> PastDecision:
    candidate, conclusion = one.pair.candidate, one.conclusion
    return PastDecision(
        candidate_experiment_id=candidate.experiment_id,
        candidate=candidate.name,
        baseline_experiment_id=baseline.experiment_id,
        baseline=baseline.name,
        started_at=candidate.started_at,
        relation=relation,
        is_same_target=candidate.target_version == baseline.target_version,
        has_identical_values=_is_the_same_twice(one),
        conclusion=conclusion,
        is_refused=conclusion == "NOT ENOUGH EVIDENCE" and one.is_refused,
        violates_non_inferiority=any(
            result.rule == "non_inferiority" and result.outcome == "broken" for result in one.rule_results
        ),
        broken=[f"{result.rule} {result.metric}" for result in one.rule_results if result.outcome == "broken"],
        because=one.summary,
        n_shared=one.pair.matched.n_shared if one.pair.matched else 0,
    )


def _counted(decisions: Sequence[PastDecision]) -> Counted:
    """Count decisions; pairs of one target with identical values are counted separately."""
    twice = [one for one in decisions if one.is_same_target and one.has_identical_values and not one.is_refused]
    counted = [one for one in decisions if not one.is_refused and one not in twice]
    failed = [one.conclusion == "FAIL" for one in counted]
    members = [
        (one.candidate_experiment_id, f"{one.baseline_experiment_id}{' again' * (one.relation == 'halves')}")
        for one in counted
    ]
    found = pair_share(np.array(failed, dtype=float), members)
    return Counted(
        n=len(decisions),
        failed=sum(failed),
        passed=sum(one.conclusion == "PASS" for one in counted),
        open=sum(one.conclusion == "NOT ENOUGH EVIDENCE" for one in counted),
        refused=sum(one.is_refused for one in decisions),
        identical=len(twice),
        failed_non_inferiority=sum(one.violates_non_inferiority for one in counted),
        experiments=len(
            {each for one in counted for each in (one.candidate_experiment_id, one.baseline_experiment_id)}
        ),
        fail=Share(
            count=found.n_yes, n=found.n_pairs, share=found.share, low=found.low, high=found.high, method=found.method
        ),
    )


def _is_the_same_twice(one: GateEvaluation) -> bool:
    """Whether both sides have identical values, without any random variation."""
    pairs = [(paired.candidate.values, paired.baseline.values) for paired in one.compared.values()]
    return bool(pairs) and all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in pairs)


def _simulated(gate: GateSpec, fit: Sequence[GateEvaluation], replicates: int, seed: int) -> Simulated:
    drawn = [Replicates(evaluation=one, count=replicates, seed=seed + place) for place, one in enumerate(fit)]
    nothing = [one.said() for one in drawn]
    return Simulated(
        pairs=len(fit),
        replicates=replicates,
        seed=seed,
        failed=_share(said.failed for said in nothing),
        passed=_share(said.passed for said in nothing),
        open=_share(~said.failed & ~said.passed for said in nothing),
        falls=[
            _fall(drawn, metric, margin, times) for metric, margin in gate.non_inferiority.items() for times in TIMES
        ],
    )


def _fall(drawn: Sequence[Replicates], metric: str, margin: float, times: int) -> PlantedFall:
    fall = times * margin
    found = [one.said({metric: fall}) for one in drawn]
    return PlantedFall(
        metric=metric,
        times=times,
        fall=fall,
        reached=float(np.mean([one.reachable(metric, fall) for one in drawn])),
        caught=_share(said.caught for said in found),
        passed=_share(said.passed for said in found),
    )


def _share(found: Iterable[npt.NDArray[np.bool_]]) -> Share:
    """The share over all replicates; its interval covers the simulation only, not the choice of pairs."""
    yes = np.concatenate(list(found)).astype(float)
    one = share_estimate(yes)
    return Share(count=int(yes.sum()), n=one.n, share=one.share, low=one.low, high=one.high, method=one.method)


def _notes(gate: GateSpec) -> list[str]:
    notes = []
    if not gate.compares:
        notes.append("this gate has only thresholds, which need no baseline: there are no pairs to test it on")
    if gate.batch is not None:
        notes.append(
            "this gate has interim analyses; the backtest decided once, on all examples, and so decides more often"
        )
    if gate.recalibrate is not None:
        notes.append("this gate recalibrates across judges; the backtest makes no calls and refuses such pairs")
    return notes
