"""Backtest a gate: its decisions on past pairs of experiments, and its error rates on simulated ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evalflows.analysis.backtest.halves import RepetitionHalves
from evalflows.analysis.backtest.null_replicates import Replicates
from evalflows.analysis.backtest.past_pairs import PastExperiments
from evalflows.analysis.differences.experiment_pair import ExperimentPair
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.differences.target_changes import is_same_target
from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.reports.backtest import Backtest, Counted, PastDecision, PlantedFall, Relation, Share, Simulated
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_slices import metric_of
from evalflows.stats.preferences.pair_share import pair_share
from evalflows.stats.share import share_estimate
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow

LIMIT, REPLICATES = 200, 200
MARGIN_MULTIPLES = (1, 2, 3)
"""The planted regressions, in multiples of the margin."""

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
    """Evaluate a gate on the newest `limit` pairs, on pairs of the same target, and on simulated replicates.

    Each pair is simulated `replicates` times without a difference, and as often with each planted regression. Makes no
    calls and stores nothing.

    `spec` declares the metrics and the confidence level; by default, each candidate's own spec does.
    """
    past = PastExperiments(store=store, gate=gate)
    evaluations = _Evaluations(reader=MetricReader(store), gate=gate, spec=spec)
    pairs = past.pairs() if gate.compares else []
    evaluated = [(pair, evaluations.of_pair(pair.candidate, pair.baseline)) for pair in pairs[:limit]]
    decisions = [_decision(evaluation, pair.baseline, pair.relation) for pair, evaluation in evaluated]
    of_halves = [_decision(evaluations.of_halves(row, seed), row, "halves") for row in _repeated(past, limit)]
    complete = [evaluation for _, evaluation in evaluated if evaluation.has_all_estimates]
    return Backtest(
        gate=gate.name,
        policy=gate.model_dump(mode="json"),
        experiments=len(past.experiments),
        decisions=[*decisions, *of_halves],
        left_out=max(0, len(pairs) - limit),
        past=_counted([decision for decision in decisions if not decision.is_same_target]),
        same_target=_counted([decision for decision in decisions if decision.is_same_target]),
        halves=_counted(of_halves),
        simulated=_simulated(gate, complete, replicates, seed) if complete and replicates else None,
        notes=_notes(gate),
    )


def _repeated(past: PastExperiments, limit: int) -> list[ExperimentRow]:
    """The newest experiments with repetitions, which can be split in halves."""
    return [row for row in past.experiments if past.gate.compares and row.repetitions > 1][:limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluations:
    """A gate's evaluations on stored experiments, without interim analyses, recalibration and production."""

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
            metrics=tuple(dict.fromkeys(map(metric_of, self.gate.metrics))),
            seed=seed,
        )
        return GateEvaluation(gate=self._policy, pair=pair)

    @property
    def _policy(self) -> GateSpec:
        baseline = None if self.gate.production else self.gate.baseline
        return self.gate.model_copy(update={"batch": None, "recalibrate": None, "baseline": baseline})

    def _spec(self, row: ExperimentRow) -> ExperimentSpec:
        return self.spec or self.reader.spec(row)


def _decision(evaluation: GateEvaluation, baseline: ExperimentRow, relation: Relation) -> PastDecision:
    candidate, conclusion = evaluation.pair.candidate, evaluation.conclusion
    broken = [result for result in evaluation.rule_results if result.outcome == "broken"]
    return PastDecision(
        candidate_experiment_id=candidate.experiment_id,
        candidate=candidate.name,
        baseline_experiment_id=baseline.experiment_id,
        baseline=baseline.name,
        started_at=candidate.started_at,
        relation=relation,
        is_same_target=bool(is_same_target(candidate, baseline)),
        has_identical_values=_has_identical_values(evaluation),
        conclusion=conclusion,
        is_refused=conclusion == "NOT ENOUGH EVIDENCE" and evaluation.is_refused,
        violates_non_inferiority=any(result.rule == "non_inferiority" for result in broken),
        broken=[f"{result.rule} {result.metric}" for result in broken],
        because=evaluation.summary,
        n_shared=evaluation.pair.matched.n_shared if evaluation.pair.matched else 0,
    )


def _counted(decisions: Sequence[PastDecision]) -> Counted:
    """Count decisions; pairs of the same target with identical values are counted separately."""
    comparable = [decision for decision in decisions if not decision.is_refused]
    identical = [decision for decision in comparable if decision.is_same_target and decision.has_identical_values]
    counted = [decision for decision in comparable if decision not in identical]
    failed = [decision.conclusion == "FAIL" for decision in counted]
    members = [_members(decision) for decision in counted]
    fail_share = pair_share(np.array(failed, dtype=float), members)
    return Counted(
        n=len(decisions),
        failed=sum(failed),
        passed=sum(decision.conclusion == "PASS" for decision in counted),
        open=sum(decision.conclusion == "NOT ENOUGH EVIDENCE" for decision in counted),
        refused=sum(decision.is_refused for decision in decisions),
        identical=len(identical),
        failed_non_inferiority=sum(decision.violates_non_inferiority for decision in counted),
        experiments=len(
            {*(decision.candidate_experiment_id for decision in counted)}
            | {*(decision.baseline_experiment_id for decision in counted)}
        ),
        fail=Share(
            count=fail_share.n_yes,
            n=fail_share.n_pairs,
            share=fail_share.share,
            low=fail_share.low,
            high=fail_share.high,
            method=fail_share.method,
        ),
    )


def _members(decision: PastDecision) -> tuple[str, str]:
    """The two experiments of a pair; the second half of the same experiment counts as another one."""
    suffix = " again" if decision.relation == "halves" else ""
    return decision.candidate_experiment_id, f"{decision.baseline_experiment_id}{suffix}"


def _has_identical_values(evaluation: GateEvaluation) -> bool:
    """Whether both sides have identical values, without any random variation."""
    pairs = [(paired.candidate.values, paired.baseline.values) for paired in evaluation.compared.values()]
    return bool(pairs) and all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in pairs)


def _simulated(gate: GateSpec, evaluations: Sequence[GateEvaluation], replicates: int, seed: int) -> Simulated:
    drawn = [
        Replicates(evaluation=evaluation, count=replicates, seed=seed + number)
        for number, evaluation in enumerate(evaluations)
    ]
    without_difference = [of_pair.decisions() for of_pair in drawn]
    return Simulated(
        pairs=len(evaluations),
        replicates=replicates,
        seed=seed,
        failed=_share(decisions.failed for decisions in without_difference),
        passed=_share(decisions.passed for decisions in without_difference),
        open=_share(~decisions.failed & ~decisions.passed for decisions in without_difference),
        falls=[
            _planted_regression(drawn, metric, margin, times)
            for metric, margin in gate.non_inferiority.items()
            for times in MARGIN_MULTIPLES
        ],
    )


def _planted_regression(drawn: Sequence[Replicates], metric: str, margin: float, times: int) -> PlantedFall:
    regression = times * margin
    by_evaluation = [of_pair.decisions({metric: regression}) for of_pair in drawn]
    return PlantedFall(
        metric=metric,
        times=times,
        fall=regression,
        reached=float(np.mean([of_pair.feasible_regression(metric, regression) for of_pair in drawn])),
        caught=_share(decisions.caught for decisions in by_evaluation),
        passed=_share(decisions.passed for decisions in by_evaluation),
    )


def _share(arrays: Iterable[npt.NDArray[np.bool_]]) -> Share:
    """The share of true values over all replicates. Its interval covers the simulation, but not the choice of pairs."""
    yes = np.concatenate(list(arrays)).astype(float)
    estimate = share_estimate(yes)
    return Share(
        count=int(yes.sum()),
        n=estimate.n,
        share=estimate.share,
        low=estimate.low,
        high=estimate.high,
        method=estimate.method,
    )


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
    if gate.production is not None:
        notes.append("this gate compares with production; the backtest compared experiments, example by example")
    return notes
