"""What people can label, and the items that they review: what was asked and answered, what judges and people said."""

import json
from collections.abc import Sequence
from datetime import datetime

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.queries.lookup import find_comparison, find_experiments, is_comparison
from evalflows.store.records import DataType, derived_id
from evalflows.store.sql import ask, ask_records, records_of
from evalflows.store.store import Store

NEWEST, NEWEST_JUDGED = 200, 12
"""Experiments and comparisons that are listed, at most of each."""

_RUNS_NAME = "select name, spec::varchar from experiments where experiment_id = $1"
_PAIRS_NAME = "select name, spec::varchar from comparison_sets where comparison_id = $1"

TRACES = "traces"
"""The subject of a review of traces of production."""

_GIVEN = "subject_id, other_run_id, value, label, data_type, labeller, comment, drawn, is_fair, recorded_at"
_LABEL = f"{_GIVEN} from current_labels where metric = $2 and subject_kind = 'run' and turn is null"

_REVIEW_RUN_LABELS = f"select {_LABEL} and experiment_id = $1 and other_run_id is null order by recorded_at"

_REVIEW_PAIR_LABELS = f"""
select {_LABEL} and (subject_id, other_run_id) in (
    select (left_run_id, right_run_id) from comparisons where comparison_id = $1)
order by recorded_at
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A run, a pair of runs of the same example, or a trace, with what one judge gave it."""

    run_id: str  # or a trace's id
    experiment_id: str  # empty for a trace
    other_run_id: str | None  # of a pair: the right run
    other_experiment_id: str | None
    example_id: str
    repetition: int
    lot: str  # its place in the random order, which `labels next` and the view current_labels use too
    together: str  # the cluster or example with which it was sampled
    value: float | None  # the judge's; of a pair, the left run's points
    spread: float | None
    other: float | None  # the value of another version of the judge
    is_judged: bool
    disagreement: float | None  # within a panel: the spread of its judges' numbers, else the share of pairs that differ

    @property
    def token(self) -> str:
        """What names the item on a page: neither its runs nor their experiments can be read from it."""
        return derived_id("review", self.run_id, self.other_run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLabel:
    """A person's label that counts."""

    run_id: str
    other_run_id: str | None
    value: float | None
    label: str | None
    data_type: DataType | None
    labeller: str | None
    comment: str | None
    drawn: str | None
    is_fair: bool
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedValues:
    """The values that a judge has given, from which the kind of its metric follows."""

    data_type: DataType | None
    low: float | None
    high: float | None
    are_whole: bool  # all numbers are whole
    labels: Sequence[str]
    declared: tuple[float, float] | None  # the metric's range in the experiment's spec
    higher_is_better: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """The items of one experiment or comparison, or traces, in random order, and the labels of one metric."""

    subject_id: str
    name: str
    is_pairs: bool
    is_traces: bool = False
    metric: str
    judged: JudgedValues | None  # None without a judge of that metric
    items: Sequence[ReviewItem]
    labels: Sequence[GivenLabel]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTexts:
    """What a person reads, as JSON; `other_outputs` of a pair's right run."""

    inputs: str | None
    attachments: str | None
    reference_outputs: str | None
    outputs: str | None
    other_outputs: str | None


def review_subject(store: Store, reference: str) -> tuple[str, bool]:
    """Return the id of an experiment or a comparison, and whether it is a comparison. Raise InputError if unknown."""
    known = "select count(*) from source.experiments where experiment_id = ?"
    if store.query(known, [reference])[0][0]:
        return reference, False
    if is_comparison(store, reference):
        return find_comparison(store, reference), True
    (identity,) = find_experiments(store, reference, just_one=True)
    return identity, False


def reviewed(store: Store, reference: str, metric: str) -> Reviewed:
    """Return what can be labelled. Raise InputError if it is unknown or has no answers, or no such pairs.

    If a judge has the metric, only the answers that it scored can be labelled, as in `labels next`.
    """
    identity, is_pairs = review_subject(store, reference)
    names, items, labels, values = ask(
        store,
        (_PAIRS_NAME if is_pairs else _RUNS_NAME, [identity]),
        (_REVIEW_PAIRS if is_pairs else _REVIEW_RUNS, [identity, metric]),
        (_REVIEW_PAIR_LABELS if is_pairs else _REVIEW_RUN_LABELS, [identity, metric]),
        (_VALUES, [identity, metric]),
    )
    found = records_of(ReviewItem, items)
    judged = [item for item in found if item.is_judged]
    name, spec = names[0]
    if not found:
        raise InputError(f"{name}: has no {f'pairs of {metric!r}' if is_pairs else 'answers'}, wanted some to label")
    return Reviewed(
        subject_id=identity,
        name=name,
        is_pairs=is_pairs,
        metric=metric,
        judged=_judged_values(values[0], spec, metric) if judged and not is_pairs else None,
        items=judged or found,
        labels=records_of(GivenLabel, labels),
    )


def reviewed_traces(store: Store, metric: str, traces: Sequence[str]) -> Reviewed:
    """Return these traces as items that can be labelled. Raise InputError without any."""
    items, labels, values = ask(
        store,
        (_REVIEW_TRACES, [list(traces), metric]),
        (_REVIEW_TRACE_LABELS, [list(traces), metric]),
        (_TRACE_VALUES, [metric]),
    )
    found = records_of(ReviewItem, items)
    if not found:
        raise InputError("traces: got none that meet the condition, wanted some to label")
    return Reviewed(
        subject_id=TRACES,
        name=TRACES,
        is_pairs=False,
        is_traces=True,
        metric=metric,
        judged=_judged_values(values[0], "{}", metric) if values[0][0] is not None else None,
        items=found,
        labels=records_of(GivenLabel, labels),
    )


def labelled_traces(store: Store, metric: str) -> list[str]:
    """Return the traces that people have labelled with a metric."""
    (rows,) = ask(store, (_LABELLED_TRACES, [metric]))
    return [trace for (trace,) in rows]


def item_texts(store: Store, item: ReviewItem) -> ItemTexts:
    """Return the texts of one item."""
    (texts,) = ask(store, (_TEXTS, [item.experiment_id, item.run_id]))[0]
    other = None
    if item.other_run_id is not None:
        ((*_, other),) = ask(store, (_TEXTS, [item.other_experiment_id, item.other_run_id]))[0]
    return ItemTexts(**dict(zip(ItemTexts.__slots__, (*texts, other), strict=True)))


def review_metrics(store: Store, identity: str) -> list[str]:
    """Return the metrics of an experiment's or a comparison's judges, and those that people have labelled."""
    (rows,) = ask(store, (_TRACE_METRICS, []) if identity == TRACES else (_REVIEW_METRICS, [identity]))
    return [metric for (metric,) in rows]


def _judged_values(row: Sequence[object], spec: str, metric: str) -> JudgedValues:
    data_type, low, high, are_whole, labels = row
    declared = (json.loads(spec).get("metrics") or {}).get(metric) or {}
    limits = declared.get("range")
    return JudgedValues(
        data_type=data_type,  # type: ignore[arg-type]
        low=low,  # type: ignore[arg-type]
        high=high,  # type: ignore[arg-type]
        are_whole=bool(are_whole),
        labels=labels or [],  # type: ignore[arg-type]
        declared=(limits[0], limits[1]) if limits else None,
        higher_is_better=declared.get("higher_is_better") is not False,
    )


_REVIEW_RUNS = """
with judged as (
    select run_id, arg_min(value, evaluator_version) as value, max(spread) as spread,
           arg_max(value, evaluator_version) as other,
           max(case when agreement is not null then coalesce(spread, 1 - agreement) end) as disagreement
    from scores
    where experiment_id = $1 and metric = $2 and status = 'scored' and subject_kind = 'run' and turn is null
    group by run_id
)
select o.run_id, o.experiment_id, null, null, o.example_id, o.repetition, md5(o.run_id) as lot,
       coalesce('cluster ' || x.cluster, 'example ' || o.example_id), j.value, j.spread, j.other, j.run_id is not null,
       j.disagreement
from outputs o
join experiments e on e.experiment_id = $1
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
left join judged j on j.run_id = o.run_id
where o.experiment_id = $1 and o.status = 'ok'
order by lot
"""

_REVIEW_PAIRS = """
select p.left_run_id, any_value(p.left_experiment_id), p.right_run_id, any_value(p.right_experiment_id),
       any_value(p.example_id), any_value(p.repetition), md5(p.left_run_id) as lot,
       any_value(coalesce('cluster ' || x.cluster, 'example ' || p.example_id)),
       arg_min(p.left_points, p.evaluator_version), null, arg_max(p.left_points, p.evaluator_version), true, null
from pair_verdicts p
left join examples x on x.snapshot_id = p.snapshot_id and x.example_id = p.example_id
where p.comparison_id = $1 and p.metric = $2 and p.decided_by is distinct from 'failed_output'
      and p.left_run_id in (select run_id from outputs where status = 'ok' and experiment_id in (
          select unnest(experiments) from comparison_sets where comparison_id = $1))
group by p.left_run_id, p.right_run_id
order by lot, p.right_run_id
"""

_VALUES = """
select any_value(data_type), min(value), max(value), bool_and(value = round(value)) filter (value is not null),
       list(distinct label order by label) filter (label is not null)
from scores
where experiment_id = $1 and metric = $2 and status = 'scored' and subject_kind = 'run' and turn is null
"""

_REVIEW_TRACES = """
with judged as (
    select subject_id, arg_min(value, evaluator_version) as value, max(spread) as spread,
           arg_max(value, evaluator_version) as other
    from scores
    where subject_kind = 'trace' and metric = $2 and status = 'scored' and turn is null
          and list_contains($1, subject_id)
    group by subject_id
)
select t.trace_id, '', null, null, t.trace_id, 0, md5(t.trace_id) as lot, 'trace ' || t.trace_id, j.value, j.spread,
       j.other, j.subject_id is not null, null
from (select unnest($1::varchar[]) as trace_id) t left join judged j on j.subject_id = t.trace_id
order by lot
"""

_REVIEW_TRACE_LABELS = f"""
select {_GIVEN} from current_labels
where metric = $2 and subject_kind = 'trace' and turn is null and list_contains($1, subject_id)
order by recorded_at
"""

_TRACE_VALUES = """
select any_value(data_type), min(value), max(value), bool_and(value = round(value)) filter (value is not null),
       list(distinct label order by label) filter (label is not null)
from (
    select data_type, value, label from scores
    where subject_kind = 'trace' and metric = $1 and status = 'scored' and turn is null
    union all
    select data_type, value, label from current_labels where subject_kind = 'trace' and metric = $1 and turn is null)
"""

_LABELLED_TRACES = """
select distinct subject_id from current_labels where subject_kind = 'trace' and turn is null and metric = $1
"""

_TRACE_METRICS = """
select distinct metric from scores where subject_kind = 'trace' and turn is null and status = 'scored'
union select distinct metric from labels where subject_kind = 'trace'
order by 1
"""

_TEXTS = """
select x.inputs::varchar, x.attachments::varchar, x.reference_outputs::varchar, o.outputs::varchar
from outputs o
join experiments e on e.experiment_id = $1
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where o.experiment_id = $1 and o.run_id = $2
"""

_REVIEW_METRICS = """
select distinct metric from scores
where experiment_id = $1 and subject_kind = 'run' and turn is null and status = 'scored'
union select distinct metric from comparisons where comparison_id = $1
union select distinct metric from labels where experiment_id = $1 and other_run_id is null
order by 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An experiment or a comparison of stored answers."""

    subject_id: str
    name: str
    is_pairs: bool
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One person's labels of one metric that count."""

    subject_id: str
    name: str
    metric: str
    labeller: str | None
    n_labels: int
    last_at: datetime


def reviewable(store: Store) -> list[Subject]:
    """Return the newest experiments and comparisons, newest first."""
    return ask_records(store, Subject, _SUBJECTS, [NEWEST])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMetric(Subject):
    """A metric of a judge in an experiment or a comparison, and how many of its items anybody has labelled."""

    metric: str
    n_items: int
    n_labelled: int
    n_differing: int | None  # items on which the judges of a panel differ; None without a panel


def judged_metrics(store: Store) -> list[JudgedMetric]:
    """Return what judges of the newest experiments and comparisons judged, the newest first.

    The judges of a panel are left out: labels of the panel's metric are theirs too.
    """
    return ask_records(store, JudgedMetric, _JUDGED_METRICS, [NEWEST_JUDGED])


def labelled_subjects(store: Store, subject: str | None) -> Sequence[Labelled]:
    """Return the last 50 who have labelled what, the newest labels first; of one experiment or comparison if its id is
    given."""
    return ask_records(store, Labelled, _SUBJECTS_LABELLED, [subject])


_SUBJECTS = """
(select experiment_id, name, false, started_at from experiments order by started_at desc limit $1)
union all
(select comparison_id, name, true, started_at from comparison_sets where n_votes is null
 order by started_at desc limit $1)
order by 4 desc
"""

_JUDGED_METRICS = """
with runs as (
    select experiment_id as subject, name, false as is_pairs, started_at from experiments
    order by started_at desc limit $1
), sets as (
    select comparison_id, name, true, started_at from comparison_sets where n_votes is null
    order by started_at desc limit $1
), judged as (
    select experiment_id as subject, metric, count(distinct run_id) as n,
           count(distinct run_id) filter (agreement < 1) as differing, count(agreement) > 0 as is_panel
    from scores
    where experiment_id in (select subject from runs) and judge_model is not null and subject_kind = 'run'
      and turn is null and status = 'scored'
      and (experiment_id, metric) not in (
          select experiment_id, unnest(json_extract_string(spec, '$.composites[*].panel[*]')) from experiments)
    group by all
    union all
    select comparison_id, metric, count(distinct (left_run_id, right_run_id)), 0, false from comparisons
    where comparison_id in (select comparison_id from sets) group by all
), given as (
    select experiment_id as subject, metric, count(distinct subject_id) as n from current_labels
    where subject_kind = 'run' and turn is null and other_run_id is null group by all
    union all
    select c.comparison_id, l.metric, count(distinct (c.left_run_id, c.right_run_id))
    from current_labels l join comparisons c on c.left_run_id = l.subject_id and c.right_run_id = l.other_run_id
    where c.comparison_id in (select comparison_id from sets) group by all
)
select subject, s.name, s.is_pairs, s.started_at, metric, j.n, coalesce(g.n, 0),
       case when j.is_panel then j.differing end
from (select * from runs union all select * from sets) s join judged j using (subject)
left join given g using (subject, metric)
order by s.started_at desc, subject, metric limit $1
"""

_SUBJECTS_LABELLED = """
with given as (
    select experiment_id, subject_id, other_run_id, metric, labeller, recorded_at
    from current_labels
    where subject_kind = 'run' and turn is null
), paired as (
    select distinct c.comparison_id, c.left_run_id, c.right_run_id
    from comparisons c
    semi join given g on g.subject_id = c.left_run_id and g.other_run_id = c.right_run_id
), of_subject as (
    select experiment_id as subject, metric, labeller, recorded_at from given where other_run_id is null
    union all
    select 'traces', metric, labeller, recorded_at from current_labels
    where subject_kind = 'trace' and source = 'review'
    union all
    select p.comparison_id, g.metric, g.labeller, g.recorded_at
    from given g join paired p on p.left_run_id = g.subject_id and p.right_run_id = g.other_run_id
), named as (
    select experiment_id as subject, name from experiments union all select comparison_id, name from comparison_sets
)
select s.subject, coalesce(n.name, s.subject), s.metric, s.labeller, count(*), max(s.recorded_at)
from of_subject s left join named n on n.subject = s.subject
where $1::varchar is null or s.subject = $1
group by all
order by 6 desc limit 50
"""
