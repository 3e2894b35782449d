"""Decide on results without a store: the same tests and rules as in one, on scores in memory, and the same report."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from evalflows.analysis.differences import MetricReader, estimate_rows, verdicts_on
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.harnesses.assembling import ResultRow
from evalflows.harnesses.recording import Recorded, RecordedSystem, RunsOfMetric
from evalflows.reports.decisions import STORED, Decision, Tested, limits_of_figures, limits_of_inputs, with_search
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, base_metric, kept_apart
from evalflows.specs.thinking import IN_JSON
from evalflows.store.queries.conclusions import VERDICT_FIELDS
from evalflows.store.queries.shared_examples import SharedRounds
from evalflows.store.queries.values import MetricValues, Trials
from evalflows.store.records import (
    DecisionRow,
    EstimateRow,
    ExperimentRow,
    Json,
    Reason,
    VerdictRow,
    from_json,
    to_json,
)

if TYPE_CHECKING:
    from evalflows.reports.experiment_report import ExperimentOverview, ExperimentsReport, Failure, ThinkingAnswers
    from evalflows.reports.markdown_pages import GateReport
    from evalflows.reports.results import Result
    from evalflows.reports.worst import WorstItem
    from evalflows.store.snapshots import Examples

_NAMES = ("name", "candidate", "baseline", "approved_by", "signers")
"""Fields of a gate by which two decisions on a candidate do not differ."""
_OF_ESTIMATE = ("mean", "standard_error", "ci_low", "ci_high", "confidence_level", "method")
_NO_VERDICT: dict[str, Any] = dict.fromkeys(VERDICT_FIELDS)
_MOST = 10
"""Failures that are reported."""


class ScoresReader(MetricReader):
    """A reader of scores that no store has."""

    def __init__(self, systems: Sequence[RecordedSystem]) -> None:
        self._keeps_values, self._rows, self._read = True, None, {}
        self._systems = {one.row.experiment_id: one for one in systems}
        self._examples = {one.row.snapshot_id: one.examples for one in systems}

    def system(self, identity: str) -> RecordedSystem:
        return self._systems[identity]

    def runs(self, row: ExperimentRow) -> Mapping[str, RunsOfMetric]:
        """Return the scores of each metric of a system, by name."""
        found = self._systems[row.experiment_id].values
        return self._once(("runs", row.experiment_id), lambda: {one.metric.metric: one for one in found()})

    def experiment(self, identity: str) -> ExperimentRow:
        return self._systems[identity].row

    def examples(self, snapshot_id: str) -> "Examples":
        return self._examples[snapshot_id]

    def example_ids(self, snapshot_id: str) -> list[str]:
        return [*self._examples[snapshot_id].ids]

    def clusters(self, row: ExperimentRow) -> Sequence[str | None] | None:
        clusters = self._examples[row.snapshot_id].clusters
        has_any = self._once(("clusters", row.snapshot_id), lambda: any(cluster is not None for cluster in clusters))
        return clusters if has_any else None

    def trials(
        self, row: ExperimentRow, metric: MetricValues, *, pass_threshold: float, higher_is_better: bool
    ) -> Trials:
        runs, sign = self.runs(row)[metric.metric].runs, 1.0 if higher_is_better else -1.0
        passed, scored = sign * runs >= sign * pass_threshold, ~np.isnan(runs)
        return Trials(passed=passed.sum(axis=1).astype(float), scored=scored.sum(axis=1).astype(float))

    def run_level(self, *_: Any) -> Reason:
        return Reason("no_such_metric", "no evaluator gives it")

    def shared_rounds(self, candidate: ExperimentRow, baseline: ExperimentRow) -> SharedRounds:
        none = np.zeros(candidate.n_examples, dtype=bool)
        return SharedRounds(together=none, warm_up=none, from_ledger=none)

    def _metric_values(self, row: ExperimentRow) -> Iterator[MetricValues]:
        yield from (one.metric for one in self.runs(row).values())

    def _nothing(self, *_: Any) -> Any:
        return {}

    exclusions = judge_models = served_by = judge_streams = _nothing  # type: ignore[assignment]
    invalid_trials = input_groups = answers_alike = _nothing  # type: ignore[assignment]


def limits_of_alike(examples: "Examples") -> Iterator[str]:
    """Say whether more than a few examples have the same inputs, and no clusters tell so."""
    clustered = sum(cluster is not None for cluster in examples.clusters)
    return limits_of_inputs(len(examples), len({*examples.texts("inputs")}), clustered)


@dataclass(frozen=True, kw_only=True)
class ScoresInMemory:
    """Scores of systems in no store: the decisions of gates on them, and their report."""

    reader: ScoresReader
    made: Recorded
    evaluations: Sequence[GateEvaluation]

    @cached_property
    def decisions(self) -> list[Decision]:
        """The decisions, with what limits them."""
        found, looks = list[Decision](), dict[str, set[tuple[object, ...]]]()
        for evaluation, row in zip(self.evaluations, self._rows, strict=True):
            candidate, baseline = evaluation.pair.candidate, evaluation.pair.baseline
            against = None if baseline is None else baseline.name
            rules = {name: value for name, value in from_json(row.policy).items() if name not in _NAMES}
            before, look = looks.setdefault(candidate.experiment_id, set()), (row.confidence_level, to_json(rules))
            decision = Decision(
                **{name: getattr(row, name) for name in STORED if hasattr(row, name)},
                candidate=candidate.name,
                baseline=against,
                earlier_decisions=len(before - {look}),
                candidate_apart=candidate.name,
                baseline_apart=against,
            )
            before.add(look)
            tested = map(_tested, self._verdicts[row.decision_id])
            alike = limits_of_alike(self.reader.examples(candidate.snapshot_id))
            limits = [*alike, *limits_of_figures(decision, candidate.spec, tested)]
            decision = replace(decision, limits=limits)
            for check in evaluation.slices(row.decision_id):
                decision = with_search(decision, from_json(check.observed or "")["search"])
            found.append(decision)
        return found

    def report(self, is_whole: bool = False) -> "GateReport | ExperimentsReport":
        """Return the report of the decisions, or without one of the experiments; `is_whole`: with all examples that got
        worse."""
        from evalflows.reports.candidates import candidates_of_gates
        from evalflows.reports.experiment_report import ExperimentsReport
        from evalflows.reports.markdown_pages import GateReport
        from evalflows.reports.worst import SHOWN, Worst, drops

        results, most = self.results, None if is_whole else SHOWN
        found = drops(results, self.decisions, self._is_higher_better, lambda result: self._worst(result, most))
        nothing = "judge_checks drifts stepped panels types_apart invalid quarantine copies unpriced reduced_limits"
        others: dict[str, Any] = dict.fromkeys(nothing.split(), ())
        report = ExperimentsReport(
            experiments=[*map(self._overview, self.made.systems)],
            results=results,
            decisions=self.decisions,
            worst=found and Worst(examples=[found[1]], command=None),
            failures=self._failures(),
            excluded={},
            thinking=[*self._thinking()],
            hides_final=False,
            confusions=(),
            by_field=(),
            grids=(),
            **others,
        )
        if not self.decisions:
            return report
        return GateReport(
            decisions=self.decisions,
            reports=[report],
            candidates=candidates_of_gates(None, self.decisions, self.reader),
            calls_made=None,
            next_command=None,
            incomplete=None,
        )

    @cached_property
    def _rows(self) -> list[DecisionRow]:
        return [evaluation.decision() for evaluation in self.evaluations]

    @cached_property
    def _verdicts(self) -> dict[str, list[VerdictRow]]:
        """The verdicts of each decision."""
        pairs = zip(self.evaluations, self._rows, strict=True)
        return {row.decision_id: [*evaluation.verdict_rows(row.decision_id)] for evaluation, row in pairs}

    @cached_property
    def results(self) -> "list[Result]":
        """The results as a store has them: by metric, built-in measures last, the baseline's first."""
        estimates = [(row, one) for row in self.made.rows for one in estimate_rows(self.reader, row, self.made.spec)]
        places = {name: place for place, name in enumerate(MEASURES)}
        estimates.sort(key=lambda pair: (places.get(pair[1].metric, -1), pair[1].metric))
        return [self._result(*pair) for pair in estimates]

    def _result(self, row: ExperimentRow, estimate: EstimateRow) -> "Result":
        from evalflows.reports.results import Result

        base, n_answers = base_metric(estimate.metric), len(self.reader.system(row.experiment_id).results.rows)
        metric, declared = self.reader.runs(row)[base].metric, self.made.spec.metrics.get(estimate.metric)
        scored, missing = metric.scored, metric.n_missing
        others = n_answers - scored - missing
        if base != estimate.metric:
            others //= row.repetitions
            scored, missing = estimate.n_examples, max(0, row.n_examples - estimate.n_examples - others)
        names = {one.experiment_id: one.target for one in self.made.rows}
        verdict, fields = self._compared.get((row.experiment_id, estimate.metric), (None, _NO_VERDICT))
        against = None if verdict is None else verdict.baseline_experiment_id
        is_of_gate = verdict is not None and verdict.decision_id is not None
        if fields["reason"] is None and not is_of_gate and (verdict or not self.evaluations):
            fields = {**fields, "reason": estimate.reason, "reason_code": estimate.reason_code}
        return Result(
            experiment_id=row.experiment_id,
            experiment=row.name,
            target=row.target,
            metric=estimate.metric,
            evaluator=metric.evaluator,
            is_of_experiment=False,
            shares=None,
            **{name: getattr(estimate, name) for name in _OF_ESTIMATE},
            has_range=declared is not None and declared.range is not None,
            scored=scored,
            missing=missing,
            not_applicable=others,
            sampled_out=0,
            cost_usd=0.0 if estimate.metric in MEASURES or base != estimate.metric else None,
            baseline_experiment_id=against,
            baseline=names.get(against or ""),
            **fields,
        )

    @cached_property
    def _compared(self) -> dict[tuple[str, str], tuple[VerdictRow, dict[str, Any]]]:
        """The verdict that counts on each metric of each candidate: of the gate that decided last, else of the run."""
        of_run = [*verdicts_on(self.reader, self.made.rows, self.made.spec)]
        families = [
            ("run", [row for row in of_run if (row.metric in MEASURES) == is_measure]) for is_measure in (False, True)
        ]
        families += [(f"gate {row.gate}", self._verdicts[row.decision_id]) for row in self._rows]
        found = {}
        for family, verdicts in families:
            counted = {"family": family, "n_in_family": sum(row.p_adjusted is not None for row in verdicts)}
            for row in verdicts:
                if row.slice is None:
                    fields = {own: getattr(row, name) for own, name in VERDICT_FIELDS.items() if own not in counted}
                    found[row.candidate_experiment_id, row.metric] = row, fields | counted
        return found

    def _overview(self, one: RecordedSystem) -> "ExperimentOverview":
        from evalflows.reports.experiment_report import ExperimentOverview

        row, failed = one.row, sum(answer.has_failed for answer in one.results.rows)
        before = [o for o in self.made.rows if o.snapshot_id == row.snapshot_id and o.started_at <= row.started_at]
        kept = [name for name in ExperimentOverview.__slots__ if hasattr(row, name)]
        counts = ["cut_off", "recorded_calls", "application_calls", "unrecorded_answers", "unrecorded_judgements"]
        counts += ["estimated_calls", "unpriced_calls", "waiting_calls"]
        unknown = ["cached_share", "reasoning_share", "mean_latency_s", "estimated_usd"]
        others: dict[str, Any] = dict.fromkeys(counts, 0) | dict.fromkeys(unknown)
        return ExperimentOverview(
            **{name: getattr(row, name) for name in kept},
            planned=row.n_examples * row.repetitions,
            answered=len(one.results.rows) - failed,
            failed=failed,
            spent_usd=row.cost_usd,
            spent_reason=None if row.cost_usd is not None else "not_recorded",
            tried=len({other.target_version for other in before}),
            **others,
        )

    def _failures(self) -> "list[Failure]":
        from evalflows.reports.experiment_report import Failure

        found: dict[tuple[str, str, str], list[str]] = {}
        for one in self.made.systems:
            for row in one.results.rows:
                if row.has_failed:
                    found.setdefault((one.row.name, "target", str(row.error)), []).append(row.example_id)
                for metric in (name for name, score in row.scores.items() if score is None):
                    found.setdefault((one.row.name, kept_apart(metric), row.why_missing(metric)), []).append(
                        row.example_id
                    )
        failures = [
            Failure(experiment=name, source=source, error=error, count=len(ids), trace=None, example_id=min(ids))
            for (name, source, error), ids in found.items()
        ]
        return sorted(failures, key=lambda each: (-each.count, each.experiment, each.source, each.error))[:_MOST]

    def _thinking(self) -> "Iterator[ThinkingAnswers]":
        from evalflows.reports.experiment_report import ThinkingAnswers

        for one in sorted(self.made.systems, key=lambda one: one.row.target):
            texts = [to_json(row.output) for row in one.results.rows if row.output is not None and not row.has_failed]
            if thinking := sum(re.match(IN_JSON, text) is not None for text in texts):
                yield ThinkingAnswers(target=one.row.target, answers=thinking, of=len(texts))

    def _is_higher_better(self, result: "Result") -> bool:
        return bool(self.made.spec.direction(base_metric(result.metric)).higher_is_better)

    def _worst(self, result: "Result", most: int | None) -> "list[WorstItem]":
        """Return the examples that got worse by a result, the worst first: all, or at most so many."""
        from evalflows.reports.worst import WorstItem

        ids = result.experiment_id, str(result.baseline_experiment_id)
        sides = [self.reader.system(identity) for identity in ids]
        name, sign = base_metric(result.metric), 1.0 if self._is_higher_better(result) else -1.0
        matched = self.reader.matched(sides[0].row, sides[1].row)
        ours, theirs = (
            self.reader.runs(side.row)[name].metric.values[places]
            for side, places in zip(sides, (matched.candidate, matched.baseline), strict=True)
        )
        loss = np.nan_to_num(sign * (theirs - ours))
        worst = [int(index) for index in np.argsort(-loss, kind="stable")[:most] if loss[index] > 0]
        examples = sides[0].examples.rows(matched.candidate[worst].tolist())
        given = [next(raw for raw in side.results.metrics if kept_apart(raw) == name) for side in sides]
        rows_of = [grouped((row.example_id, row) for row in side.results.rows) for side in sides]
        directions = [*zip(sides, rows_of, given, (sign, -sign), strict=True)]
        items = []
        for index, example in zip(worst, examples, strict=True):
            new, old = (_shown(side, rows[example.example_id], name, of) for side, rows, name, of in directions)
            items.append(
                WorstItem(
                    example_id=example.example_id,
                    inputs=example.inputs,
                    value=float(ours[index]),
                    missing=new.missing,
                    outputs=new.outputs,
                    comment=None,
                    error=new.error,
                    baseline_value=float(theirs[index]),
                    baseline_missing=old.missing,
                    baseline_outputs=old.outputs,
                    baseline_error=old.error,
                    reference_outputs=example.reference_outputs,
                    metadata=example.metadata,
                    n_worse=int((loss > 0).sum()),
                )
            )
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A side's answer to an example that is shown: one that lacks its score, else the first of the worst or best."""

    outputs: Json | None
    error: str | None
    missing: int  # repetitions


def _shown(side: RecordedSystem, rows: Sequence[ResultRow], given: str, sign: float) -> _Shown:
    """Return the answer of a side to an example by the score that its file calls `given`; `sign` is 1 if the lowest is
    shown."""
    lacks = [given in row.scores and row.scores[given] is None for row in rows]

    def place(index: int) -> tuple[bool, bool, float, int]:
        score = rows[index].scores.get(given)
        return not lacks[index], score is None, sign * (score or 0.0), rows[index].repetition

    first = min(range(len(rows)), key=place)
    row = rows[first]
    return _Shown(
        outputs=None if row.output is None or row.has_failed else to_json(row.output),
        error=row.why_missing(given) if lacks[first] else row.error if row.has_failed else None,
        missing=sum(lacks) + side.row.repetitions - len(rows),
    )


def _tested(row: VerdictRow) -> Tested:
    of_slice = {} if row.slice is None else {"name": f"{row.metric}@{row.slice}"}
    return Tested(**{"name": row.metric} | {name: getattr(row, name) for name in Tested.__slots__[1:]} | of_slice)
