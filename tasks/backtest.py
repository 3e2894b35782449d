"""A gate held against the past: what it would have said of all pairs there are, and how often it errs by chance."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from stats.pair_share import pair_share
from stats.share import share_estimate
from store.backtest_report import Backtest, Counted, PastDecision, PlantedFall, Relation, Share, Simulated
from store.decisions import sentence_of
from store.parquet import Store
from store.records import ExperimentRow
from tasks.past_pairs import Past
from tasks.replay import COMPARED, History, Replay
from tasks.replicates import Replicates

LIMIT, REPLICATES = 200, 200
TIMES = (1, 2, 3)
"""The margin so many times over is what is planted."""

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
    """What a gate would have said of the newest `limit` pairs, how often it errs on pairs of the same target, and what
    it says of `replicates` of each pair without a difference and with a planted one. Nothing is called, or kept.

    `spec` says what the metrics are, and at which level; without one, each candidate's own spec does.
    """
    past, history = Past(store=store, gate=gate), History(store=store, gate=gate, spec=spec)
    pairs = past.pairs() if gate.compares else []
    replays = [(pair, history.of_pair(pair.candidate, pair.baseline)) for pair in pairs[:limit]]
    repeated = [row for row in past.experiments if gate.compares and row.repetitions > 1][:limit]
    halves = [(row, history.of_halves(row, seed)) for row in repeated]
    decisions = [_decision(pair.candidate, pair.baseline, pair.relation, replay) for pair, replay in replays]
    of_halves = [_decision(row, row, "halves", replay) for row, replay in halves]
    fit = [replay for _, replay in replays if _is_measured(replay)]
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


def _decision(candidate: ExperimentRow, baseline: ExperimentRow, relation: Relation, replay: Replay) -> PastDecision:
    ruled, conclusion = replay.rulings, replay.conclusion
    return PastDecision(
        candidate_experiment_id=candidate.experiment_id,
        candidate=candidate.name,
        baseline_experiment_id=baseline.experiment_id,
        baseline=baseline.name,
        started_at=candidate.started_at,
        relation=relation,
        is_same_target=candidate.target_version == baseline.target_version,
        is_the_same_twice=replay.is_the_same_twice,
        conclusion=conclusion,
        is_refused=conclusion == "NOT ENOUGH EVIDENCE" and bool(replay.refused),
        broken=[f"{one.rule} {one.metric}" for one in ruled if one.outcome == "broken"],
        because=sentence_of(conclusion, [one.as_dict() for one in ruled]),
        n_shared=replay.n_shared,
    )


def _counted(decisions: Sequence[PastDecision]) -> Counted:
    """Of pairs of the same target, those that are the same twice are counted apart."""
    twice = [one for one in decisions if one.is_same_target and one.is_the_same_twice and not one.is_refused]
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
        same_twice=len(twice),
        guarded=sum(any(rule.startswith("guard ") for rule in one.broken) for one in counted),
        experiments=len(
            {each for one in counted for each in (one.candidate_experiment_id, one.baseline_experiment_id)}
        ),
        fail=Share(
            count=found.n_yes, n=found.n_pairs, share=found.share, low=found.low, high=found.high, method=found.method
        ),
    )


def _is_measured(replay: Replay) -> bool:
    """Whether all guards and goals could be held against something."""
    return not any(isinstance(one, str) for rule, one in replay.measured if rule.kind in COMPARED)


def _simulated(gate: GateSpec, fit: Sequence[Replay], replicates: int, seed: int) -> Simulated:
    drawn = [Replicates(replay=replay, count=replicates, seed=seed + place) for place, replay in enumerate(fit)]
    nothing = [one.said() for one in drawn]
    return Simulated(
        pairs=len(fit),
        replicates=replicates,
        seed=seed,
        failed=_share(said.failed for said in nothing),
        passed=_share(said.passed for said in nothing),
        open=_share(~said.failed & ~said.passed for said in nothing),
        falls=[_fall(drawn, metric, margin, times) for metric, margin in gate.guards.items() for times in TIMES],
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
        let_through=_share(said.passed for said in found),
    )


def _share(found: Iterable[npt.NDArray[np.bool_]]) -> Share:
    """Of all replicates. The interval is that of the draws: other pairs might give another share."""
    yes = np.concatenate(list(found)).astype(float)
    one = share_estimate(yes)
    return Share(count=int(yes.sum()), n=one.n, share=one.share, low=one.low, high=one.high, method=one.method)


def _notes(gate: GateSpec) -> list[str]:
    notes = []
    if not gate.compares:
        notes.append("it has floors alone, which compare with nothing: there are no pairs to hold it against")
    if gate.batch is not None:
        notes.append("it looks after each batch; here it decided on all examples at once, which decides more often")
    if gate.bridge is not None:
        notes.append("it bridges other judges by asking anew; here nobody is asked, and such pairs are refused")
    return notes
