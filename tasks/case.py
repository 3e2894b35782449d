"""One gate held against one candidate: what each of its rules rests on, and what comes of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version

from prefect.context import FlowRunContext

from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from store.decisions import sentence_of
from store.parquet import Store
from store.progress import spent_by_group
from store.records import (
    DecisionConclusion,
    DecisionRow,
    ExperimentRow,
    VerdictRow,
    dependent_id,
    derived_id,
    now,
    to_json,
)
from store.repository import revision
from store.values import MetricValues
from tasks.baselines import no_baseline
from tasks.bridge import Bridged, bridge_row, bridged
from tasks.comparability import Difference, differences, refused
from tasks.conclude import Evidence, conclude
from tasks.controls import unfit_judges
from tasks.looks import Looks, difference_looked_at, looks_at, mean_looked_at
from tasks.matched import Matched, both_sided, matched
from tasks.measured import measured_difference, measured_mean
from tasks.measured_whole import measured_whole
from tasks.power import seeable
from tasks.rules import Measured, Rule, Ruling, concluded, rules_of, rulings
from tasks.sides import Side, Sides, counts_of, numbers_of, scale_of, told_apart
from tasks.weigh import clusters_in, resting_on, values_of


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate, one candidate, and what it is compared with."""

    store: Store
    spec: ExperimentSpec
    gate: GateSpec
    candidate: ExperimentRow
    baseline: ExperimentRow | None

    @cached_property
    def decision(self) -> DecisionRow:
        conclusion, code, context = self.conclusion, revision(), FlowRunContext.get()
        reasons, policy = to_json([one.as_dict() for one in self.rulings]), self.gate.model_dump_json()
        base = self.baseline.experiment_id if self.baseline else None
        evidence = to_json(
            [{**one.as_dict(), "text": None} for one in self.rulings]
        )  # worded otherwise, it is the same
        candidate = self.candidate.experiment_id
        identity = dependent_id("dec", candidate, candidate, base or "", policy, str(self.spec.level), evidence)
        return DecisionRow(
            decision_id=identity,
            gate=self.gate.name,
            run_group=self.candidate.run_group,
            candidate_experiment_id=candidate,
            baseline_experiment_id=base,
            conclusion=conclusion,
            summary=sentence_of(conclusion, [one.as_dict() for one in self.rulings]),
            reasons=reasons,
            policy=policy,
            level=self.spec.level,
            comparability=to_json([one.as_dict() for one in self.differences]),
            n_shared=self.matched.n_shared if self.matched else None,
            flow_run_id=str(context.flow_run.id) if context and context.flow_run else None,
            git_commit=code.commit,
            evalflows_version=version("evalflows"),
            looks=len(self.looks.after) if self.looks else None,
            calls_saved=self._calls_saved(),
            decided_at=now(),
        )

    @property
    def conclusion(self) -> DecisionConclusion:
        return concluded(self.rulings)

    @cached_property
    def looks(self) -> Looks | None:
        """How far it has come, where the gate looks after each batch."""
        if self.gate.batch is None:
            return None
        together = [row for row in (self.candidate, self.baseline) if row is not None]
        return looks_at(self.store, [row for row in together if row.run_group == self.candidate.run_group])

    @cached_property
    def rulings(self) -> list[Ruling]:
        measured = [(rule, self._measured(rule)) for rule in rules_of(self.gate)]
        return rulings(measured, level=self.spec.level, fewest=self.gate.fewest, adjustment=self.gate.adjustment)

    def verdicts(self, decision_id: str) -> Iterator[VerdictRow]:
        """The differences of the metrics that the gate speaks of."""
        if self.baseline is None:
            return
        compared = [(metric, sides) for metric in self.gate.metrics if (sides := self._sides(metric)) is not None]
        evidence = [self._evidence(metric, sides) for metric, sides in compared]
        for (metric, sides), rests_on, said in zip(
            compared, evidence, conclude(evidence, self.spec.adjustment), strict=True
        ):
            yield VerdictRow(
                verdict_id=derived_id(decision_id, metric),
                decision_id=decision_id,
                run_group=decision_id,
                metric=metric,
                candidate_experiment_id=self.candidate.experiment_id,
                baseline_experiment_id=self.baseline.experiment_id,
                conclusion=said.conclusion,
                reason=said.reason,
                p_adjusted=said.p_adjusted,
                adjustment=said.adjustment,
                **numbers_of(rests_on),
                **seeable(rests_on.found),
                **counts_of(sides.candidate, sides.baseline),
            )

    @cached_property
    def matched(self) -> Matched | None:
        """Which examples both sides have; None where there is no baseline."""
        return matched(self.store, self.candidate, self.baseline) if self.baseline else None

    @cached_property
    def differences(self) -> Sequence[Difference]:
        if self.baseline is None or self.matched is None:
            return []
        return differences(self.store, self.candidate, self.baseline, self.matched.shared, self.spec)

    @cached_property
    def _values(self) -> Mapping[str, MetricValues]:
        return told_apart(list(values_of(self.store, self.candidate, self.spec)))

    @cached_property
    def _baseline_values(self) -> Mapping[str, MetricValues]:
        return told_apart(list(values_of(self.store, self.baseline, self.spec))) if self.baseline else {}

    @cached_property
    def _unfit(self) -> Mapping[str, str]:
        groups = {row.run_group for row in (self.baseline, self.candidate) if row is not None}
        found = {judge: why for group in sorted(groups) for judge, why in unfit_judges(self.store, group).items()}
        return resting_on(found, self.spec)

    @cached_property
    def _refused(self) -> Mapping[str, str]:
        return refused(self.differences)

    def _evidence(self, metric: str, sides: Sides) -> Evidence:
        one = self._values.get(metric)
        unfit = self._unfit.get(one.evaluator) if one else None
        margin = self.gate.guards.get(metric, sides.scale.declared.margin)
        if metric in self._refused and (across := self._bridged(metric, sides)):
            return Evidence(found=across.difference(), higher_is_better=sides.scale.higher_is_better, unfit=unfit)
        return replace(sides.evidence(self._refused.get(metric) or unfit), margin=margin)

    def _bridged(self, metric: str, sides: Sides) -> Bridged | None:
        """What the newer judge says of the baseline too; None where it was not asked."""
        row = bridge_row(self.store, self.spec, self.gate, self.baseline) if self.baseline else None
        anew = told_apart(list(values_of(self.store, row, self.spec))).get(metric) if row else None
        if row is None or anew is None or self.matched is None:
            return None
        if anew.evaluator_version != sides.candidate.evaluator_version:
            return None
        return bridged(self.store, sides, [one.example_id for one in self.matched.shared.examples], anew, row)

    def _sides(self, metric: str) -> Sides | None:
        one, other = self._values.get(metric), self._baseline_values.get(metric)
        if one is None or other is None or self.matched is None:
            return None
        ours, theirs = both_sided(self.matched.of_candidate(one), self.matched.of_baseline(other))
        return Sides(
            candidate=ours,
            baseline=theirs,
            clusters=self.matched.of_clusters(clusters_in(self.store, self.candidate)),
            scale=scale_of(one, self.spec),
            level=self.spec.level,
        )

    def _measured(self, rule: Rule) -> Measured | str:
        """What a rule is held against, or why there is nothing."""
        one = self._values.get(rule.metric)
        if one is None:
            return measured_whole(self.store, self.spec, self.candidate, rule)
        if unfit := self._unfit.get(one.evaluator):
            return f"nothing rests on it: {unfit}"
        if self.gate.batch is not None and self.looks is None:
            return "no batch is through yet, or it was begun without batches"
        if rule.kind in ("floor", "sure_floor"):
            return self._measured_mean(one)
        return self._measured_difference(rule)

    def _measured_difference(self, rule: Rule) -> Measured | str:
        if self.baseline is None:
            return no_baseline(self.spec, self.gate)
        if self.baseline.experiment_id == self.candidate.experiment_id:
            return "the candidate is the approved baseline itself"
        sides = self._sides(rule.metric)
        if sides is None or self.matched is None:
            return "the baseline has no such metric"
        widest = sides.scale.reach[1] - sides.scale.reach[0]
        if rule.kind == "guard" and rule.bound >= widest:
            return f"a margin of {rule.bound:g} is as wide as the metric: whatever happens, it could not be broken"
        if why := self._refused.get(rule.metric):
            across = self._bridged(rule.metric, sides)
            return across.measured() if across else f"refused: {why}"
        if self.looks is not None:
            return difference_looked_at(sides, self.looks, self.matched.candidate)
        return measured_difference(sides)

    def _calls_saved(self) -> int | None:
        """Model calls that what did not run would have made, by what the rest made; None where all was to run."""
        if self.looks is None or self.conclusion == "NOT ENOUGH EVIDENCE":
            return None  # nothing is saved by what is owed
        made, _, _ = spent_by_group(self.store, self.candidate.run_group)
        seen = self.looks.after[-1]
        return round(made * (self.looks.n_examples - seen) / seen)

    def _measured_mean(self, one: MetricValues) -> Measured | str:
        side = Side(values=one, clusters=clusters_in(self.store, self.candidate), scale=scale_of(one, self.spec))
        return mean_looked_at(side, self.looks) if self.looks else measured_mean(side, self.spec.level)
