"""SQL of how examples changed between a baseline and candidates."""

from collections.abc import Mapping
from typing import Literal, get_args

Change = Literal["improved", "regressed", "same", "flipped", "changed", "missing"]
"""How a candidate's value of an example differs from the baseline's.

`flipped`: it differs although target, application and evaluator have the same version on both sides. `changed`: the
labels differ, of which none is better. `missing`: a side lacks the value.
"""

CHANGES: tuple[Change, ...] = get_args(Change)

Sort = Literal["worst", "best", "position"]
ORDERS: Mapping[Sort, str] = {
    "worst": "relative_gain nulls last, position, metric, candidate_experiment_id",
    "best": "relative_gain desc nulls last, position, metric, candidate_experiment_id",
    "position": "position, example_id, metric, candidate_experiment_id",
}

WITHOUT_TEXTS = (
    *("candidate_experiment_id", "metric", "example_id", "position", "change", "gain", "value", "baseline_value"),
    *("label", "baseline_label", "missing", "baseline_missing"),
)
"""The columns of a change that are read for all examples; texts are read for those that are shown."""

OF_RUN = ("outputs", "comment", "error")

ALL_CHANGES = """
with sides as (
    select experiment_id, snapshot_id, repetitions, target_version, application_version, target_kind,
           (spec -> 'metrics')::map(varchar, json) as declared
    from experiments where experiment_id = $1 or list_contains($2, experiment_id)
), by_example as (
    select experiment_id, metric, example_id,
           avg(value) filter (status = 'scored') as value,
           list(label) filter (status = 'scored' and value is null) as labels,
           case when labels is not null then array_to_string(list_sort(list_distinct(labels)), ', ') end as label,
           count(*) filter (status in ('failed', 'not_attempted')) as failed,
           count(*) filter (status = 'sampled_out') as sampled_out,
           count(*) as runs,
           min(evaluator_version) as oldest, max(evaluator_version) as newest
    from run_values where experiment_id = $1 or list_contains($2, experiment_id)
    group by experiment_id, metric, example_id
), metrics as (
    -- a metric that several evaluators give is ambiguous
    select experiment_id, metric, min(oldest) as evaluator_version, count(value) + count(label) > 0 as is_scored
    from by_example group by experiment_id, metric having min(oldest) = max(newest)
), shared as (
    select s.experiment_id, c.example_id, c.position, s.repetitions, t.repetitions as baseline_repetitions,
           s.declared,
           -- what an HTTP application does not say of its version is not known
           s.target_version = t.target_version and s.application_version is not distinct from t.application_version
           and (s.target_kind <> 'http' or s.application_version is not null) as same_target
    from sides s join sides t on t.experiment_id = $1 and list_contains($2, s.experiment_id)
    join examples c on c.snapshot_id = s.snapshot_id
    join examples b on b.snapshot_id = t.snapshot_id and b.example_id = c.example_id
         and (s.snapshot_id = t.snapshot_id
              or (b.inputs = c.inputs and b.reference_outputs is not distinct from c.reference_outputs))
), paired as (
    select x.experiment_id as candidate_experiment_id, m.metric, x.example_id, x.position,
           case when coalesce((x.declared[m.metric] ->> 'higher_is_better')::boolean,
                              m.metric not in ('latency', 'cost', 'tokens', 'length')) then 1 else -1 end
               * (c.value - b.value) as exact_gain,
           c.value, b.value as baseline_value, c.label, b.label as baseline_label,
           coalesce(c.failed, 0) + x.repetitions - coalesce(c.runs, 0) as missing,
           coalesce(b.failed, 0) + x.baseline_repetitions - coalesce(b.runs, 0) as baseline_missing,
           x.same_target and m.evaluator_version = n.evaluator_version as same_version,
           c.value is null and c.label is null as is_without,
           b.value is null and b.label is null as baseline_without,
           is_without and baseline_without and missing + baseline_missing = 0 as has_none,
           (is_without and c.sampled_out > 0) or (baseline_without and b.sampled_out > 0) as is_sampled_out
    from shared x
    join metrics m using (experiment_id)
    join metrics n on n.experiment_id = $1 and n.metric = m.metric and (m.is_scored or n.is_scored)
    left join by_example c on c.experiment_id = x.experiment_id and c.metric = m.metric and c.example_id = x.example_id
    left join by_example b on b.experiment_id = $1 and b.metric = m.metric and b.example_id = x.example_id
    where $3 is null or (x.experiment_id, x.example_id) in (select (unnest($3), unnest($4)))
), changes as (
    select *, case when abs(exact_gain) < 1e-12 then 0.0 else exact_gain end as gain,
           case when is_without or baseline_without then 'missing'
                when gain = 0 or (gain is null and label is not distinct from baseline_label
                                  and value is not distinct from baseline_value) then 'same'
                when same_version then 'flipped'
                when gain is null then 'changed'
                when gain > 0 then 'improved' else 'regressed' end as change
    from paired where not coalesce(has_none, false) and not coalesce(is_sampled_out, false)
)
"""
"""$1: the baseline; $2: the candidates; $3 and $4: candidates and examples that count, pair by pair, or null."""

COUNTS = f"""{ALL_CHANGES}
select candidate_experiment_id, metric, {", ".join(f"count(*) filter (change = '{one}')" for one in CHANGES)}
from changes group by candidate_experiment_id, metric order by metric, list_position($2, candidate_experiment_id)
"""

WANTED = f"""{ALL_CHANGES}, relative as (
    select *, gain / nullif(max(abs(gain)) over (partition by metric), 0) as relative_gain from changes
)
select * from relative
where (len($5) = 0 or list_contains($5, metric)) and (len($6) = 0 or list_contains($6, change))
      and (len($7) = 0 or list_contains($7, candidate_experiment_id))
qualify not $8 or row_number() over (partition by candidate_experiment_id, change, example_id
                                     order by abs(relative_gain) desc nulls last, metric) = 1
"""

PAGE = f"""select 0, {", ".join(WITHOUT_TEXTS)} from ({WANTED}) order by {{order}} limit $9 offset $10"""

LISTS = f"""
select count(*) over (partition by candidate_experiment_id, change), {", ".join(WITHOUT_TEXTS)} from ({WANTED})
qualify row_number() over (
    partition by candidate_experiment_id, change
    order by case change when 'improved' then -relative_gain else relative_gain end nulls last, position) <= $9
order by list_position($2, candidate_experiment_id), list_position($6, change),
         case change when 'improved' then -relative_gain else relative_gain end nulls last, position
"""

SHOWN = """
with wanted as (
    select unnest($1) as experiment_id, unnest($2) as metric, unnest($3) as example_id, unnest($4) as sign,
           unnest(range(len($1))) as place
), sides as (
    select place, false as is_baseline, experiment_id, metric, example_id, sign from wanted
    union all select place, true, $5, metric, example_id, -sign from wanted
), shown as (
    select s.place, s.is_baseline,
           first({'run_id': v.run_id, 'comment': v.comment, 'error': v.error} order by
               v.status in ('failed', 'not_attempted') desc, s.sign * v.value desc nulls last, v.repetition) as run
    from sides s join run_values v using (experiment_id, metric, example_id)
    group by s.place, s.is_baseline
)
select place, is_baseline, o.outputs::varchar, run.comment, coalesce(run.error, o.error)
from shown left join outputs o on o.run_id = run.run_id
    and (o.experiment_id = $5 or list_contains($1, o.experiment_id))
"""

TEXTS = """
select distinct e.experiment_id, x.example_id, x.inputs::varchar, x.reference_outputs::varchar
from experiments e join examples x using (snapshot_id)
where list_contains($1, e.experiment_id) and list_contains($2, x.example_id)
"""
