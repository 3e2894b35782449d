"""The values that examples had repeatedly under unchanged versions, over all experiments on a dataset."""

from collections.abc import Sequence
from datetime import datetime

from evalflows.specs.frozen import dataclass
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

_EXPERIMENTS = """
select experiment_id, snapshot_id,
       -- an HTTP application that does not say its version may be another one in the next run
       case when target_kind = 'http' and application_version is null then experiment_id
            else concat_ws(' ', target_version, application_version) end as system
from experiments
where coalesce(dataset_name, snapshot_id) = $1 and started_at < $2 and run_group is distinct from $3
      and concat_ws(' ', target_version, application_version) is distinct from $4
      and ($5 is null or concat_ws(' ', target_version, application_version) = $5)
order by started_at, experiment_id
"""

# Answers that came whole from the ledger, or were reused, are those of another run: they are observed once.
_VALUES = """
with runs as (
    select unnest($2::varchar[]) as experiment_id, unnest($3::varchar[]) as snapshot_id, unnest($4::varchar[]) as system
), now as (
    select example_id, hash(inputs::varchar, reference_outputs::varchar) as content from examples where snapshot_id = $1
), same as (
    select x.snapshot_id, example_id from examples x join now using (example_id)
    where hash(x.inputs::varchar, x.reference_outputs::varchar) = now.content and is_one_of(x.snapshot_id, $5)
), replayed as (
    select run_id from outputs
    where is_one_of(experiment_id, $2) and (reused_from is not null or (calls = 0 and calls_cached > 0))
), observed as (
    select s.metric, example_id, r.system, s.evaluator_version, count(*) as n, sum(s.value) as total,
           coalesce(var_pop(s.value), 0) * count(*) as squares, bool_and(s.value in (0, 1)) as is_yes_no,
           list(s.value order by s.value) as sorted
    from scores s join runs r using (experiment_id) join same using (snapshot_id, example_id)
    where is_one_of(experiment_id, $2) and s.subject_kind = 'run' and s.turn is null and s.status = 'scored'
          and s.value is not null and s.run_id not in (select run_id from replayed)
    group by all
), groups as (
    select * exclude (sorted, is_yes_no), bool_and(is_yes_no) over (partition by metric) as is_yes_no,
           case when n > 1 then list_transform(sorted, lambda one: abs(one - sorted[(n + 1) // 2])) else [] end as apart
    from observed
), ordinary as (
    select metric, case when bool_and(is_yes_no) then 0 else quantile_disc(size, 0.9) end as most
    from (select metric, is_yes_no, unnest(apart) as size from groups) group by metric
)
select metric, example_id, coalesce(list(n order by system, evaluator_version) filter (n > 1), []) as counts,
       coalesce(list(total order by system, evaluator_version) filter (n > 1), []) as totals,
       sum(len(list_filter(apart, lambda size: size > most)))::bigint as departures,
       sum(squares) as squares, sum(n - 1)::bigint as df, sum(total) / sum(n) as mean, bool_and(is_yes_no) as is_yes_no
from groups join ordinary using (metric) group by metric, example_id
order by metric, example_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedValues:
    """A metric of an example: its observations, those of one group under the same versions."""

    metric: str
    example_id: str
    counts: Sequence[int]  # of each group of at least two
    totals: Sequence[float]  # the sum of the values of each
    departures: int  # observations apart from the middle one of their group: farther than 9 of 10 are, in any example
    squares: float  # the squared deviations from the group's mean, added up
    df: int
    mean: float
    is_yes_no: bool  # whether all values of the metric are 0 or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What a dataset's examples, as a snapshot has them, were observed to be."""

    experiments: Sequence[str]  # ids
    n_systems: int  # versions of target and application in these
    values: Sequence[RepeatedValues]


def repeated_values(
    store: Store,
    experiment: ExperimentRow,
    *,
    before: datetime,
    run_group: str | None = None,
    system: str | None = None,
    only_system: str | None = None,
) -> Repeated:
    """Return the values of the examples of an experiment, in all experiments on its dataset that started `before`.

    An example counts only with the same inputs and references; a `run_group` and a `system`, its versions
    of target and application, do not count. With `only_system`, no other versions count.
    """
    dataset = experiment.dataset_name or experiment.snapshot_id
    (runs,) = ask(store, (_EXPERIMENTS, [dataset, before, run_group, system, only_system]))
    if not runs:
        return Repeated(experiments=(), n_systems=0, values=())
    ids, snapshots, systems = (list(column) for column in zip(*runs, strict=True))
    owners = {"experiment_id": ids, "snapshot_id": [*{*snapshots, experiment.snapshot_id}]}
    with store.reading(only=owners):
        values = ask_records(
            store, RepeatedValues, _VALUES, [experiment.snapshot_id, ids, snapshots, systems, [*{*snapshots}]]
        )
    return Repeated(experiments=ids, n_systems=len({*systems}), values=values)
