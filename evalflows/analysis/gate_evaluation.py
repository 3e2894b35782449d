"""Evaluate one gate on one candidate: the estimate behind each rule, the rule results and the decision, which is stored
once for the same evidence."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

from evalflows.analysis.baselines import approval_problem, baseline_name, no_baseline
from evalflows.analysis.comparability import JUDGE_DRIFT, Difference
from evalflows.analysis.differences import (
    NOTHING_DETECTABLE,
    ExperimentPair,
    TestedMetric,
    verdict_row,
    why_too_brief,
)
from evalflows.analysis.evaluate_rules import conclusion_of, evaluate_rules
from evalflows.analysis.experiment_metrics import (
    ExperimentMetricDifference,
    ExperimentMetricEstimate,
    PairedExperimentMetric,
)
from evalflows.analysis.flaky import why_too_many
from evalflows.analysis.pairing import MetricSample, PairedMetric
from evalflows.analysis.recalibration import Recalibrated, recalibrated, recalibration_row, rejudged_pair
from evalflows.analysis.rule_estimates import DifferenceEstimate, MeanOfSample
from evalflows.analysis.rules import Estimate, Rule, rules_of
from evalflows.analysis.slice_search import slice_check
from evalflows.analysis.verdicts import DifferenceTest, Verdict, classify
from evalflows.engine.revision import revision
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GatePolicy, GateSpec
from evalflows.specs.metric_names import LATENCY, metric_of, sliced_metric
from evalflows.store.described import RuleOutcome, deciding_rules
from evalflows.store.evidence import deleted_decisions, evidence_on
from evalflows.store.manifests import Written
from evalflows.store.queries.conclusions import approved
from evalflows.store.queries.progress import calls_of_group
from evalflows.store.records import (
    CheckRow,
    DecisionConclusion,
    DecisionRow,
    ExperimentRow,
    Reason,
    VerdictRow,
    after,
    controls_batch,
    dependent_id,
    from_json,
    now,
    to_json,
)
from evalflows.store.schemas import to_arrow
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.interim import InterimAnalyses
    from evalflows.analysis.production_baseline import ProductionComparison


@dataclass(frozen=True, kw_only=True)
class GateEvaluation:
    """One gate on one pair of experiments: the only place where a gate's decision is computed."""

    gate: GateSpec
    pair: ExperimentPair

    @cached_property
    def rule_results(self) -> list[RuleOutcome]:
        confidence_level = self.pair.spec.confidence_level
        return evaluate_rules(
            self.estimates,
            self.verdicts,
            confidence_level=confidence_level,
            min_examples=self.gate.min_examples,
            adjustment=self.gate.adjustment,
        )

    @property
    def conclusion(self) -> DecisionConclusion:
        return conclusion_of(self.rule_results)

    @property
    def summary(self) -> str:
        """The texts of the rules that led to the conclusion."""
        return "; ".join(rule.text for rule in deciding_rules(self.rule_results, self.conclusion))

    @cached_property
    def estimates(self) -> tuple[tuple[Rule, Estimate | Reason], ...]:
        """The estimate that each rule tests, or why there is none."""
        return tuple((rule, self._estimate(rule)) for rule in rules_of(self.gate))

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdicts on the metrics of the rules, adjusted together."""
        verdicts = classify([tested.test for tested in self._tested.values()], self.pair.spec.adjustment)
        return dict(zip(self._tested, verdicts, strict=True))

    @cached_property
    def _tested(self) -> Mapping[str, TestedMetric]:
        return {
            name: TestedMetric(pair=self.pair, paired=paired, test=self._difference_test(name, paired))
            for name in self.gate.metrics
            if (paired := self._so_far(name) or self.pair.experiment_metrics.get(name)) is not None
        }

    def _so_far(self, name: str) -> PairedMetric | None:
        """Return a metric on the pairs that have run, so that those of later batches are not missing."""
        paired, matched, interim_analyses = self._paired(name), self.pair.matched_in(name), self.interim_analyses
        if paired is None or matched is None or interim_analyses is None or self._lost(name):
            return paired
        from evalflows.analysis.interim import pairs_so_far  # late: few gates have batches

        return pairs_so_far(paired, interim_analyses.seen(matched.candidate))

    @cached_property
    def compared(self) -> Mapping[str, PairedMetric]:
        """The metrics of non-inferiority and superiority rules that have an estimate."""
        metrics = dict.fromkeys(
            rule.metric for rule, estimate in self.estimates if rule.is_difference and not isinstance(estimate, Reason)
        )
        return {metric: paired for metric in metrics if (paired := self._paired(metric))}

    def _paired(self, name: str, pair: ExperimentPair | None = None) -> PairedMetric | None:
        return (pair or self.pair).paired(name, with_lost=not self.gate.only_shared)

    def _lost(self, name: str) -> int:
        """Return how many examples that only the baseline has count for a metric."""
        is_counted = not self.gate.only_shared and self._production is None
        return self.pair.lost_places(name).size if is_counted else 0

    @property
    def is_refused(self) -> bool:
        """Whether a metric of its non-inferiority or superiority rules is not comparable."""
        return any(rule.is_difference and self.pair.why_refused(rule.metric) for rule, _ in self.estimates)

    @property
    def has_all_estimates(self) -> bool:
        """Whether all non-inferiority and superiority rules have an estimate."""
        return not any(isinstance(estimate, Reason) for rule, estimate in self.estimates if rule.is_difference)

    @cached_property
    def interim_analyses(self) -> "InterimAnalyses | None":
        """The interim analyses so far; None for a gate without batches, or before the first batch has finished."""
        if self.gate.batch is None:
            return None
        from evalflows.analysis.interim import interim_analyses_of  # late: few gates have batches

        candidate = self.pair.candidate
        running = [row for row in (candidate, self.pair.baseline) if row and row.run_group == candidate.run_group]
        return interim_analyses_of(self.pair.reader.store, running)

    def decision(self, flow_run_id: str | None = None) -> DecisionRow:
        """Return the row to store; `flow_run_id` is the flow run that decides, if any."""
        code, pair = revision(), self.pair
        results = [result.as_dict() for result in self.rule_results]
        notes = [self._production.note] if self._production and self.gate.compares else []
        notes += [*self._note_on_lost(), *pair.quarantine_notes]
        if (again := self._after_drift) is not None and again.baseline is not None:
            side = "the baseline's answers" if again.candidate is pair.candidate else "the answers of both sides"
            text = f"today's judge judged {side} again, and its scores decide: {again.baseline.experiment_id}"
            notes.append(Difference(what="rejudged", text=text))
        return DecisionRow(
            decision_id=self._identity,
            gate=self.gate.name,
            run_group=pair.candidate.run_group,
            candidate_experiment_id=pair.candidate.experiment_id,
            baseline_experiment_id=pair.baseline.experiment_id if pair.baseline else None,
            conclusion=self.conclusion,
            summary=self.summary,
            reasons=to_json(results),
            policy=self._policy,
            confidence_level=pair.spec.confidence_level,
            comparability=to_json([asdict(difference) for difference in (*pair.differences, *notes)]),
            n_shared=pair.matched.n_shared if pair.matched else None,
            flow_run_id=flow_run_id,
            git_commit=code.commit,
            evalflows_version=version("evalflows"),
            interim_analyses=len(self.interim_analyses.after) if self.interim_analyses else None,
            calls_saved=self._calls_saved(),
            decided_at=now(),
        )

    def _note_on_lost(self) -> Iterator[Difference]:
        """Yield how many examples of the baseline the candidate has no answer to, if these count."""
        lost = max((self._lost(metric_of(name)) for name in self.gate.metrics), default=0)
        if lost and self.pair.baseline is not None:
            others = f"the other {lost} of the baseline's {self.pair.baseline.n_examples} examples"
            text = f"{others} count as missing for the candidate (only_shared: true leaves them out)"
            yield Difference(what="lost", text=text)

    def verdict_rows(self, decision_id: str) -> Iterator[VerdictRow]:
        """Yield the verdicts on the metrics of the gate's rules, as rows."""
        for name, verdict in self.verdicts.items():
            row = verdict_row(self._tested[name], verdict, decision_id)
            # what one look at all pairs detects is less than what interim analyses do
            yield row if self.interim_analyses is None else replace(row, **NOTHING_DETECTABLE)

    def slices(self, decision_id: str) -> Iterator[CheckRow]:
        """Yield the search of slices against an experiment: in the metrics of broken rules, else in those compared,
        since a mean can hide one that got worse."""
        pair = self.pair
        broken = [result.metric for result in self.rule_results if result.outcome == "broken"]
        searched = dict.fromkeys(map(metric_of, broken or self.gate.compared))
        metrics = [metric for metric in searched if metric in pair.values]
        if metrics and pair.matched and pair.matched.n_shared and not pair.is_against_itself:
            yield slice_check(decision_id, pair, metrics)

    @property
    def evidence(self) -> list[str]:
        """The owners of the rows that it rests on."""
        pair, rejudged = self.pair, self._rejudged if self.is_refused else None
        again = self._after_drift
        of_drift = () if again is None else (again.candidate, again.baseline)
        rows = [row for row in (pair.candidate, pair.baseline, rejudged, *of_drift) if row is not None]
        owners = {name for row in rows for name in (row.experiment_id, row.snapshot_id, controls_batch(row.run_group))}
        owners |= {*pair.quarantine.owners} if pair.quarantine else set()
        owners |= {e.batch_id for side in pair.exclusions for e in side.values() if e.batch_id is not None}
        if self._production is not None:
            owners |= {*self._production.owners}
        elif pair.baseline is not None and (
            approval := approved(pair.reader.store, baseline_name(pair.spec, self.gate))
        ):
            owners |= {approval.baseline_id} if approval.experiment_id == pair.baseline.experiment_id else set()
        return sorted(owners)

    @cached_property
    def _rejudged(self) -> ExperimentRow | None:
        """The experiment in which the baseline's answers were scored again; None if there is none."""
        pair = self.pair
        if pair.baseline is None:
            return None
        return recalibration_row(pair.reader.store, pair.spec, self.gate, pair.candidate, pair.baseline)

    @cached_property
    def _after_drift(self) -> ExperimentPair | None:
        """Both sides as today's judge judges them, after a drift; None if it did not."""
        is_drifted = any(difference.what == JUDGE_DRIFT for difference in self.pair.differences)
        return rejudged_pair(self.pair) if self.gate.judge_drift == "rejudge" and is_drifted else None

    def _paired_after_drift(self, name: str) -> PairedMetric | None:
        """Return a metric on both sides by today's judge, if it has drifted and judged the baseline's answers again."""
        why = self.pair.why_refused(name)
        is_drifted = why is not None and why.code == "judge_drifted"
        return self._paired(name, self._after_drift) if is_drifted and self._after_drift is not None else None

    @property
    def _identity(self) -> str:
        """An id from the evidence: other wording does not change it."""
        candidate, baseline = self.pair.candidate.experiment_id, self.pair.baseline
        evidence = to_json([{**result.as_dict(), "text": None} for result in self.rule_results])
        base = baseline.experiment_id if baseline else ""
        return dependent_id(
            "dec", candidate, candidate, base, self._policy, str(self.pair.spec.confidence_level), evidence
        )

    @cached_property
    def _policy(self) -> str:
        """The gate and the spec's quarantine, as the decision keeps them."""
        spec = self.pair.spec
        added = {"quarantine": spec.quarantine, "quarantine_at_most": spec.quarantine_at_most}
        return GatePolicy.model_validate({**self.gate.model_dump(), **added}).stored

    @cached_property
    def _production(self) -> "ProductionComparison | None":
        """The comparison with a window of production; None for other baselines."""
        if self.gate.production is None:
            return None
        from evalflows.analysis.production_baseline import ProductionComparison  # late: few compare with production

        pair = self.pair
        return ProductionComparison(
            store=pair.reader.store,
            spec=pair.spec,
            window=self.gate.production,
            values=pair.values,
            judge_models=pair.reader.judge_models(pair.candidate),
        )

    def _difference_test(self, name: str, paired: PairedMetric | PairedExperimentMetric) -> DifferenceTest:
        if isinstance(paired, PairedExperimentMetric):
            why = self.pair.why_refused(name) or paired.why_not_compared
            return paired.difference_test(why, self.gate.non_inferiority.get(name))
        if recalibration := self._recalibrated(name, self._paired(name) or paired):
            higher = paired.scale.higher_is_better
            return DifferenceTest(
                estimate=recalibration.difference(), higher_is_better=higher, exclusion=self.pair.why_excluded(name)
            )
        if (again := self._paired_after_drift(name)) is not None:
            return again.difference_test(self.pair.why_excluded(name), self.gate.non_inferiority.get(name))
        return self.pair.difference_test(paired, self.gate.non_inferiority.get(name))

    def _recalibrated(self, name: str, paired: PairedMetric) -> Recalibrated | None:
        """Return the metric with the newer judge's scores of the baseline; None if it did not score the baseline."""
        why = self.pair.why_refused(paired.candidate.metric)
        if why is None or why.code != "not_comparable":
            return None
        reader, spec, matched, older = self.pair.reader, self.pair.spec, self.pair.matched_in(name), self.pair.baseline
        row = self._rejudged
        rejudged = reader.values(row, spec).get(paired.candidate.metric) if row else None
        if row is None or rejudged is None or matched is None or older is None:
            return None
        if rejudged.evaluator_version != paired.candidate.evaluator_version:
            return None
        ids = reader.example_ids(older.snapshot_id)
        lost = [ids[index] for index in self.pair.lost_places(name)] if self._lost(name) else []
        return recalibrated(reader.store, paired, [*matched.example_ids, *lost], rejudged, row)

    def _estimate(self, rule: Rule) -> Estimate | Reason:
        if self._drafts_problem:
            return Reason("drafts", self._drafts_problem)
        sample = self.pair.sample(rule.metric)
        if sample is None:
            return self._run_level(rule)
        if not sample.values.values.size:
            return Reason("no_such_slice", f"no example has {sliced_metric(rule.metric).slice}")
        if exclusion := self.pair.why_excluded(rule.metric, compared=rule.is_difference):
            return Reason(exclusion.code, f"excluded: {exclusion}")
        if self._invalid_problem:
            return Reason("invalid_trials", self._invalid_problem)
        if too_many := why_too_many(sample.values, self.pair.spec.quarantine_at_most):
            return too_many
        if self.gate.batch is not None and self.interim_analyses is None:
            return Reason("no_finished_batch", "no batch has finished yet, or the run was started without batches")
        if lost := self._lost(rule.metric):
            which = f"the candidate does not have {lost} of the baseline's examples"
            if self.interim_analyses is not None:
                return Reason("not_comparable", f"{which}, which interim analyses cannot count")
            is_left_out = metric_of(rule.metric) == LATENCY or sample.scale.leaves_out_missing
            if rule.is_difference and is_left_out:
                return Reason("not_comparable", f"{which}, and nothing bounds what it would have there")
        return self._difference_estimate(rule, sample) if rule.is_difference else self._mean_estimate(rule, sample)

    @cached_property
    def _approval_problem(self) -> str | None:
        pair = self.pair
        if pair.baseline is None or pair.spec.baseline_target(self.gate) is not None:
            return None
        name = baseline_name(pair.spec, self.gate)
        return approval_problem(pair.reader.store, self.gate, name, pair.baseline.experiment_id)

    @cached_property
    def _invalid_problem(self) -> str | None:
        """Why conversations of a side say little of it; None if the user kept to its goal in most."""
        sides = [row.experiment_id for row in (self.pair.candidate, self.pair.baseline) if row is not None]
        found = max(self.pair.reader.invalid_trials(sides), key=lambda side: side.share, default=None)
        if found is None or found.share <= self.gate.invalid_at_most:
            return None
        return f"{found.text}, wanted at most {self.gate.invalid_at_most:.0%}"

    @cached_property
    def _drafts_problem(self) -> str | None:
        """Why the candidate's examples prove nothing yet; None if it has no drafts."""
        candidate = self.pair.candidate
        if not (from_json(candidate.spec).get("dataset") or {}).get("drafts"):
            return None
        examples = self.pair.reader.examples(candidate.snapshot_id)
        drafts = len(examples.drafts())
        return f"{drafts} of {len(examples)} examples are drafts that nobody has accepted" if drafts else None

    def _run_level(self, rule: Rule) -> Estimate | Reason:
        """Return the estimate of a metric that one evaluator computes from all answers of the candidate."""
        if not self.pair.has_run_level_metrics:
            return Reason("no_such_metric", "no evaluator gives it, or several do")
        whole = self.pair.reader.experiment_metrics(self.pair.candidate, self.pair.spec).get(rule.metric)
        if whole is not None and whole.why_incomplete:
            return whole.why_incomplete
        if whole is None or (rule.kind == "threshold" and not whole.n_missing):
            return self.pair.reader.run_level(self.pair.candidate, self.pair.spec, rule)
        if self._invalid_problem:
            return Reason("invalid_trials", self._invalid_problem)
        if self.gate.batch is not None:
            return Reason("not_for_batches", "a metric of the whole experiment has no interim analyses")
        return (
            self._difference_of_experiments(rule)
            if rule.is_difference
            else ExperimentMetricEstimate(whole, self.pair.spec.confidence_level)
        )

    def _difference_of_experiments(self, rule: Rule) -> Estimate | Reason:
        if self._production is not None:
            return Reason("run_level_metric", "a metric of the whole experiment has no counterpart in production")
        if why := self._why_no_baseline():
            return why
        paired = self.pair.experiment_metrics.get(rule.metric)
        if paired is None:
            return Reason("no_such_metric", "the baseline has no such metric, or none with an interval")
        low, high = paired.candidate.bounds
        if rule.kind == "non_inferiority" and rule.bound >= high - low:
            return _too_wide(rule)
        if why := self.pair.why_refused(rule.metric):
            return Reason(why.code, f"refused: {why}")
        if why := paired.why_not_compared:
            return why
        return ExperimentMetricDifference(paired)

    def _why_no_baseline(self) -> Reason | None:
        """Return why there is no baseline to compare with; None if there is one."""
        if self.pair.baseline is None:
            return Reason("no_baseline", no_baseline(self.pair.spec, self.gate, self.pair.candidate.experiment_id))
        if self._approval_problem:
            return Reason("approved_by_others", self._approval_problem)
        if self.pair.is_against_itself:
            return Reason("candidate_is_baseline", "the candidate is the approved baseline itself")
        return None

    def _difference_estimate(self, rule: Rule, sample: MetricSample) -> Estimate | Reason:
        if self._production is not None:
            estimate = self._production.estimate(rule.metric, sample, self.gate.min_examples)
            return self._why_too_wide(rule, sample) or estimate
        if why := self._why_no_baseline():
            return why
        paired, matched = self._paired(rule.metric), self.pair.matched_in(rule.metric)
        if paired is None or matched is None:
            return Reason("no_such_metric", "the baseline has no such metric")
        if why := self._why_too_wide(rule, sample):
            return why
        if why := self.pair.why_refused(rule.metric):
            if (again := self._paired_after_drift(rule.metric)) is not None:
                return DifferenceEstimate(again, of_no_difference=rule.is_of_no_difference)
            recalibration = self._recalibrated(rule.metric, paired)
            return recalibration or Reason(why.code, f"refused: {why}")
        if brief := why_too_brief(paired, rule.bound):
            return brief
        if self.interim_analyses is not None:
            from evalflows.analysis.interim import interim_difference

            return interim_difference(paired, self.interim_analyses, matched.candidate)
        return DifferenceEstimate(paired, of_no_difference=rule.is_of_no_difference)

    def _why_too_wide(self, rule: Rule, sample: MetricSample) -> Reason | None:
        if rule.kind != "non_inferiority" or rule.bound < sample.scale.widest:
            return None
        return _too_wide(rule)

    def _mean_estimate(self, rule: Rule, sample: MetricSample) -> Estimate | Reason:
        if self.interim_analyses is not None:
            from evalflows.analysis.interim import interim_mean

            return interim_mean(sample, self.interim_analyses, self.pair.sample_places(rule.metric))
        if self._lost(rule.metric):
            sample = self.pair.sample(rule.metric, with_lost=True) or sample
        return MeanOfSample(sample, self.pair.spec.confidence_level)

    def _calls_saved(self) -> int | None:
        """Estimate the model calls saved by stopping early; None without batches, before a decision, and if calls may
        have been made that nobody recorded."""
        if self.interim_analyses is None or self.conclusion == "NOT ENOUGH EVIDENCE":
            return None  # an undecided gate still needs the remaining calls
        calls = calls_of_group(self.pair.reader.store, self.pair.candidate.run_group)
        seen = self.interim_analyses.after[-1]
        return None if calls is None else round(calls * (self.interim_analyses.n_examples - seen) / seen)


def _too_wide(rule: Rule) -> Reason:
    text = f"a margin of {rule.bound:g} is as wide as the metric's range: no difference could exceed it"
    return Reason("margin_too_wide", text)


def keep_decision(store: Store, evaluation: GateEvaluation, flow_run: str | None = None) -> DecisionRow:
    """Publish a decision with its verdicts, and return its row. Repeating a decision only updates its time.

    Args:
        store: The store.
        evaluation: The gate on a candidate and its baseline.
        flow_run: Id of the flow run that decides; None outside flows.

    Raise StorageError for evidence that no run wrote.
    """
    evidence = evidence_on(store, evaluation.evidence)
    row = evaluation.decision(flow_run)
    decided_at = after(_newest_decision(store, row))
    tables: dict[str, list[object]] = {}
    if before := store.read("decisions", row.decision_id):
        row = replace(before[0], recorded_at=decided_at)
    else:
        tables["verdicts"] = [*evaluation.verdict_rows(row.decision_id)]
        tables["checks"] = [*evaluation.slices(row.decision_id)]
        row = replace(row, decided_at=decided_at, recorded_at=decided_at)
    if deleted := deleted_decisions(store):
        text = f"an earlier decision is missing from this store: {deleted[0]}"
        if len(deleted) > 1:
            text = f"{len(deleted)} earlier decisions are missing from this store, such as {deleted[0]}"
        known = from_json(row.comparability) or []
        said = asdict(Difference(what="history", text=text))
        row = replace(row, comparability=to_json([*(entry for entry in known if entry["what"] != "history"), said]))
    tables["decisions"] = [row]
    contents = [(table, [to_arrow(table, rows)]) for table, rows in tables.items()]
    store.publish_all(row.decision_id, contents, Written(evidence=evidence, flow_run=flow_run))
    return row


def _newest_decision(store: Store, row: DecisionRow) -> datetime | None:
    """Return the time of the newest decision of the gate, or on the candidate; None if there is none."""
    query = "select max(recorded_at) from source.decisions where gate = ? or candidate_experiment_id = ?"
    ((newest,),) = store.query(query, [row.gate, row.candidate_experiment_id])
    return newest  # type: ignore[no-any-return]
