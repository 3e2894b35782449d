"""Two judges of the same subjects: how far they agree, who is stricter, what they judge differently, what the other one
does to verdicts and gates, what it saves, and which of them agrees better with people.

The subjects are what was judged before, and again: answers of experiments, pairs of a comparison, or items of
production in a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from evalflows.analysis.baselines import baseline_row
from evalflows.analysis.differences import ExperimentPair, MetricReader, verdicts_of
from evalflows.analysis.evaluate_rules import conclusion_of, evaluate_rules
from evalflows.analysis.final_looks import at_level_of_look
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.analysis.labels import Kind, both_labels, join_labels
from evalflows.engine.judging_again import judged_before
from evalflows.specs import hints
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import MEASURES, metric_of
from evalflows.specs.target import RecordedTarget
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.stats.agreement import Agreement, KrippendorffAlpha, agreement, krippendorff_alpha
from evalflows.stats.means import ShareEstimate, share_estimate
from evalflows.stats.paired import PairedDifference, paired_difference
from evalflows.store.described import RuleOutcome
from evalflows.store.queries import two_judges as queries
from evalflows.store.queries.lookup import find_comparison, find_experiments, is_comparison, names_of
from evalflows.store.queries.two_judges import JUDGED_AGAIN, Judged, LabelOfUnit, MetricJudge, TwoJudgements
from evalflows.store.records import Conclusion, DecisionConclusion, ExperimentRow, VerdictRow, from_json
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.store import Store

MOST_LABELS = 100
"""Distinct scores up to which kappa and alpha are computed; of more, their tables would be too large."""

Subjects = Literal["answers", "pairs", "items"]

_KINDS: Mapping[Subjects, queries.Kind] = {"answers": "run", "pairs": "pair", "items": "item"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstLabels:
    """Both judges against people's labels of the same units: the share that agrees, or of numbers the mean error."""

    people_metric: str
    kind: Kind
    n: int
    before: float | None
    after: float | None
    difference: PairedDifference  # after minus before

    @property
    def is_error(self) -> bool:
        """Whether the figures are absolute errors, of which less is better."""
        return self.kind == "numbers"

    @property
    def loss(self) -> bool | None:
        """Whether the judge of after is significantly worse against people; None if neither is."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None or low <= 0 <= high:
            return None
        return (low > 0) == self.is_error


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOfTwo:
    """One metric by both judges, over what both scored."""

    metric: str
    kind: Kind
    higher_is_better: bool | None  # None of labels, and of pairs of more than two experiments
    before: MetricJudge
    after: MetricJudge
    n: int
    share: ShareEstimate  # of units with the same score
    kappa: Agreement | None
    alpha: KrippendorffAlpha | None  # of numbers
    before_mean: float | None  # of pairs the candidate's win rate, like the difference
    after_mean: float | None
    difference: PairedDifference | None
    flips: Sequence[TwoJudgements]  # the largest first
    n_lower: int  # of the flips, those with a lower value by the judge of after
    n_higher: int
    labels: AgainstLabels | None

    @property
    def stricter(self) -> Literal["before", "after"] | None:
        """Which judge gives significantly worse scores; None if neither does, or if that is not known."""
        found = self.difference
        if found is None or found.low is None or found.high is None or self.higher_is_better is None:
            return None
        if found.low <= 0 <= found.high:
            return None
        return "after" if (found.high < 0) == self.higher_is_better else "before"

    @property
    def saving(self) -> float | None:
        """What the judge of after saves in USD per judgement; None if a price is not known."""
        before, after = usd_each(self.before), usd_each(self.after)
        return None if before is None or after is None else before - after


def usd_each(judge: MetricJudge) -> float | None:
    """Return what a judgement costs, by those that were paid whole; None if there are none."""
    return judge.priced_usd / judge.n_priced if judge.priced_usd is not None and judge.n_priced else None


@dataclass(frozen=True, slots=True)
class Found:
    """A conclusion and its figures."""

    conclusion: Conclusion
    reason_code: str | None
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOfTwo:
    """The verdict on one metric by both judges; of pairs, the figures are the win rate and its interval."""

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
    since: datetime | None = None  # of a window of production
    until: datetime | None = None
    is_complete: bool  # whether all was judged again
    confidence_level: float
    metrics: Sequence[MetricOfTwo]
    verdicts: Sequence[VerdictOfTwo] = ()
    gates: Sequence[GateOfTwo] = ()
    unscored: Sequence[tuple[MetricJudge, MetricJudge]] = ()  # metrics of which both have scored nothing


class _Link(NamedTuple):
    """What was judged, and again."""

    subjects: Subjects
    name: str
    before: Sequence[Judged]
    after: Sequence[Judged]
    spec: Any  # by which it was judged again
    is_complete: bool


def two_judges(store: Store, reference: str, people: str | None = None) -> TwoJudges:
    """Compare the judges of what was judged again: experiments, a comparison or a trace evaluation, given by what was
    judged again, or by what was judged before (then the newest of its kind).

    `people` is the metric of the labels; by default that of the judge's metric, or the only one. Raise InputError if it
    was not judged again.
    """
    check_people(store, people)
    link = _link(store, reference)
    spec, kind = link.spec, _KINDS[link.subjects]
    level = getattr(spec, "confidence_level", 0.95)
    pairs = list(zip(link.before, link.after, strict=True))
    rows = [row for before, after in pairs for row in queries.two_judgements(store, kind, before, after)]
    judges = [{j.metric: j for j in queries.metric_judges(store, kind, side)} for side in (link.before, link.after)]
    labels, found = queries.labels_of_units(store), []
    by_metric: dict[str, list[TwoJudgements]] = {}
    for row in rows:
        by_metric.setdefault(row.metric, []).append(row)
    candidate = _candidate(store, link)
    for metric in _judged(judges[0], judges[1], by_metric):
        sides = judges[0][metric], judges[1][metric]
        higher = True if kind == "pair" else spec.direction(metric).higher_is_better
        of_metric = _oriented(by_metric[metric], candidate) if kind == "pair" else by_metric[metric]
        found.append(
            _metric(of_metric, sides, higher, labels, people, level, is_ordered=kind != "pair" or bool(candidate))
        )
    return TwoJudges(
        subjects=link.subjects,
        name=link.name,
        before=[judged.owner for judged in link.before],
        after=[judged.owner for judged in link.after],
        since=link.before[0].since,
        until=link.before[0].until,
        is_complete=link.is_complete,
        confidence_level=level,
        metrics=found,
        unscored=[
            (judge, judges[1][metric])
            for metric, judge in judges[0].items()
            if metric not in by_metric and metric in judges[1]
        ],
        **_conclusions(store, link),
    )


def check_people(store: Store, people: str | None) -> None:
    """Raise InputError if nobody has given labels of this metric; None stands for any."""
    known = dict.fromkeys(label.metric for label in queries.labels_of_units(store)) if people else {}
    if people and people not in known:
        raise InputError(f"people {people!r}: got no labels of it, wanted one of: {', '.join(known) or 'none yet'}")


def judged_by(store: Store, spec: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec) -> list[MetricJudge]:
    """Return who judged before what a spec is to judge again."""
    before = judged_before(spec.metadata)
    if isinstance(before, dict):
        return queries.metric_judges(store, "item", [_window(before, before["evaluation"])])
    kind: queries.Kind = "run" if isinstance(spec, ExperimentSpec) else "pair"
    return queries.metric_judges(store, kind, [Judged(owner=identity) for identity in before or ()])


def _window(window: Mapping[str, str], owner: str) -> Judged:
    since, until = (datetime.fromisoformat(window[end]) for end in ("since", "until"))
    return Judged(owner=owner, since=since, until=until)


def _link(store: Store, reference: str) -> _Link:
    if is_comparison(store, reference):
        return _of_comparison(store, find_comparison(store, reference))
    query = "select spec from source.watermarks where name = ? order by recorded_at desc limit 1"
    if found := store.query(query, [reference]):
        return _of_window(store, reference, TraceEvaluationSpec.model_validate_json(found[0][0]))
    ids = find_experiments(store, reference)
    if (again := queries.newest_again(store, ids[0])) is None:
        raise _not_judged_again(reference)
    group: str = store.read("experiments", again)[0].run_group
    of_group: list[ExperimentRow] = [store.read("experiments", i)[0] for i in find_experiments(store, group)]
    spec, by_target = experiment_spec(of_group[0]), {row.target: row for row in of_group}
    sources = {t.name: t.experiment or "" for t in spec.targets if isinstance(t, RecordedTarget)}
    before, rows = [*sources.values()], [by_target[name] for name in sources]
    return _Link(
        subjects="answers",
        name=", ".join(names_of(store, before)),
        before=[Judged(owner=identity) for identity in before],
        after=[Judged(owner=row.experiment_id) for row in rows],
        spec=spec,
        is_complete=all(row.state == "completed" for row in rows),
    )


def _of_comparison(store: Store, identity: str) -> _Link:
    if (again := queries.newest_again(store, identity)) is None:
        raise _not_judged_again(identity)
    (row,) = store.read("comparison_sets", again)
    (before,) = from_json(row.metadata)[JUDGED_AGAIN]
    ((name,),) = store.query("select name from source.comparison_sets where comparison_id = ?", [before])
    return _Link(
        "pairs", name, [Judged(owner=before)], [Judged(owner=again)], comparison_spec(row), row.state == "completed"
    )


def _of_window(store: Store, name: str, spec: TraceEvaluationSpec) -> _Link:
    window = judged_before(spec.metadata)
    if not isinstance(window, dict):
        query = f"""select spec from source.watermarks where (spec -> '$.metadata.{JUDGED_AGAIN}') ->> 'evaluation' = ?
                    order by recorded_at desc limit 1"""
        if not (found := store.query(query, [name])):
            raise _not_judged_again(name)
        spec = TraceEvaluationSpec.model_validate_json(found[0][0])
        window = spec.metadata[JUDGED_AGAIN]
    query = "select state from source.watermarks where name = ? order by recorded_at desc limit 1"
    ((state,),) = store.query(query, [spec.name])
    sides = [[_window(window, owner)] for owner in (window["evaluation"], spec.name)]
    return _Link("items", window["evaluation"], sides[0], sides[1], spec, state == "completed")


def _not_judged_again(reference: str) -> InputError:
    hint = hints.judge_again(reference).code
    return NotFoundError(f"{reference!r}: got what was not judged again, wanted what was: {hint} judges it again")


def _judged(before: Mapping[str, MetricJudge], after: Mapping[str, MetricJudge], known: Mapping[str, Any]) -> list[str]:
    """Return the metrics of judges: of models, or of other versions than before; all if there are none."""
    shared = [metric for metric in before if metric in after]
    judged = [
        metric
        for metric in shared
        if before[metric].judge_model
        or after[metric].judge_model
        or before[metric].evaluator_version != after[metric].evaluator_version
    ]
    return [metric for metric in judged or shared if metric in known]


def _candidate(store: Store, link: _Link) -> str | None:
    """Return the experiment whose wins are counted; None unless two are compared."""
    if link.subjects != "pairs" or len(link.spec.experiments) != 2:
        return None
    spec: ComparisonSpec = link.spec
    return next(experiment for experiment in spec.experiments if experiment != (spec.baseline or spec.experiments[0]))


def _oriented(rows: Sequence[TwoJudgements], candidate: str | None) -> list[TwoJudgements]:
    """Return pairs with the points of the candidate, whichever side it is."""
    return [
        row
        if candidate in (None, row.left_experiment_id) or row.value is None or row.value_after is None
        else replace(row, value=1 - row.value, value_after=1 - row.value_after)
        for row in rows
    ]


def _metric(
    rows: Sequence[TwoJudgements],
    judges: tuple[MetricJudge, MetricJudge],
    higher: bool | None,
    labels: Sequence[LabelOfUnit],
    people: str | None,
    level: float,
    *,
    is_ordered: bool,
) -> MetricOfTwo:
    is_pairs, together = rows[0].left_experiment_id is not None, [row.together for row in rows]
    kind = _kind(rows, is_pairs=is_pairs)
    sides = [
        (row.label, row.label_after) if kind in ("pairs", "labels") else (row.value, row.value_after) for row in rows
    ]
    first, second = [a for a, _ in sides], [b for _, b in sides]
    has_few = len({*first, *second}) <= MOST_LABELS
    has_values = kind != "labels" and is_ordered
    before, after = _values(rows) if has_values else (np.array([]), np.array([]))
    flips = [row for row, (a, b) in zip(rows, sides, strict=True) if a != b]
    if kind != "labels":
        flips.sort(key=lambda row: -abs(_gap(row)))
    return MetricOfTwo(
        metric=rows[0].metric,
        kind=kind,
        higher_is_better=higher if has_values else None,
        before=judges[0],
        after=judges[1],
        n=len(rows),
        share=share_estimate([float(a == b) for a, b in sides], together, confidence_level=level),
        kappa=agreement(first, second, together, confidence_level=level) if has_few and kind != "numbers" else None,
        alpha=krippendorff_alpha(sides, together, metric="interval", confidence_level=level)
        if has_few and kind == "numbers"
        else None,
        before_mean=float(before.mean()) if has_values else None,
        after_mean=float(after.mean()) if has_values else None,
        difference=paired_difference(after, before, together, confidence_level=level, binary=kind == "yes_no")
        if has_values
        else None,
        flips=flips,
        n_lower=sum(_gap(row) < 0 for row in flips),
        n_higher=sum(_gap(row) > 0 for row in flips),
        labels=_against_labels(rows, labels, people, level, is_pairs=is_pairs),
    )


def _gap(row: TwoJudgements) -> float:
    return 0.0 if row.value is None or row.value_after is None else row.value_after - row.value


def _values(rows: Sequence[TwoJudgements]) -> tuple[Any, Any]:
    return np.array([row.value for row in rows]), np.array([row.value_after for row in rows])


def _kind(rows: Sequence[TwoJudgements], *, is_pairs: bool) -> Kind:
    if is_pairs:
        return "pairs"
    values = [value for row in rows for value in (row.value, row.value_after)]
    if any(value is None for value in values):
        return "labels"
    return "yes_no" if {*values} <= {0.0, 1.0} else "numbers"


def _against_labels(
    rows: Sequence[TwoJudgements], labels: Sequence[LabelOfUnit], people: str | None, level: float, *, is_pairs: bool
) -> AgainstLabels | None:
    """Return both judges against the labels of one metric; None if there are none of it, or of several."""
    units = {unit: row.unit for row in rows for unit in (row.unit, row.unit_after)}
    given = [label for label in labels if label.unit in units]
    metrics = {label.metric for label in given}
    chosen = people or (rows[0].metric if rows[0].metric in metrics else None)
    if chosen is None and len(metrics) == 1:
        (chosen,) = metrics
    said = [label for label in given if label.metric == chosen]
    if chosen is None or not said:
        return None
    columns = ("value", "label", "labeller", "is_fair", "chance", "source")
    table = pd.DataFrame([{"unit": units[s.unit], **{name: getattr(s, name) for name in columns}} for s in said])
    table = table.drop_duplicates(["unit", "labeller"], keep="last")
    labelled = {*table.unit}
    rows = [row for row in rows if row.unit in labelled]
    try:
        before, after = (join_labels(_judgements(rows, end), table, is_pairs=is_pairs) for end in ("", "_after"))
    except InputError:  # numbers on one side, and labels on the other
        return None
    if before.kind != after.kind or before.people.empty:
        return None
    fits = [_fits(joined.people, joined.kind) for joined in (before, after)]
    together, is_error = before.cluster_ids, before.kind == "numbers"
    return AgainstLabels(
        people_metric=chosen,
        kind=before.kind,
        n=len(before.people),
        before=float(np.mean(fits[0])),
        after=float(np.mean(fits[1])),
        difference=paired_difference(fits[1], fits[0], together, confidence_level=level, binary=not is_error),
    )


def _judgements(rows: Sequence[TwoJudgements], end: str) -> pd.DataFrame:
    columns = [
        {
            "unit": row.unit,
            "value": getattr(row, f"value{end}"),
            "label": getattr(row, f"label{end}"),
            "status": "scored",
            "rate": None,
            "together": row.together,
        }
        for row in rows
    ]
    return pd.DataFrame(columns).astype({"value": float})


def _fits(people: pd.DataFrame, kind: Kind) -> Any:
    """Return for each unit whether a judge agrees with people; of numbers, how far it is from them."""
    if kind == "numbers":
        return np.abs(people.value_judge.to_numpy(dtype=float) - people.value.to_numpy(dtype=float))
    return np.array([float(a == b) for a, b in zip(*both_labels(people, kind), strict=True)])


def _conclusions(store: Store, link: _Link) -> dict[str, Any]:
    if link.subjects == "items":
        return {}
    if link.subjects == "pairs":
        return {"verdicts": _verdicts_of_pairs(store, link)}
    before, after = ([store.read("experiments", side.owner)[0] for side in of] for of in (link.before, link.after))
    reader = MetricReader(store)
    return {
        "verdicts": _verdicts(reader, before, after, link.spec),
        "gates": _gates(store, reader, before, after, link.spec),
    }


def _verdicts(
    reader: MetricReader, before: Sequence[ExperimentRow], after: Sequence[ExperimentRow], spec: ExperimentSpec
) -> list[VerdictOfTwo]:
    """Return the verdicts on the candidates' metrics of evaluators."""
    base = next((number for number, row in enumerate(after) if row.target == spec.baseline), 0)
    sides = []
    for rows, own in ((before, experiment_spec(before[-1])), (after, spec)):
        candidates = [row for row in rows if row is not rows[base]]
        pairs = [ExperimentPair(reader=reader, spec=own, candidate=row, baseline=rows[base]) for row in candidates]
        places = {row.experiment_id: number for number, row in enumerate(rows)}
        found = verdicts_of(pairs, spec.adjustment)
        sides.append({(places[row.candidate_experiment_id], row.metric): row for row in found})
    return [
        VerdictOfTwo(
            metric=metric,
            candidate=after[place].target,
            baseline=after[base].target,
            before=_found(row),
            after=_found(sides[1][place, metric]),
        )
        for (place, metric), row in sides[0].items()
        if metric not in MEASURES and (place, metric) in sides[1]
    ]


def _found(row: VerdictRow) -> Found:
    return Found(row.conclusion, row.reason_code, row.difference, row.ci_low, row.ci_high)


def _verdicts_of_pairs(store: Store, link: _Link) -> list[VerdictOfTwo]:
    before, after = (queries.win_rates_of(store, side[0].owner) for side in (link.before, link.after))
    others = {(rate.metric, rate.candidate_experiment_id, rate.baseline_experiment_id): rate for rate in after}
    return [
        VerdictOfTwo(
            metric=rate.metric,
            candidate=rate.candidate,
            baseline=rate.baseline,
            **{
                name: Found(one.conclusion, one.reason_code, one.win_rate, one.low, one.high)
                for name, one in sides.items()
            },
        )
        for rate in before
        if (other := others.get((rate.metric, rate.candidate_experiment_id, rate.baseline_experiment_id)))
        and (sides := {"before": rate, "after": other})
    ]


def _gates(
    store: Store,
    reader: MetricReader,
    before: Sequence[ExperimentRow],
    after: Sequence[ExperimentRow],
    spec: ExperimentSpec,
) -> list[GateOfTwo]:
    """Return what the gates of the candidates say, with all examples at once, by both judges."""
    counterparts = {row.experiment_id: again for row, again in zip(before, after, strict=True)}
    found, groups = [], {row.run_group: experiment_spec(row) for row in before}
    for group, own in groups.items():
        rows, in_group = [row for row in before if row.run_group == group], find_experiments(store, group)
        of_group: list[ExperimentRow] = [store.read("experiments", identity)[0] for identity in in_group]
        at_level = at_level_of_look(store, own, group)
        again = spec.model_copy(update={"confidence_level": at_level.confidence_level})
        for gate in own.gates:
            for row in rows:
                if row.target not in own.candidates(gate) or (row is before[0] and len(groups) > 1):
                    continue
                base = baseline_row(store, own, gate, of_group)  # perhaps judged by the judge before alone
                if len(groups) > 1 and gate.production is None and (not base or base.experiment_id not in counterparts):
                    base = before[0]
                pairs = [
                    ExperimentPair(reader=reader, spec=at_level, candidate=row, baseline=base),
                    ExperimentPair(
                        reader=reader,
                        spec=again,
                        candidate=counterparts[row.experiment_id],
                        baseline=base and counterparts.get(base.experiment_id, base),
                    ),
                ]
                found.append(_gate(gate, pairs))
    return found


def _gate(gate: GateSpec, pairs: Sequence[ExperimentPair]) -> GateOfTwo:
    gate = gate.model_copy(update={"batch": None})
    before, after = (GateEvaluation(gate=gate, pair=pair) for pair in pairs)
    of_answers = dict(before.estimates)
    results = evaluate_rules(
        [
            (rule, of_answers[rule] if metric_of(rule.metric) in MEASURES else estimate)
            for rule, estimate in after.estimates
        ],
        confidence_level=pairs[1].spec.confidence_level,
        min_examples=gate.min_examples,
        adjustment=gate.adjustment,
    )
    return GateOfTwo(
        gate=gate.name,
        candidate=pairs[0].candidate.name,
        before=before.conclusion,
        after=conclusion_of(results),
        not_judged_again=(pairs[0].baseline.experiment_id, pairs[0].candidate.experiment_id)
        if gate.compares and pairs[0].baseline and pairs[1].baseline == pairs[0].baseline
        else None,
        rules_before=before.rule_results,
        rules_after=results,
    )
