"""What people label, and their labels beside a judge's scores, of runs and of pairs; and preferences as training
data.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from evalflows.specs.errors import InputError
from evalflows.store.queries.lookup import comparison_beside, find_comparison, find_experiments, is_comparison
from evalflows.store.queries.progress import made
from evalflows.store.records import DataType, derived_id, from_json, to_json
from evalflows.store.sql import ask, ask_arrow, ask_records, records_of
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One metric of an experiment or a comparison, with its human labels."""

    subject_id: str  # the id of the experiment or comparison
    name: str
    is_pairs: bool
    candidate: str | None  # for a comparison of two: the experiment whose wins are counted
    metric: str
    people_metric: str
    judgements: "pd.DataFrame"  # unit, evaluator, evaluator_version, judge_model, value, label, status, rate, together
    labels: "pd.DataFrame"  # unit, value, label, labeller, is_fair, chance, source


def judged_and_labelled(store: Store, reference: str, metric: str, people_metric: str) -> Judged:
    """Return a metric's judgements and labels. Raise InputError if either is missing.

    The reference of an experiment also means the comparison that ran as a step of it, if that has the metric.
    """
    return judged_in(store, *_subject(store, reference, metric), metric, people_metric)


def judged_in(store: Store, identity: str, is_pairs: bool, metric: str, people_metric: str) -> Judged:
    """Return the same of an experiment, or of a comparison (`is_pairs`), by its id."""
    name, candidate, forward = _of_pairs(store, identity) if is_pairs else _of_runs(store, identity)
    queries = (_HUMAN_PAIRS, _HUMAN_PAIR_LABELS) if is_pairs else (_HUMAN_RUNS, _HUMAN_RUN_LABELS)
    judgements, labels = store.steady(
        lambda: [
            ask_arrow(store, query, [identity, name]).to_pandas()
            for query, name in zip(queries, (metric, people_metric), strict=True)
        ]
    )
    if judgements.empty:
        raise InputError(f"metric {metric!r}: not in {name}, wanted one of: {_known(store, _HUMAN_METRICS, identity)}")
    if labels.empty:
        known = _known(store, _HUMAN_LABELLED, identity)
        raise InputError(f"{people_metric!r}: got no labels for {name}, wanted one of: {known} (`labels import`)")
    if not forward:
        for frame in (judgements, labels):
            frame["value"] = 1 - frame["value"]
    return Judged(
        subject_id=identity,
        name=name,
        is_pairs=is_pairs,
        candidate=candidate,
        metric=metric,
        people_metric=people_metric,
        judgements=judgements,
        labels=labels,
    )


def _subject(store: Store, reference: str, metric: str) -> tuple[str, bool]:
    """Return the id of the experiment or the comparison that has a metric, and whether it is a comparison."""
    if is_comparison(store, reference):
        return find_comparison(store, reference), True
    beside = comparison_beside(store, find_experiments(store, reference))
    query = "select count(*) from staging.comparisons where comparison_id = ? and metric = ?"
    if beside is not None and store.query(query, [beside, metric])[0][0]:
        return beside, True
    (identity,) = find_experiments(store, reference, just_one=True)
    return identity, False


def _of_runs(store: Store, identity: str) -> tuple[str, None, bool]:
    ((name,),) = store.query("select name from source.experiments where experiment_id = ?", [identity])
    return name, None, True


def _of_pairs(store: Store, identity: str) -> tuple[str, str | None, bool]:
    """Return the name, the candidate, and whether the candidate is left; no candidate for more than two experiments."""
    query = "select name, experiments, baseline_experiment_id from source.comparison_sets where comparison_id = ?"
    ((name, experiments, baseline),) = store.query(query, [identity])
    if len(experiments) != 2:
        return name, None, True
    candidate = next(experiment for experiment in experiments if experiment != (baseline or experiments[0]))
    ((candidate_name,),) = store.query("select name from source.experiments where experiment_id = ?", [candidate])
    return name, candidate_name, candidate == min(experiments)


class JudgeOfLabels(NamedTuple):
    """A version of a judge with one model, and the metrics of which its judgements and people's labels are."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledItems:
    """What a judge judged in one experiment or comparison and people labelled, as in `Judged`."""

    judge: JudgeOfLabels
    is_pairs: bool
    judgements: "pd.DataFrame"
    labels: "pd.DataFrame"


def labelled_items(store: Store, evaluator: str | None = None) -> Iterator[LabelledItems]:
    """Yield the labelled items of all judges, or of one, by experiment and comparison."""
    found = ask_arrow(store, _ITEMS, [evaluator]).to_pandas()
    if (found.kind == "pair").any():
        pairs = ask_arrow(store, _OUTCOMES, [sorted({*found.owner[found.kind == "pair"]})]).to_pandas()
        found = _with_outcomes(found, pairs)
    for (*_, kind), some in found.groupby(["owner", *JudgeOfLabels._fields, "kind"], sort=False):
        judgements = some.drop_duplicates("unit")[["unit", "value", "label", "status", "rate", "together"]]
        columns = {"people_value": "value", "people_label": "label"}
        labels = some.drop(columns=["value", "label"]).rename(columns=columns)
        judge = JudgeOfLabels(*(str(some[name].iloc[0]) for name in JudgeOfLabels._fields))
        yield LabelledItems(judge=judge, is_pairs=kind == "pair", judgements=judgements, labels=labels)


def _with_outcomes(found: "pd.DataFrame", pairs: "pd.DataFrame") -> "pd.DataFrame":
    """Give pairs the combined outcome of both orders; each label then stands once."""
    import pandas as pd

    runs, ordered = found[found.kind == "run"], found[found.kind == "pair"]
    keys = ["owner", "metric", "evaluator_version", "unit"]
    once = ordered.drop_duplicates([*keys, "people_metric", "label_id"]).drop(columns=["value", "label"])
    return pd.concat([runs, once.merge(pairs, on=keys)], ignore_index=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlabelled:
    """The judged runs of an experiment, which people may label."""

    experiment_id: str
    name: str
    runs: "pd.DataFrame"
    """run_id, lot, is_labelled, value, spread, other (judge's value), inputs, outputs, reference_outputs"""


def to_label(store: Store, reference: str, metric: str, people_metric: str) -> Unlabelled:
    """Return the judged runs of an experiment, in random order (`lot`). Raise InputError for an unknown metric."""
    if is_comparison(store, reference):
        raise InputError(f"{reference!r}: got a comparison, wanted an experiment")
    (identity,) = find_experiments(store, reference, just_one=True)
    name, _, _ = _of_runs(store, identity)
    runs = ask_arrow(store, _TO_LABEL, [identity, metric, people_metric]).to_pandas()
    if runs.empty:
        raise InputError(f"metric {metric!r}: not in {name}, wanted one of: {_known(store, _HUMAN_METRICS, identity)}")
    return Unlabelled(experiment_id=identity, name=name, runs=runs)


def _known(store: Store, query: str, identity: str) -> str:
    ((names,),) = ask(store, (query, [identity]))[0] or ((None,),)
    return names or "none yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelBatch:
    """Labels that were imported together."""

    batch_id: str
    source: str
    metrics: str  # comma-separated, as are the experiments
    n_labels: int
    n_labellers: int
    experiments: str | None
    imported_at: datetime


def listed_batches(store: Store) -> list[LabelBatch]:
    """Return the imported batches, newest first."""
    return ask_records(store, LabelBatch, _BATCHES)


_HUMAN_RUNS = """
select s.run_id as unit, s.evaluator, s.evaluator_version, s.judge_model, s.value, s.label, s.status,
       s.sampling_rate as rate, coalesce('cluster ' || x.cluster, 'example ' || s.example_id) as together
from scores s
join experiments e using (experiment_id)
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = s.example_id
where s.experiment_id = $1 and s.metric = $2 and s.subject_kind = 'run' and s.turn is null
order by s.evaluator_version, unit
"""

_HUMAN_RUN_LABELS = """
select l.subject_id as unit, l.value, l.label, l.labeller, l.is_fair, l.chance, l.source
from current_labels l join outputs o on o.run_id = l.subject_id
where o.experiment_id = $1 and l.metric = $2 and l.subject_kind = 'run' and l.other_run_id is null and l.turn is null
order by unit, labeller
"""

_HUMAN_PAIRS = """
select left_run_id || ' ' || right_run_id as unit, evaluator, evaluator_version, judge_model,
       left_points as value, case when left_points > 0.5 then 'left' when left_points < 0.5 then 'right'
            when left_points = 0.5 then 'tie' end as label, status,
       null::double as rate, coalesce('cluster ' || cluster, 'example ' || example_id) as together
from pair_outcomes
where comparison_id = $1 and metric = $2 and decided_by is distinct from 'failed_output'
order by evaluator_version, unit
"""

_HUMAN_PAIR_LABELS = """
select l.subject_id || ' ' || l.other_run_id as unit, l.value, l.label, l.labeller, l.is_fair, l.chance, l.source
from current_labels l
join (select distinct left_run_id, right_run_id from pair_outcomes where comparison_id = $1) p
    on p.left_run_id = l.subject_id and p.right_run_id = l.other_run_id
where l.metric = $2 and l.subject_kind = 'run'
order by unit, labeller
"""

_ITEMS = """
select j.experiment_id as owner, j.kind, j.evaluator, j.evaluator_version,
       coalesce(j.judge_model, 'no model') as judge_model, j.metric, j.people_metric,
       j.run_id || coalesce(' ' || j.other_run_id, '') as unit, j.value, j.label, 'scored' as status,
       null::double as rate, 'example ' || j.example_id as together, j.label_id, j.people_value, j.people_label,
       l.labeller, l.is_fair, l.chance, l.source
from judge_labels j join current_labels l using (label_id)
where $1::varchar is null or j.evaluator = $1
order by owner, j.metric, j.people_metric, j.evaluator_version, unit, l.labeller
"""

_OUTCOMES = """
select comparison_id as owner, metric, evaluator_version, left_run_id || ' ' || right_run_id as unit,
       left_points as value, case when left_points > 0.5 then 'left' when left_points < 0.5 then 'right'
            when left_points = 0.5 then 'tie' end as label
from pair_outcomes
where is_one_of(comparison_id, $1) and status = 'scored' and decided_by is distinct from 'failed_output'
"""

_HUMAN_METRICS = """
select string_agg(distinct metric, ', ' order by metric) from (
    select metric from scores where experiment_id = $1 and subject_kind = 'run' and turn is null
    union all select metric from comparisons where comparison_id = $1)
"""

_HUMAN_LABELLED = """
select string_agg(distinct l.metric, ', ' order by l.metric) from labels l where l.subject_id in (
    select run_id from outputs where experiment_id = $1
    union all select left_run_id from comparisons where comparison_id = $1)
"""

_TO_LABEL = """
with labelled as (
    select subject_id, bool_or(is_fair) as is_fair from current_labels
    where metric = $3 and subject_kind = 'run' and other_run_id is null and turn is null
    group by subject_id
), judged as (
    select run_id, arg_min(value, evaluator_version) as value, arg_max(value, evaluator_version) as other,
           max(spread) as spread, any_value(example_id) as example_id
    from scores
    where experiment_id = $1 and metric = $2 and status = 'scored' and subject_kind = 'run' and turn is null
    group by run_id
)
select j.run_id, md5(j.run_id) as lot, l.subject_id is not null as is_labelled,
       coalesce(l.is_fair, false) as is_fair, j.value, j.spread, j.other,
       x.inputs::varchar as inputs, o.outputs::varchar as outputs, x.reference_outputs::varchar as reference_outputs
from judged j
join outputs o on o.experiment_id = $1 and o.run_id = j.run_id
join experiments e on e.experiment_id = $1
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = j.example_id
left join labelled l on l.subject_id = j.run_id
order by lot
"""

_BATCHES = """
select batch_id, any_value(source), string_agg(distinct metric, ', ' order by metric),
       count(distinct (subject_id, turn, other_run_id, metric, labeller)), count(distinct coalesce(labeller, '')),
       (select string_agg(distinct e.name, ', ' order by e.name) from experiments e
        where list_contains(list(l.experiment_id), e.experiment_id)),
       min(recorded_at)
from source.labels l group by batch_id order by 7 desc, 1
"""


NEWEST, NEWEST_JUDGED = 200, 12
"""Experiments and comparisons that are listed, at most of each."""


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
class JudgedMetric:
    """A metric of a judge in an experiment or a comparison, and how many of its items anybody has labelled."""

    subject_id: str
    name: str
    is_pairs: bool
    started_at: datetime
    metric: str
    n_items: int
    n_labelled: int


def judged_metrics(store: Store) -> list[JudgedMetric]:
    """Return what judges of the newest experiments and comparisons judged, the newest first."""
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
    select experiment_id as subject, metric, count(distinct run_id) as n from scores
    where experiment_id in (select subject from runs) and judge_model is not null and subject_kind = 'run'
      and turn is null and status = 'scored' group by all
    union all
    select comparison_id, metric, count(distinct (left_run_id, right_run_id)) from comparisons
    where comparison_id in (select comparison_id from sets) group by all
), given as (
    select experiment_id as subject, metric, count(distinct subject_id) as n from current_labels
    where subject_kind = 'run' and turn is null and other_run_id is null group by all
    union all
    select c.comparison_id, l.metric, count(distinct (c.left_run_id, c.right_run_id))
    from current_labels l join comparisons c on c.left_run_id = l.subject_id and c.right_run_id = l.other_run_id
    where c.comparison_id in (select comparison_id from sets) group by all
)
select subject, s.name, s.is_pairs, s.started_at, metric, j.n, coalesce(g.n, 0)
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


LEFT_OUT = ("ties", "half ties", "flipped", "missing", "failed outputs", "not applicable", "same text")
"""Why a pair gives no preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The preferences of a comparison by one metric."""

    comparison_id: str
    metric: str
    rows: list[dict[str, Any]]  # prompt, chosen, rejected, and their origin
    left_out: dict[str, int]  # numbers of pairs, by LEFT_OUT

    @property
    def in_words(self) -> str:
        """The numbers of preferences and of left-out pairs, in one line."""
        of = f"{len(self.rows)} of {len(self.rows) + sum(self.left_out.values())} pairs by {self.metric}"
        left_out = [f"{count} {why}" for why, count in self.left_out.items() if count]
        return f"{of}; left out: {', '.join(left_out)}" if left_out else of


def preferences_of(store: Store, comparison_id: str, metric: str | None = None) -> Preferences:
    """Return the pairs of a comparison in which one answer is better, in the order of the examples.

    A prompt or answer is the text of its only field, the list of messages if the prompt is a conversation, else JSON
    text. Ties, half ties (a tie in one order, by the rule `strict`), flipped verdicts, missing verdicts, failed runs,
    and identical answers are left out, and counted. Raise InputError for a comparison without judgements, for an
    unknown metric, if no metric is named and there are several, and if two evaluators gave the metric.
    """
    if twice := made(store, comparison_id).given_twice:
        raise InputError(f"comparison {comparison_id!r}: {twice}")
    metrics, pairs = ask(store, (_PREFERENCE_METRICS, [comparison_id]), (_PREFERENCE_PAIRS, [comparison_id]))
    chosen = _one_of(comparison_id, [name for (name,) in metrics], metric)
    of_metric = [_Pair(*values) for name, *values in pairs if name == chosen]
    excluded = Counter(pair.why_not for pair in of_metric)
    return Preferences(
        comparison_id=comparison_id,
        metric=chosen,
        rows=[pair.as_row(chosen) for pair in of_metric if pair.why_not is None],
        left_out={why: excluded[why] for why in LEFT_OUT},
    )


def _one_of(comparison_id: str, known: list[str], metric: str | None) -> str:
    if not known:
        raise InputError(f"comparison {comparison_id!r}: got no judgements yet, wanted at least one")
    if metric is None and len(known) > 1:
        raise InputError(f"comparison {comparison_id!r}: got {len(known)} metrics, wanted one of: {', '.join(known)}")
    if metric is not None and metric not in known:
        raise InputError(f"comparison {comparison_id!r}: got the metric {metric!r}, wanted one of: {', '.join(known)}")
    return metric or known[0]


@dataclass(frozen=True, slots=True)
class _Pair:
    """One pair of answers, with its outcome."""

    example_id: str
    status: str
    outcome: str | None
    left_points: float | None
    decided_by: str | None
    inputs: str
    left: str | None
    right: str | None
    left_experiment: str
    right_experiment: str

    @property
    def why_not(self) -> str | None:
        """Why it gives no preference; None if it gives one."""
        if self.status in ("missing", "not_applicable"):
            return self.status.replace("_", " ")
        if self.status == "left_out" or self.decided_by == "failed_output" or self.left is None or self.right is None:
            return "failed outputs"
        if self.left_points == 0.5:
            return {"half": "half ties", "flipped": "flipped"}.get(str(self.outcome), "ties")
        return "same text" if _text(from_json(self.left)) == _text(from_json(self.right)) else None

    def as_row(self, metric: str) -> dict[str, Any]:
        sides = ((self.left, self.left_experiment), (self.right, self.right_experiment))
        (chosen, winner), (rejected, loser) = sides if (self.left_points or 0) > 0.5 else sides[::-1]
        return {
            "prompt": _prompt(from_json(self.inputs)),
            "chosen": _text(from_json(chosen)),
            "rejected": _text(from_json(rejected)),
            "example_id": self.example_id,
            "metric": metric,
            "chosen_experiment": winner,
            "rejected_experiment": loser,
        }


def _prompt(inputs: Mapping[str, Any]) -> Any:
    only = _only(inputs)
    return only if isinstance(only, list) and inputs.keys() == {"messages"} else _text(inputs)


def _text(fields: Mapping[str, Any]) -> str:
    """Return the only field, if it is text; else all fields as JSON, as for the length of an output."""
    only = _only(fields)
    return only if isinstance(only, str) else to_json(fields)


def _only(fields: Mapping[str, Any]) -> Any:
    return next(iter(fields.values())) if len(fields) == 1 else None


_PREFERENCE_METRICS = "select distinct metric from comparisons where comparison_id = ? order by metric"

_PREFERENCE_PAIRS = """
select metric, example_id, status, outcome, left_points, decided_by, inputs, left_outputs, right_outputs,
       left_experiment, right_experiment
from pair_outcomes where comparison_id = ?
order by position, example_id, repetition, left_experiment_id, right_experiment_id, evaluator_version
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A run, or a pair of runs of the same example, with what one judge gave it."""

    run_id: str
    experiment_id: str
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
    """The items of one experiment or comparison, in random order, and the labels of one metric."""

    subject_id: str
    name: str
    is_pairs: bool
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


def item_texts(store: Store, item: ReviewItem) -> ItemTexts:
    """Return the texts of one item."""
    (texts,) = ask(store, (_TEXTS, [item.experiment_id, item.run_id]))[0]
    other = None
    if item.other_run_id is not None:
        ((*_, other),) = ask(store, (_TEXTS, [item.other_experiment_id, item.other_run_id]))[0]
    return ItemTexts(**dict(zip(ItemTexts.__slots__, (*texts, other), strict=True)))


def review_metrics(store: Store, identity: str) -> list[str]:
    """Return the metrics of an experiment's or a comparison's judges, and those that people have labelled."""
    (rows,) = ask(store, (_REVIEW_METRICS, [identity]))
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


_RUNS_NAME = "select name, spec::varchar from experiments where experiment_id = $1"
_PAIRS_NAME = "select name, spec::varchar from comparison_sets where comparison_id = $1"

_REVIEW_RUNS = """
with judged as (
    select run_id, arg_min(value, evaluator_version) as value, max(spread) as spread,
           arg_max(value, evaluator_version) as other
    from scores
    where experiment_id = $1 and metric = $2 and status = 'scored' and subject_kind = 'run' and turn is null
    group by run_id
)
select o.run_id, o.experiment_id, null, null, o.example_id, o.repetition, md5(o.run_id) as lot,
       coalesce('cluster ' || x.cluster, 'example ' || o.example_id), j.value, j.spread, j.other, j.run_id is not null
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
       arg_min(p.left_points, p.evaluator_version), null, arg_max(p.left_points, p.evaluator_version), true
from pair_verdicts p
left join examples x on x.snapshot_id = p.snapshot_id and x.example_id = p.example_id
where p.comparison_id = $1 and p.metric = $2 and p.decided_by is distinct from 'failed_output'
      and p.left_run_id in (select run_id from outputs where status = 'ok' and experiment_id in (
          select unnest(experiments) from comparison_sets where comparison_id = $1))
group by p.left_run_id, p.right_run_id
order by lot, p.right_run_id
"""

_LABEL = """subject_id, other_run_id, value, label, data_type, labeller, comment, drawn, is_fair, recorded_at
            from current_labels where metric = $2 and subject_kind = 'run' and turn is null"""

_REVIEW_RUN_LABELS = f"select {_LABEL} and experiment_id = $1 and other_run_id is null order by recorded_at"

_REVIEW_PAIR_LABELS = f"""
select {_LABEL} and (subject_id, other_run_id) in (
    select (left_run_id, right_run_id) from comparisons where comparison_id = $1)
order by recorded_at
"""

_VALUES = """
select any_value(data_type), min(value), max(value), bool_and(value = round(value)) filter (value is not null),
       list(distinct label order by label) filter (label is not null)
from scores
where experiment_id = $1 and metric = $2 and status = 'scored' and subject_kind = 'run' and turn is null
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
