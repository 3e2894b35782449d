"""What only the page of one experiment shows: distributions of values, costs by source, kinds of failures, related
experiments, and the list of examples, filtered and sorted."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from evalflows.analysis.figures import figure
from evalflows.reports.experiment_report import Failure
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.store.sql import ask, ask_records, fields_of, record_of, records_of
from evalflows.store.store import Store

MOST_VALUES = 10
"""A metric with more different values is counted in BINS intervals of equal width."""

BINS = 20

MOST_FAILURES = 20
LINKED = 5
"""Examples of a failure that are named."""

_BASELINES = """
select baseline_experiment_id, baseline, relation, baseline_state, baseline_started_at
from experiment_pairs where candidate_experiment_id = $1 order by relation desc
"""

_BESIDE = """
select experiment_id, name, 'beside', state, started_at from experiments
where run_group = $1 and experiment_id <> $2 order by started_at, target
"""

Shown = Literal["all", "failed", "missing"]
"""All examples, those with a failed answer, or those that lack a value of the metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How often each value, interval of values or label occurs among the scored runs."""

    metric: str
    scored: int
    missing: int
    not_applicable: int
    counts: Sequence[tuple[str, int]]  # in order of the values; labels by frequency


def distributions(store: Store, experiment: str) -> list[Distribution]:
    """Return the distribution of each metric, measures last. Metrics without a scored run have no counts."""
    (rows,) = ask(store, (_DISTRIBUTIONS, [experiment, [*MEASURES], MOST_VALUES, BINS]))
    return [
        record_of(Distribution, row, counts=_counts(row[0], lowest, width, counted))
        for *row, lowest, width, counted in rows
    ]


def _counts(
    metric: str, lowest: float | None, width: float | None, counted: Sequence[Mapping[str, Any]]
) -> list[tuple[str, int]]:
    """Return how often each value, or each bin from the lowest one on, and each label occurs, in words."""
    numbers = {row["place"]: row["n"] for row in counted if row["place"] is not None}
    if lowest is None or width is None:
        values = [(f"{value:.4g}", n) for value, n in numbers.items()]
    else:
        ends = [figure(lowest + index * width, metric) for index in range(BINS + 1)]
        values = [(f"{ends[index]} to {ends[index + 1]}", numbers.get(index, 0)) for index in range(BINS)]
    return [*values, *((row["label"], row["n"]) for row in counted if row["label"] is not None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCost:
    """Calls, cost and latency of the target, of an evaluator, or of all; for all models, or for one."""

    source: str
    model: str
    n: int | None
    failed: int | None
    calls: int | None
    calls_cached: int | None
    tokens_in: int | None
    tokens_out: int | None
    tokens_cached: int | None
    tokens_reasoning: int | None
    cost_usd: float | None
    cost_known_usd: float | None
    unpriced: int
    cost_reason: str | None
    latency_p50_s: float | None
    latency_p95_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """How often a target or an evaluator failed in one way."""

    source: str  # `target`, or the evaluator
    kind: str
    error: str | None
    count: int
    examples: Sequence[str]  # the first ones
    trace: str | None  # the frames of the user's code


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedExperiment:
    """An experiment that this one is compared with, or that ran beside it."""

    experiment_id: str
    name: str
    relation: str  # `run`: the baseline of its run, `gate`: of a gate, `previous`: the run before, `beside`
    state: str
    started_at: datetime


def costs_of(store: Store, experiment: str) -> list[SourceCost]:
    """Return cost and latency of an experiment: of all, of the target, then of each evaluator."""
    return ask_records(store, SourceCost, _COSTS, [experiment])


def failure_kinds(store: Store, experiment: str, failures: Sequence[Failure]) -> list[FailureKind]:
    """Return the failures of an experiment by kind, the most frequent first; `failures` have the frames of the code."""
    (rows,) = ask(store, (_FAILURE_FACTS, [experiment, LINKED, MOST_FAILURES]))
    traces = {(failure.source, failure.error): failure.trace for failure in failures}
    return [record_of(FailureKind, row, trace=traces.get((row[0], row[2]))) for row in rows]


def related_experiments(store: Store, experiment: str, run_group: str) -> list[RelatedExperiment]:
    """Return the baselines of an experiment, the run before it, and those of the same run."""
    baselines, beside = ask(store, (_BASELINES, [experiment]), (_BESIDE, [run_group, experiment]))
    found = records_of(RelatedExperiment, baselines)
    known = {record.experiment_id for record in found}
    return found + [record for record in records_of(RelatedExperiment, beside) if record.experiment_id not in known]


_COSTS = f"""
select {fields_of(SourceCost)} from cost_and_latency where experiment_id = $1
order by source <> 'all', source <> 'target', source, model <> 'all', model
"""

_FAILURE_FACTS = """
select coalesce(evaluator, source) as source, kind, error, count(*) as n,
       list_slice(list_sort(list(distinct example_id)), 1, $2) as examples
from failures where experiment_id = $1 and kind <> 'no_output'
group by all order by n desc, source, kind, error limit $3
"""


# One query: planning one over the scores takes most of its time.
_DISTRIBUTIONS = """
with found as materialized (
    select metric, value, label, status from run_values where experiment_id = $1
), summed as (
    select metric, count(*) filter (status = 'scored') as scored,
           count(*) filter (status in ('failed', 'not_attempted')) as missing,
           count(*) filter (status = 'not_applicable') as not_applicable,
           min(value) filter (status = 'scored') as lowest,
           max(value) filter (status = 'scored') - min(value) filter (status = 'scored') as spread,
           count(distinct value) filter (status = 'scored') > $3 as is_binned
    from found group by metric
), counted as (
    select metric, case when value is null then label end as label,
           case when is_binned then least(floor((value - lowest) / spread * $4), $4 - 1) else value end as place,
           count(*) as n
    from found join summed using (metric) where status = 'scored' and (value is not null or label is not null)
    group by all
)
select metric, scored, missing, not_applicable, case when is_binned then lowest end,
       case when is_binned then spread / $4 end, coalesce(counts, [])
from summed left join (
    select metric, list({'place': place, 'label': label, 'n': n} order by place nulls last, n desc, label) as counts
    from counted group by metric
) using (metric)
order by coalesce(list_position($2, metric), 0), metric
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which examples are wanted, and in which order."""

    metric: str | None = None  # None: in the dataset's order
    worst_first: bool = True
    higher_is_better: bool = True
    shown: Shown = "all"
    text: str | None = None  # in the inputs or an answer
    classified: tuple[str, str, str] | None = None  # by an evaluator as expected and answered, empty: none of these


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemValue:
    """One metric of an example: the mean over its repetitions, or its labels."""

    value: float | None
    label: str | None
    missing: int  # runs that failed or were not attempted
    not_applicable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One example of an experiment."""

    example_id: str
    position: int
    split: str | None
    inputs: str  # JSON
    outputs: str | None  # JSON, of the first repetition that was answered
    answered: int
    failed: int
    error: str | None
    values: Mapping[str, ItemValue]  # by metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """One page of examples."""

    items: Sequence[Item]
    count: int  # of all pages


def items_of(store: Store, experiment: str, snapshot: str, wanted: ItemFilter, *, limit: int, offset: int = 0) -> Items:
    """Return one page of the examples of an experiment on a snapshot."""
    order = "value asc nulls last" if wanted.higher_is_better == wanted.worst_first else "value desc nulls last"
    query = _WANTED.format(order=f"{order}, position" if wanted.metric else "position")
    values = [experiment, snapshot, wanted.metric, wanted.shown, wanted.text]
    values += [*(wanted.classified or (None, None, None))]

    def read() -> Items:
        (page,) = ask(store, (f"{query} limit $9 offset $10", [*values, limit, offset]))
        ids = [row[1] for row in page]
        rows, scores = ask(store, (_ROWS, [experiment, snapshot, ids]), (_VALUES, [experiment, ids]))
        by_example: dict[str, dict[str, ItemValue]] = {}
        for example, metric, *value in scores:
            by_example.setdefault(example, {})[metric] = record_of(ItemValue, value)
        items = [record_of(Item, row, values=by_example.get(row[0], {})) for row in rows]
        return Items(items=items, count=page[0][0] if page else 0)

    return store.steady(read)


_WANTED = """
with answers as (
    select example_id, count(*) filter (status = 'failed') as failed,
           bool_or($5 is not null and contains(lower(outputs::varchar), lower($5))) as has_text
    from outputs where experiment_id = $1 group by example_id
), scored as (
    select example_id, avg(value) filter (status = 'scored') as value,
           count(*) filter (status in ('failed', 'not_attempted')) as missing, count(*) as n
    from run_values where experiment_id = $1 and metric = $3 group by example_id
)
select count(*) over (), x.example_id
from examples x left join answers a using (example_id) left join scored s using (example_id)
where x.snapshot_id = $2
  and case $4 when 'failed' then a.failed > 0
              when 'missing' then case when $3 is null then a.example_id is null or a.failed > 0
                                       else s.n is null or s.missing > 0 end
              else true end
  and ($5 is null or a.has_text or contains(lower(x.inputs::varchar), lower($5)) or x.example_id = $5)
  and ($6 is null or x.example_id in (
      select example_id from classified where experiment_id = $1 and evaluator = $6 and expected = $7
      and (got = $8 or $8 = '' and (got is null or got not in (
          select expected from classified where experiment_id = $1 and evaluator = $6)))))
order by {order}
"""

_ROWS = """
with answers as (
    select example_id, arg_min(outputs::varchar, repetition) filter (status = 'ok') as outputs,
           count(*) filter (status = 'ok') as answered, count(*) filter (status = 'failed') as failed,
           arg_min(error, repetition) filter (status = 'failed') as error
    from outputs where experiment_id = $1 and list_contains($3, example_id) group by example_id
)
select x.example_id, x.position, x.split, x.inputs::varchar, a.outputs, coalesce(a.answered, 0), coalesce(a.failed, 0),
       a.error
from examples x left join answers a using (example_id)
where x.snapshot_id = $2 and list_contains($3, x.example_id)
order by list_position($3, x.example_id)
"""

_VALUES = """
select example_id, metric, avg(value) filter (status = 'scored'),
       array_to_string(list_sort(list(distinct label) filter (status = 'scored' and value is null)), ' / '),
       count(*) filter (status in ('failed', 'not_attempted')), count(*) filter (status = 'not_applicable')
from run_values where experiment_id = $1 and list_contains($2, example_id)
group by example_id, metric
"""
