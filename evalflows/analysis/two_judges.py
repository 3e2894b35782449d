"""Two judges of the same subjects: how far they agree, who is stricter, what they judge differently, what the other one
does to verdicts and gates, what it saves, and which of them agrees better with people.

The subjects are what was judged before, and again: answers of experiments, pairs of a comparison, or items of
production in a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from evalflows.analysis.baselines import baseline_row
from evalflows.analysis.differences import ExperimentPair, MetricReader, verdicts_on
from evalflows.analysis.evaluate_rules import conclusion_of, evaluate_rules
from evalflows.analysis.final_looks import at_level_of_look
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.analysis.labels import Kind, both_labels, join_labels
from evalflows.engine.judging_again import window_of
from evalflows.specs import hints
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GateSpec
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, metric_of
from evalflows.specs.target import RecordedTarget
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.stats.agreement import Agreement, KrippendorffAlpha, agreement, krippendorff_alpha
from evalflows.stats.means import ShareEstimate, share_estimate
from evalflows.stats.paired import PairedDifference, paired_difference
from evalflows.store.described import RuleOutcome
from evalflows.store.queries import two_judges as queries
from evalflows.store.queries.lookup import find_comparison, find_experiments, is_comparison, names_of
from evalflows.store.queries.two_judges import JUDGED_AGAIN, MetricJudge, Subjects, TwoJudgements
from evalflows.store.records import Conclusion, DecisionConclusion, ExperimentRow, VerdictRow, from_json
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

MOST_LABELS = 100
"""Distinct scores up to which kappa and alpha are computed; of more, their tables would be too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstLabels:
    """Both judges against people's labels of the same units: the share that agrees, or of numbers the mean error."""

    people_metric: str
    kind: Kind
    n: int
    before: float
    after: float
    difference: PairedDifference  # after minus before
    loss: bool | None  # whether the judge of after is significantly worse; None if neither is

    @property
    def is_error(self) -> bool:
        """Whether the figures are absolute errors, of which less is better."""
        return self.kind == "numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOfTwo:
    """One metric by both judges, over what both scored."""

    metric: str
    kind: Kind
    before: MetricJudge
    after: MetricJudge
    n: int
    share: ShareEstimate  # of units with the same score
    kappa: Agreement | None
    alpha: KrippendorffAlpha | None  # of numbers
    before_mean: float | None  # of pairs the candidate's win rate, like the difference; None of labels
    after_mean: float | None
    difference: PairedDifference | None
    stricter: Literal["before", "after"] | None  # whose scores are significantly worse; None if neither's are
    usd_saved_each: float | None  # what the judge of after saves per judgement; None if a price is not known
    flips: Sequence[TwoJudgements]  # the largest first
    n_lower: int  # of the flips, those with a lower value by the judge of after
    n_higher: int
    labels: AgainstLabels | None


@dataclass(frozen=True, slots=True)
class Found:
    """A verdict by one judge; of pairs, the figures are the win rate and its interval."""

    conclusion: Conclusion
    reason_code: str | None
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOfTwo:
    """The verdict on one metric by both judges."""

    metric: str
    candidate: str
    baseline: str
    before: Found
    after: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOfTwo:
    """What a gate says by both judges. Rules on measures of the answers have one estimate: the answers are the same."""

    gate: str
    candidate: str
    before: DecisionConclusion
    after: DecisionConclusion
    not_judged_again: tuple[str, str] | None  # the baseline, if the judge of after has not judged it, and the candidate
    rules_before: Sequence[RuleOutcome]
    rules_after: Sequence[RuleOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoJudges:
    """What was judged before, and again."""

    subjects: Subjects
    name: str
    before: Sequence[str]  # ids of experiments, one of a comparison, or the name of a trace evaluation
    after: Sequence[str]
    since: datetime | None  # of a window of production
    until: datetime | None
    is_complete: bool  # whether all was judged again
    confidence_level: float
    metrics: Sequence[MetricOfTwo]
    verdicts: Sequence[VerdictOfTwo]
    gates: Sequence[GateOfTwo]
    unscored: Sequence[tuple[MetricJudge, MetricJudge]]  # metrics of which both have scored nothing


class _Link(NamedTuple):
    """What was judged, and again; as in TwoJudges."""

    subjects: Subjects
    name: str
    before: Sequence[str]
    after: Sequence[str]
    spec: Any  # by which it was judged again
    is_complete: bool
    window: Sequence[datetime] = ()

    @property
    def owners(self) -> list[Sequence[str]]:
        """The ids of what has the judgements before, and after."""
        sides = [self.before, self.after]
        return [[*map(evaluation_id, side)] for side in sides] if self.subjects == "items" else sides

    @property
    def candidate(self) -> str | None:
        """The experiment whose wins are counted, if two are compared."""
        if self.subjects != "pairs" or len(self.spec.experiments) != 2:
            return None
        first, second = self.spec.experiments
        return str(second if first == (self.spec.baseline or first) else first)


def two_judges(store: Store, reference: str, people: str | None = None) -> TwoJudges:
    """Compare the judges of what was judged again: experiments, a comparison or a trace evaluation, given by what was
    judged again, or by what was judged before (then the newest of its kind).

    `people` is the metric of the labels; by default that of the judge's metric, or the only one. Raise InputError if it
    was not judged again.
    """
    check_people(store, people)
    link = _link(store, reference)
    subjects, window, owners = link.subjects, link.window, link.owners
    level, metrics = getattr(link.spec, "confidence_level", 0.95), []
    by_metric = grouped(
        (row.metric, row)
        for was, now in zip(*owners, strict=True)
        for row in queries.two_judgements(store, subjects, was, now, window)
    )
    before, after = ({j.metric: j for j in queries.metric_judges(store, subjects, side, window)} for side in owners)
    labels = queries.labels_of_units(store)
    for metric in _judged(before, after, by_metric):
        rows, is_higher_better = by_metric[metric], None
        if subjects != "pairs":
            is_higher_better = link.spec.direction(metric).higher_is_better
        elif link.candidate is not None:
            rows, is_higher_better = _oriented(rows, link.candidate), True
        against = _against_labels(rows, labels, people, level)
        metrics.append(_metric(rows, (before[metric], after[metric]), is_higher_better, level, against))
    verdicts, gates = _conclusions(store, link)
    since, until = window or (None, None)
    return TwoJudges(
        subjects=subjects,
        name=link.name,
        before=link.before,
        after=link.after,
        since=since,
        until=until,
        is_complete=link.is_complete,
        confidence_level=level,
        metrics=metrics,
        verdicts=verdicts,
        gates=gates,
        unscored=[(judge, after[name]) for name, judge in before.items() if name in after and name not in by_metric],
    )


def check_people(store: Store, people: str | None) -> None:
    """Raise InputError if nobody has given labels of this metric; None stands for any."""
    known = {*queries.labels_of_units(store).metric} if people else set()
    if people and people not in known:
        wanted = ", ".join(sorted(known)) or "none yet"
        raise InputError(f"people {people!r}: got no labels, wanted one of: {wanted}")


def _link(store: Store, reference: str) -> _Link:
    if is_comparison(store, reference):
        identity = find_comparison(store, reference)
    elif store.query("select 1 from source.watermarks where name = ? limit 1", [reference]):
        identity = reference
    else:
        identity = find_experiments(store, reference)[0]
    if (newest := queries.newest_again(store, identity)) is None:
        hint = hints.judge_again(reference).code
        raise NotFoundError(f"{reference!r}: has not been judged again, wanted {hint} first")
    again = newest.reference
    if newest.subjects == "pairs":
        (row,) = store.read("comparison_sets", again)
        before = from_json(row.metadata)[JUDGED_AGAIN]
        ((name,),) = store.query("select name from source.comparison_sets where comparison_id = ?", before)
        return _Link("pairs", name, before, [again], comparison_spec(row), row.state == "completed")
    if newest.subjects == "items":
        query = "select spec, state from source.watermarks where name = ? order by recorded_at desc limit 1"
        ((text, state),) = store.query(query, [again])
        of_window = TraceEvaluationSpec.model_validate_json(text)
        name = of_window.metadata[JUDGED_AGAIN]["evaluation"]
        return _Link("items", name, [name], [again], of_window, state == "completed", window_of(of_window))
    group = store.read("experiments", again)[0].run_group
    of_group: list[ExperimentRow] = [store.read("experiments", found)[0] for found in find_experiments(store, group)]
    spec, by_target = experiment_spec(of_group[0]), {row.target: row for row in of_group}
    sources = {t.name: t.experiment for t in spec.targets if isinstance(t, RecordedTarget) and t.experiment}
    rows, before = [by_target[name] for name in sources], [*sources.values()]
    is_complete = all(row.state == "completed" for row in rows)
    name = ", ".join(names_of(store, before))
    return _Link("answers", name, before, [row.experiment_id for row in rows], spec, is_complete)


def _judged(before: Mapping[str, MetricJudge], after: Mapping[str, MetricJudge], known: Mapping[str, Any]) -> list[str]:
    """Return the metrics of judges: of models, or of other versions than before; all if there are none."""
    shared = [(was, after[metric]) for metric, was in before.items() if metric in after]
    judged = [
        (was, now)
        for was, now in shared
        if was.judge_model or now.judge_model or was.evaluator_version != now.evaluator_version
    ]
    return [was.metric for was, _ in judged or shared if was.metric in known]


def _oriented(rows: Sequence[TwoJudgements], candidate: str) -> list[TwoJudgements]:
    """Return pairs with the points of the candidate, whichever side it is."""
    return [
        row
        if row.left_experiment_id == candidate or row.value is None or row.value_after is None
        else replace(row, value=1 - row.value, value_after=1 - row.value_after)
        for row in rows
    ]


def _metric(
    rows: Sequence[TwoJudgements],
    judges: tuple[MetricJudge, MetricJudge],
    is_higher_better: bool | None,
    level: float,
    against: AgainstLabels | None,
) -> MetricOfTwo:
    kind, together, difference = _kind(rows), [row.together for row in rows], None
    is_named, is_numbers = kind in ("pairs", "labels"), kind == "numbers"
    sides = [(row.label, row.label_after) if is_named else (row.value, row.value_after) for row in rows]
    first, second = [a for a, _ in sides], [b for _, b in sides]
    has_few = len({*first, *second}) <= MOST_LABELS
    if kind != "labels" and is_higher_better is not None:
        before, after = (np.array([getattr(row, name) for row in rows]) for name in ("value", "value_after"))
        difference = paired_difference(after, before, together, confidence_level=level, binary=kind == "yes_no")
    flips = [row for row, (a, b) in zip(rows, sides, strict=True) if a != b]
    if kind != "labels":
        flips.sort(key=lambda row: -abs(_gap(row)))
    sign, (was, now) = _sign(difference), (judge.usd_each for judge in judges)
    return MetricOfTwo(
        metric=rows[0].metric,
        kind=kind,
        before=judges[0],
        after=judges[1],
        n=len(rows),
        share=share_estimate([float(a == b) for a, b in sides], together, confidence_level=level),
        kappa=agreement(first, second, together, confidence_level=level) if has_few and not is_numbers else None,
        alpha=krippendorff_alpha(sides, together, metric="interval", confidence_level=level)
        if has_few and is_numbers
        else None,
        before_mean=None if difference is None else difference.baseline_mean,
        after_mean=None if difference is None else difference.candidate_mean,
        difference=difference,
        stricter=None if not sign else "after" if (sign < 0) == is_higher_better else "before",
        usd_saved_each=None if was is None or now is None else was - now,
        flips=flips,
        n_lower=sum(_gap(row) < 0 for row in flips),
        n_higher=sum(_gap(row) > 0 for row in flips),
        labels=against,
    )


def _sign(difference: PairedDifference | None) -> int:
    """Return 1 if a difference is significantly above 0, -1 if below, else 0."""
    if difference is None or difference.low is None or difference.high is None:
        return 0
    return (difference.low > 0) - (difference.high < 0)


def _gap(row: TwoJudgements) -> float:
    return 0.0 if row.value is None or row.value_after is None else row.value_after - row.value


def _kind(rows: Sequence[TwoJudgements]) -> Kind:
    if rows[0].left_experiment_id is not None:
        return "pairs"
    values = {value for row in rows for value in (row.value, row.value_after)}
    return "labels" if None in values else "yes_no" if values <= {0.0, 1.0} else "numbers"


def _against_labels(
    rows: Sequence[TwoJudgements], labels: pd.DataFrame, people: str | None, level: float
) -> AgainstLabels | None:
    """Return both judges against the labels of one metric; None if there are none of it, or of several."""
    units = {unit: row.unit for row in rows for unit in (row.unit, row.unit_after)}
    given, own = labels.assign(unit=labels.unit.map(units)).dropna(subset="unit"), rows[0].metric
    metrics = [*given.metric.unique()]
    chosen = people or (own if own in metrics else metrics[0] if len(metrics) == 1 else None)
    given = given[given.metric == chosen].drop_duplicates(["unit", "labeller"], keep="last")
    if given.empty:
        return None
    labelled = {*given.unit}
    table = pd.DataFrame([asdict(row) for row in rows if row.unit in labelled]).assign(status="scored", rate=None)
    sides = [
        table[["unit", "status", "rate", "together"]].assign(value=value.astype(float), label=label)
        for value, label in ((table.value, table.label), (table.value_after, table.label_after))
    ]
    try:
        before, after = (join_labels(side, given, is_pairs=_kind(rows) == "pairs") for side in sides)
    except InputError:  # numbers on one side, and labels on the other
        return None
    if before.kind != after.kind or before.people.empty:
        return None
    (was, now), is_error = (_fits(side.people, side.kind) for side in (before, after)), before.kind == "numbers"
    difference = paired_difference(now, was, before.cluster_ids, confidence_level=level, binary=not is_error)
    sign = _sign(difference)
    return AgainstLabels(
        people_metric=str(chosen),
        kind=before.kind,
        n=len(before.people),
        before=float(np.mean(was)),
        after=float(np.mean(now)),
        difference=difference,
        loss=(sign > 0) == is_error if sign else None,
    )


def _fits(people: pd.DataFrame, kind: Kind) -> Any:
    """Return for each unit whether a judge agrees with people; of numbers, how far it is from them."""
    if kind == "numbers":
        return np.abs(people.value_judge.to_numpy(dtype=float) - people.value.to_numpy(dtype=float))
    return np.array([float(a == b) for a, b in zip(*both_labels(people, kind), strict=True)])


def _conclusions(store: Store, link: _Link) -> tuple[list[VerdictOfTwo], list[GateOfTwo]]:
    """Return the verdicts, and what the gates say, by both judges."""
    if link.subjects == "items":
        return [], []
    if link.subjects == "pairs":
        of_pairs = [store.read("verdicts", owner) for owner in (*link.before, *link.after)]
        query = "select experiment_id, name from source.experiments where list_contains(?, experiment_id)"
        names = dict(store.query(query, [link.spec.experiments]))
        overall = [[row for row in rows if row.slice is None and not row.length_controlled] for rows in of_pairs]
        return _verdicts(overall, names, {}), []
    sides: list[list[ExperimentRow]] = [
        [store.read("experiments", identity)[0] for identity in side] for side in (link.before, link.after)
    ]
    (before, after), spec, reader = sides, link.spec, MetricReader(store)
    base = next((was for was, now in zip(before, after, strict=True) if now.target == spec.baseline), before[0])
    own = experiment_spec(before[-1]).model_copy(update={"baseline": base.target})
    verdicts = [
        [row for row in verdicts_on(reader, rows, of) if row.metric not in MEASURES]
        for rows, of in ((before, own), (after, spec))
    ]
    names = {was.experiment_id: now.target for was, now in zip(before, after, strict=True)}
    sources = {now.experiment_id: was.experiment_id for was, now in zip(before, after, strict=True)}
    return _verdicts(verdicts, names, sources), _gates(reader, before, after, spec)


def _verdicts(
    sides: Sequence[Sequence[VerdictRow]], names: Mapping[str, str], sources: Mapping[str, str]
) -> list[VerdictOfTwo]:
    """Return the verdicts that both sides have; `sources` are the experiments whose answers were judged again."""
    before, after = ({_key(row, sources): row for row in rows} for rows in sides)
    return [
        VerdictOfTwo(
            metric=metric,
            candidate=names.get(candidate, candidate),
            baseline=names.get(baseline, baseline),
            before=_found(row),
            after=_found(after[metric, candidate, baseline]),
        )
        for (metric, candidate, baseline), row in before.items()
        if (metric, candidate, baseline) in after
    ]


def _key(row: VerdictRow, sources: Mapping[str, str]) -> tuple[str, str, str]:
    candidate, baseline = row.candidate_experiment_id, row.baseline_experiment_id or ""
    return row.metric, sources.get(candidate, candidate), sources.get(baseline, baseline)


def _found(row: VerdictRow) -> Found:
    if row.comparison_id is None:
        return Found(row.conclusion, row.reason_code, row.difference, row.ci_low, row.ci_high)
    low, high = (None if end is None else (1 + end) / 2 for end in (row.ci_low, row.ci_high))
    return Found(row.conclusion, row.reason_code, row.candidate_mean, low, high)


def _gates(
    reader: MetricReader, before: Sequence[ExperimentRow], after: Sequence[ExperimentRow], spec: ExperimentSpec
) -> list[GateOfTwo]:
    """Return what the gates of the candidates say, with all examples at once, by both judges."""
    store, found = reader.store, []
    counterparts = {row.experiment_id: again for row, again in zip(before, after, strict=True)}
    is_several = len({row.run_group for row in before}) > 1
    for row in before[1:] if is_several else before:
        own, group = experiment_spec(row), find_experiments(store, row.run_group)
        at_level = at_level_of_look(store, own, row.run_group)
        again = spec.model_copy(update={"confidence_level": at_level.confidence_level})
        for gate in own.gates:
            if row.target not in own.candidates(gate):
                continue
            # perhaps judged by the judge before alone
            base = baseline_row(store, own, gate, [store.read("experiments", identity)[0] for identity in group])
            if is_several and gate.production is None and (not base or base.experiment_id not in counterparts):
                base = before[0]
            base_again = base and counterparts.get(base.experiment_id, base)
            candidate = counterparts[row.experiment_id]
            pairs = [
                ExperimentPair(reader=reader, spec=at_level, candidate=row, baseline=base),
                ExperimentPair(reader=reader, spec=again, candidate=candidate, baseline=base_again),
            ]
            found.append(_gate(gate.model_copy(update={"batch": None}), *pairs))
    return found


def _gate(gate: GateSpec, was: ExperimentPair, now: ExperimentPair) -> GateOfTwo:
    before, after = (GateEvaluation(gate=gate, pair=pair) for pair in (was, now))
    of_answers = {rule: estimate for rule, estimate in before.estimates if metric_of(rule.metric) in MEASURES}
    results = evaluate_rules(
        [(rule, of_answers.get(rule, estimate)) for rule, estimate in after.estimates],
        {**after.verdicts, **{m: verdict for m, verdict in before.verdicts.items() if metric_of(m) in MEASURES}},
        confidence_level=now.spec.confidence_level,
        min_examples=gate.min_examples,
        adjustment=gate.adjustment,
    )
    is_left = gate.compares and was.baseline is not None and was.baseline == now.baseline
    return GateOfTwo(
        gate=gate.name,
        candidate=was.candidate.name,
        before=before.conclusion,
        after=conclusion_of(results),
        not_judged_again=(was.baseline.experiment_id, was.candidate.experiment_id)
        if is_left and was.baseline
        else None,
        rules_before=before.rule_results,
        rules_after=results,
    )
