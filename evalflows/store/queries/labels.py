"""Labels of people beside a judge's scores, of runs, pairs and items of production, and preferences as training
data."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.described import panels_of
from evalflows.store.observations import FIRST_DAY
from evalflows.store.queries.lookup import (
    comparison_beside,
    find_comparison,
    find_experiments,
    find_trace_evaluation,
    is_comparison,
)
from evalflows.store.queries.progress import work_done
from evalflows.store.queries.two_judges import Subjects
from evalflows.store.records import FINAL, from_json, to_json
from evalflows.store.schemas import ATTRIBUTE
from evalflows.store.sql import ask, ask_arrow, ask_records, records_of
from evalflows.store.store import Store
from evalflows.store.views import view_text

if TYPE_CHECKING:
    import pandas as pd

_OF_PRODUCTION = """
starts_with(experiment_id, $1 || '-') and subject_kind in ('trace', 'observation', 'session') and turn is null"""
"""A condition on scores: those of a trace evaluation, whose owners are its days."""

_HUMAN_METRICS = f"""
select string_agg(distinct metric, ', ' order by metric) from (
    select metric from scores where experiment_id = $1 and subject_kind = 'run' and turn is null
    union all select metric from comparisons where comparison_id = $1
    union all select metric from scores where {_OF_PRODUCTION})
"""

_HUMAN_LABELLED = f"""
select string_agg(distinct l.metric, ', ' order by l.metric) from labels l where l.subject_id in (
    select run_id from outputs where experiment_id = $1
    union all select left_run_id from comparisons where comparison_id = $1
    union all select subject_id from scores where {_OF_PRODUCTION})
"""

_ANCHORS = """
select o.run_id, e.inputs::varchar, e.reference_outputs::varchar, e.metadata::varchar, o.outputs::varchar,
       o.steps::varchar, any_value(l.data_type), list(l.value order by l.labeller), list(l.label order by l.labeller)
from current_labels l join outputs o on o.run_id = l.subject_id
join experiments x on x.experiment_id = o.experiment_id
join examples e on e.snapshot_id = x.snapshot_id and e.example_id = o.example_id
where l.subject_kind = 'run' and l.turn is null and l.other_run_id is null and l.metric = $2
      and list_contains($1, o.experiment_id) and o.status = 'ok' and e.split is distinct from 'final'
group by all order by o.run_id
"""

LEFT_OUT = ("ties", "half ties", "flipped", "missing", "failed outputs", "not applicable", "same text")
"""Why a pair gives no preference."""

_PREFERENCE_METRICS = "select distinct metric from comparisons where comparison_id = ? order by metric"


Named = tuple[str, tuple[str, str] | None, bool]
"""A name, the names of left and right in a comparison of two, and whether left is the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledMetric:
    """One metric of an experiment, a comparison or a trace evaluation, with its human labels."""

    subject_id: str  # the id of the experiment, comparison or trace evaluation
    name: str  # of a trace evaluation with the days from which the judgements are
    subjects: Subjects
    candidate: str | None  # for a comparison of two: the experiment whose wins are counted
    sides: tuple[str, str] | None  # for a comparison of two: the names of left and right
    metric: str
    people_metric: str
    judgements: "pd.DataFrame"  # unit, evaluator, evaluator_version, judge_model, value, label, status, rate, together
    labels: "pd.DataFrame"  # unit, value, label, labeller, is_fair, chance, source


def judged_and_labelled(store: Store, reference: str, metric: str, people_metric: str) -> LabelledMetric:
    """Return a metric's judgements and labels. Raise InputError if either is missing.

    The reference of an experiment also means the comparison that ran as a step of it, if that has the metric.
    """
    return judged_in(store, *_subject(store, reference, metric), metric, people_metric)


def judged_in(store: Store, identity: str, subjects: Subjects, metric: str, people_metric: str) -> LabelledMetric:
    """Return the same of an experiment, a comparison or a trace evaluation, by its id.

    Of a trace evaluation it has the days from the first to the last of which people labelled something that counts:
    labels of one week say nothing of the judge's mean in another.
    """
    (name, sides, forward), queries = _NAMED[subjects](store, identity), _HUMAN[subjects]

    def read() -> tuple["pd.DataFrame", "pd.DataFrame", Sequence[str]]:
        of_days = (_LABELLED_DAYS, [identity, metric, people_metric])
        days = ask(store, of_days)[0][0] if subjects == "items" else ()
        judgements, labels = (
            ask_arrow(store, query, [identity, name, *days]).to_pandas()
            for query, name in zip(queries, (metric, people_metric), strict=True)
        )
        return judgements, labels, days

    judgements, labels, days = store.steady(read)
    if judgements.empty:
        raise InputError(f"metric {metric!r}: not in {name}, wanted one of: {_known(store, _HUMAN_METRICS, identity)}")
    if labels.empty:
        known = _known(store, _HUMAN_LABELLED, identity)
        raise InputError(f"{people_metric!r}: got no labels for {name}, wanted one of: {known} (`labels import`)")
    if not forward:
        for frame in (judgements, labels):
            frame["value"] = 1 - frame["value"]
    return LabelledMetric(
        subject_id=identity,
        name=in_days(name, *days) if days else name,
        subjects=subjects,
        candidate=sides[not forward] if sides else None,
        sides=sides,
        metric=metric,
        people_metric=people_metric,
        judgements=judgements,
        labels=labels,
    )


def in_days(name: str, first: str, last: str) -> str:
    """Return the name of a trace evaluation with the days of its items."""
    return f"{name} on {first}" if first == last else f"{name} from {first} to {last}"


def panels_beside(store: Store, reference: str) -> dict[str, list[str]]:
    """Return the panels of the experiment or trace evaluation that a reference means, as `panels_of`; none of a
    comparison."""
    if is_comparison(store, reference):
        return {}
    if evaluation := find_trace_evaluation(store, reference):
        query, identity = _NEWEST_SPEC, evaluation[0]
    else:
        query = "select spec from source.experiments where experiment_id = ?"
        identity = find_experiments(store, reference)[0]
    return panels_of(store.query(query, [identity])[0][0])


def _subject(store: Store, reference: str, metric: str) -> tuple[str, Subjects]:
    """Return the id of the experiment, comparison or trace evaluation that has a metric, and what was judged."""
    if is_comparison(store, reference):
        return find_comparison(store, reference), "pairs"
    if evaluation := find_trace_evaluation(store, reference):
        return evaluation[0], "items"
    beside = comparison_beside(store, find_experiments(store, reference))
    query = "select count(*) from staging.comparisons where comparison_id = ? and metric = ?"
    if beside is not None and store.query(query, [beside, metric])[0][0]:
        return beside, "pairs"
    (identity,) = find_experiments(store, reference, just_one=True)
    return identity, "answers"


def _of_runs(store: Store, identity: str) -> Named:
    ((name,),) = store.query("select name from source.experiments where experiment_id = ?", [identity])
    return name, None, True


def _of_pairs(store: Store, identity: str) -> Named:
    query = "select name, experiments, baseline_experiment_id from source.comparison_sets where comparison_id = ?"
    ((name, experiments, baseline),) = store.query(query, [identity])
    if len(experiments) != 2:
        return name, None, True
    candidate = next(experiment for experiment in experiments if experiment != (baseline or experiments[0]))
    named = dict(
        store.query(
            "select experiment_id, name from source.experiments where list_contains(?, experiment_id)", [experiments]
        )
    )
    left, right = sorted(experiments)
    return name, (named[left], named[right]), candidate == left


def _of_items(store: Store, identity: str) -> Named:
    found = find_trace_evaluation(store, identity)
    return found[1] if found else identity, None, True  # feedback that came with traces is of no evaluation


_NAMED: Mapping[Subjects, Callable[[Store, str], Named]] = {
    "answers": _of_runs,
    "pairs": _of_pairs,
    "items": _of_items,
}
"""What returns the name, the sides, and whether values are of the candidate as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlabelled:
    """The judged runs of an experiment, or traces of a trace evaluation, which people may label."""

    subject_id: str
    name: str
    drawn_from: str | None  # of traces: the name with their days, since an order of other days is another one
    items: "pd.DataFrame"
    """unit, day (of a trace), lot, is_labelled, is_fair, value, spread, other (judge's value), composed"""


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """What a person reads of an item: JSON, or of a trace as it was captured."""

    inputs: str | None
    outputs: str | None
    reference_outputs: str | None


def to_label(store: Store, reference: str, metric: str, people_metric: str, since: date | None = None) -> Unlabelled:
    """Return the judged runs of an experiment, or traces of a trace evaluation that began on a day or later, in random
    order (`lot`). Raise InputError for an unknown metric, and for what has neither runs nor traces."""
    if _subject(store, reference, metric)[1] == "pairs":
        where = "pairs are labelled on the page Review, or by the column `winner` of an imported file"
        raise InputError(f"{reference!r}: got pairs of answers, wanted an experiment or a trace evaluation; {where}")
    if evaluation := find_trace_evaluation(store, reference):
        identity, name = evaluation
        query, values = _TRACES_TO_LABEL, [identity, metric, people_metric, (since or date.min).isoformat()]
    elif since is not None:
        raise InputError(f"since: got {since} for an experiment, wanted a trace evaluation, not {reference!r}")
    else:
        (identity,) = find_experiments(store, reference, just_one=True)
        name, query, values = _of_runs(store, identity)[0], _RUNS_TO_LABEL, [identity, metric, people_metric]
    items = ask_arrow(store, query, values).to_pandas()
    if items.empty:
        of = "" if evaluation is None else "traces of " if since is None else f"traces since {since} of "
        known = _known(store, _HUMAN_METRICS, identity)
        raise InputError(f"metric {metric!r}: not in {of}{name}, wanted one of: {known}")
    drawn_from = None if evaluation is None else in_days(name, items.day.min(), items.day.max())
    return Unlabelled(subject_id=identity, name=name, drawn_from=drawn_from, items=items)


def texts_to_label(store: Store, of: Unlabelled, units: Sequence[str]) -> dict[str, LabelledTexts]:
    """Return the texts of some of these runs or traces."""
    if of.drawn_from is not None:
        return texts_of_traces(store, units)
    (rows,) = ask(store, (_TEXTS_OF_RUNS, [of.subject_id, list(units)]))
    return {unit: LabelledTexts(*texts) for unit, *texts in rows}


def texts_of_traces(store: Store, traces: Sequence[str]) -> dict[str, LabelledTexts]:
    """Return the texts of those of these traces that are in the store."""
    (rows,) = ask(store, (_TEXTS_OF_TRACES, [list(traces)]))
    return {trace: LabelledTexts(*texts) for trace, *texts in rows}


@dataclass(frozen=True, slots=True)
class LabelledComposite:
    """What people said of an answer, beside a composite's score of it."""

    label: float  # the mean
    metadata: str | None  # of the score; None without one
    example_id: str | None  # None for production


def labelled_composites(store: Store, identity: str, composite: str, metric: str) -> list[LabelledComposite]:
    """Return the labelled answers of an experiment or a trace evaluation, in an order that is the same each time."""
    return [LabelledComposite(*row) for row in store.query(_LABELLED_COMPOSITES, [identity, composite, metric])]


_LABELLED_COMPOSITES = """
with scored as (
    select subject_id, any_value(example_id) as example_id,
           arg_max(metadata::varchar, recorded_at) filter (metric = $2 and status = 'scored') as metadata
    from staging.scores
    where (experiment_id = $1 or starts_with(experiment_id, $1 || '-')) and turn is null
          and subject_kind in ('run', 'trace', 'observation', 'session')
    group by subject_id
)
select avg(l.value), any_value(s.metadata), any_value(s.example_id)
from current_labels l join scored s using (subject_id)
where l.metric = $3 and l.turn is null and l.other_run_id is null and l.value is not null
group by l.subject_id order by md5(l.subject_id)
"""


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
    n_timed: int  # labels of which it is known how long they took
    median_seconds: float | None
    usd_per_label: float | None


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

_LABELLED_DAYS = f"""
with said as (
    select subject_kind, subject_id, bool_or(is_fair) as is_fair from current_labels
    where metric = $3 and turn is null and other_run_id is null group by all
), judged as (
    select right(experiment_id, 10) as day, is_fair
    from scores left join said using (subject_kind, subject_id)
    where {_OF_PRODUCTION} and metric = $2 and status = 'scored'
)
select coalesce(min(day) filter (is_fair), min(day) filter (is_fair is not null), min(day)),
       coalesce(max(day) filter (is_fair), max(day) filter (is_fair is not null), max(day))
from judged
"""

_IN_DAYS = f"{_OF_PRODUCTION} and experiment_id between $1 || '-' || $3 and $1 || '-' || $4"

_HUMAN_ITEMS = f"""
with observations as (
    select * from staging.observations
    where day between ($3::date - 1)::varchar and ($4::date + 1)::varchar or day = '{FIRST_DAY}'
), traces as ({view_text("traces")}), judged as (
    select subject_kind, subject_id as unit, evaluator, evaluator_version, judge_model, value, label, status,
           sampling_rate as rate
    from scores where {_IN_DAYS} and metric = $2
    qualify row_number() over (partition by subject_id, evaluator_version order by recorded_at desc, score_id) = 1
)
select unit, evaluator, evaluator_version, judge_model, value, label, status, rate,
       case when subject_kind = 'session' then 'session ' || unit
            else coalesce('session ' || t.session_id, 'trace ' || split_part(unit, '/', 1)) end as together
from judged left join (select trace_id, session_id from traces) t on t.trace_id = split_part(unit, '/', 1)
order by evaluator_version, unit
"""

_HUMAN_ITEM_LABELS = f"""
select l.subject_id as unit, l.value, l.label, l.labeller, l.is_fair, l.chance, l.source
from current_labels l
semi join (select subject_kind, subject_id from scores where {_IN_DAYS}) s using (subject_kind, subject_id)
where l.metric = $2 and l.turn is null and l.other_run_id is null
order by unit, labeller
"""

_NEWEST_SPEC = "select spec from source.watermarks where evaluation_id = ? order by recorded_at desc limit 1"

_HUMAN: Mapping[Subjects, tuple[str, str]] = {
    "answers": (_HUMAN_RUNS, _HUMAN_RUN_LABELS),
    "pairs": (_HUMAN_PAIRS, _HUMAN_PAIR_LABELS),
    "items": (_HUMAN_ITEMS, _HUMAN_ITEM_LABELS),
}
"""The queries of judgements and of labels."""

_TO_LABEL = """
with labelled as (
    select subject_id, bool_or(is_fair) as is_fair from current_labels
    where metric = $3 and subject_kind = '{kind}' and other_run_id is null and turn is null
    group by subject_id
), judged as (
    select subject_id, any_value(right(experiment_id, 10)) as day, arg_min(value, evaluator_version) as value,
           arg_max(value, evaluator_version) as other, max(spread) as spread,
           any_value(metadata::varchar) filter (evaluator = $2 and contains(metadata::varchar, '"unmet_requirement"'))
               as composed
    from scores
    where {of} and metric = $2 and status = 'scored' and subject_kind = '{kind}' and turn is null
    group by subject_id
)
select subject_id as unit, j.day, md5(subject_id) as lot, l.is_fair is not null as is_labelled,
       coalesce(l.is_fair, false) as is_fair, j.value, j.spread, j.other, j.composed
from judged j left join labelled l using (subject_id) {there}
order by lot
"""

_RUNS_TO_LABEL = _TO_LABEL.format(kind="run", of="experiment_id = $1", there="")

_TRACES_TO_LABEL = _TO_LABEL.format(
    kind="trace",
    of="experiment_id between $1 || '-' || $4 and $1 || '-9'",
    there=f"""semi join (
    select trace_id as subject_id from source.observations
    group by trace_id having not bool_or(contains(attributes, '{ATTRIBUTE}'))) using (subject_id)""",  # with its texts
)

_TEXTS_OF_RUNS = """
select o.run_id, x.inputs::varchar, o.outputs::varchar, x.reference_outputs::varchar
from outputs o
join experiments e using (experiment_id)
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where o.experiment_id = $1 and list_contains($2, o.run_id)
"""

_TEXTS_OF_TRACES = f"""
with observations as (select * from staging.observations where trace_id in (select unnest($1))),
     traces as ({view_text("traces")})
select trace_id, input, output, null from traces
"""

_BATCHES = """
select batch_id, any_value(source), string_agg(distinct metric, ', ' order by metric),
       count(distinct (subject_id, turn, other_run_id, metric, labeller)), count(distinct coalesce(labeller, '')),
       (select string_agg(distinct e.name, ', ' order by e.name) from experiments e
        where list_contains(list(l.experiment_id), e.experiment_id)),
       min(recorded_at), count(seconds), median(seconds), avg(usd)
from (select *, try_cast(metadata::json ->> 'seconds' as double) as seconds,
             try_cast(metadata::json ->> 'cost_usd' as double) as usd from source.labels) l
group by batch_id order by 7 desc, 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What people's labels of a metric took, and what a judge's verdict of it cost."""

    n_timed: int
    median_seconds: float | None
    usd_per_label: float | None
    usd_per_verdict: float | None

    @property
    def sentence(self) -> str | None:
        """Both in words; None if no label was timed."""
        if self.median_seconds is None:
            return None
        people = "" if self.usd_per_label is None else f" and cost {self.usd_per_label:.2g} USD"
        judge = "" if self.usd_per_verdict is None else f"; a verdict of the judge cost {self.usd_per_verdict:.2g} USD"
        return f"a label took {self.median_seconds:.0f} s (median of {self.n_timed}){people}{judge}"


def effort_of(store: Store, reference: str, metric: str, people_metric: str) -> Effort:
    """Return what the labels of an experiment, a comparison or a trace evaluation took. Raise InputError if it is
    unknown."""
    (rows,) = ask(store, (_EFFORT, [_subject(store, reference, metric)[0], metric, people_metric]))
    return records_of(Effort, rows)[0]


_EFFORT = f"""
with verdicts as (
    select left_run_id as subject_id, right_run_id, cost_usd from comparisons where comparison_id = $1 and metric = $2
    union all
    select subject_id, null, cost_usd from scores
    where metric = $2 and (experiment_id = $1 and subject_kind = 'run' or {_OF_PRODUCTION})
)
select count(l.seconds), median(l.seconds), avg(l.cost_usd), (select avg(cost_usd) from verdicts)
from current_labels l
where l.metric = $3 and exists (
    from verdicts v where v.subject_id = l.subject_id and v.right_run_id is not distinct from l.other_run_id)
"""


class JudgeOfLabels(NamedTuple):
    """A version of a judge with one model, and the metrics of which its judgements and people's labels are."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledItems:
    """What a judge judged in one experiment, comparison or trace evaluation and people labelled."""

    judge: JudgeOfLabels
    is_pairs: bool
    judgements: "pd.DataFrame"
    labels: "pd.DataFrame"


def labelled_items(store: Store, evaluator: str | None = None) -> Iterator[LabelledItems]:
    """Yield the labelled items of all judges, or of one, by experiment, comparison and trace evaluation."""
    found = ask_arrow(store, _ITEMS, [evaluator]).to_pandas()
    if (found.kind == "pair").any():
        pairs = ask_arrow(store, _OUTCOMES, [sorted({*found.owner[found.kind == "pair"]})]).to_pandas()
        found = _with_outcomes(found, pairs)
    for (*_, kind), some in found.groupby(["owner", *JudgeOfLabels._fields, "kind"], sort=False):
        judgements = some.drop_duplicates("unit")[["unit", "value", "label", "status", "rate", "together"]]
        columns = {"people_value": "value", "people_label": "label"}
        labels = some.drop_duplicates("label_id").drop(columns=["value", "label"]).rename(columns=columns)
        judge = JudgeOfLabels(*(str(some[name].iloc[0]) for name in JudgeOfLabels._fields))
        yield LabelledItems(judge=judge, is_pairs=kind == "pair", judgements=judgements, labels=labels)


def _with_outcomes(found: "pd.DataFrame", pairs: "pd.DataFrame") -> "pd.DataFrame":
    """Give pairs the combined outcome of both orders; each label then stands once."""
    import pandas as pd

    single, ordered = found[found.kind != "pair"], found[found.kind == "pair"]
    keys = ["owner", "metric", "evaluator_version", "unit"]
    once = ordered.drop_duplicates([*keys, "people_metric", "label_id"]).drop(columns=["value", "label"])
    return pd.concat([single, once.merge(pairs, on=keys)], ignore_index=True)


_ITEMS = """
select coalesce(j.evaluation_id, j.experiment_id) as owner, j.kind, j.evaluator, j.evaluator_version,
       coalesce(j.judge_model, 'no model') as judge_model, j.metric, j.people_metric,
       j.subject_id || coalesce(' ' || j.other_run_id, '') as unit, j.value, j.label, 'scored' as status,
       null::double as rate, coalesce('example ' || j.example_id, j.subject_id) as together,
       j.label_id, j.people_value, j.people_label,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The preferences of a comparison by one metric."""

    comparison_id: str
    metric: str
    rows: list[dict[str, Any]]  # prompt, chosen, rejected, and their origin
    left_out: dict[str, int]  # numbers of pairs, by LEFT_OUT
    final: frozenset[str]  # ids of final examples, which no prompt should have

    def few_shot(self, n: int) -> tuple[str, list[str]]:
        """Return examples for a prompt, each with a better and a worse answer, and the ids of the examples.

        There is one of an example, none of a final one, and at most `n`: the first by a random order that is the same
        whenever it is asked for. Raise InputError if there is none.
        """
        of_example = {row["example_id"]: row for row in self.rows if row["example_id"] not in self.final}
        chosen = sorted(of_example, key=lambda identity: sha256(identity.encode()).digest())[:n]
        if not chosen:
            raise InputError(f"comparison {self.comparison_id!r}: got no preference that can be an example, wanted one")
        parts = ["Examples, each with a better and a worse answer:"]
        for number, row in enumerate((of_example[identity] for identity in chosen), start=1):
            prompt = row["prompt"] if isinstance(row["prompt"], str) else to_json(row["prompt"])
            texts = {"Question": prompt, "Better answer": row["chosen"], "Worse answer": row["rejected"]}
            parts += [f"## Example {number}", *(f"{name}:\n{text}" for name, text in texts.items())]
        return "\n\n".join(parts) + "\n", chosen

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
    if twice := work_done(store, comparison_id).given_twice:
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
        final=frozenset(pair.example_id for pair in of_metric if pair.split == FINAL),
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
    split: str | None

    @property
    def why_not(self) -> str | None:
        """Why it gives no preference; None if it gives one."""
        if self.status in ("missing", "not_applicable"):
            return self.status.replace("_", " ")
        if self.status == "left_out" or self.decided_by == "failed_output" or self.left is None or self.right is None:
            return "failed outputs"
        if self.left_points == 0.5:
            return {"half": "half ties", "flipped": "flipped"}.get(str(self.outcome), "ties")
        return "same text" if text_of(from_json(self.left)) == text_of(from_json(self.right)) else None

    def as_row(self, metric: str) -> dict[str, Any]:
        sides = ((self.left, self.left_experiment), (self.right, self.right_experiment))
        (chosen, winner), (rejected, loser) = sides if (self.left_points or 0) > 0.5 else sides[::-1]
        return {
            "prompt": _prompt(from_json(self.inputs)),
            "chosen": text_of(from_json(chosen)),
            "rejected": text_of(from_json(rejected)),
            "example_id": self.example_id,
            "metric": metric,
            "chosen_experiment": winner,
            "rejected_experiment": loser,
        }


def _prompt(inputs: Mapping[str, Any]) -> Any:
    only = _only(inputs)
    return only if isinstance(only, list) and inputs.keys() == {"messages"} else text_of(inputs)


def text_of(fields: Mapping[str, Any]) -> str:
    """Return the only field, if it is text; else all fields as JSON, as for the length of an output."""
    only = _only(fields)
    return only if isinstance(only, str) else to_json(fields)


def _only(fields: Mapping[str, Any]) -> Any:
    return next(iter(fields.values())) if len(fields) == 1 else None


_PREFERENCE_PAIRS = """
select metric, example_id, status, outcome, left_points, decided_by, inputs, left_outputs, right_outputs,
       left_experiment, right_experiment, split
from pair_outcomes where comparison_id = ?
order by position, example_id, repetition, left_experiment_id, right_experiment_id, evaluator_version
"""


def anchor_rows(store: Store, reference: str, metric: str) -> list[dict[str, Any]]:
    """Return the answers of experiments that people labelled, as rows of a file of anchors.

    What is known is the majority of yes/no and labels, and the mean of numbers; answers without a majority are left
    out, and those to final examples, which a judge would see in every run. Raise InputError for a reference that means
    no experiment.
    """
    (found,) = ask(store, (_ANCHORS, [find_experiments(store, reference), metric]))
    rows = []
    for run_id, inputs, references, metadata, outputs, steps, data_type, values, labels in found:
        said = [value if value is not None else label for value, label in zip(values, labels, strict=True)]
        known = sum(said) / len(said) if data_type == "NUMERIC" else majority(said)
        if known is None:
            continue
        texts = {"inputs": inputs, "outputs": outputs, "reference_outputs": references, "metadata": metadata}
        fields = {
            name: from_json(text) for name, text in {**texts, "steps": steps}.items() if text not in (None, "{}", "[]")
        }
        rows.append({"id": run_id, **fields, "known": known})
    return rows


def majority(given: Iterable[Any]) -> Any:
    """Return the most frequent label; None for a tie or without labels."""
    most = Counter(given).most_common(2)
    is_tie = len(most) == 2 and most[0][1] == most[1][1]
    return most[0][0] if most and not is_tie else None
