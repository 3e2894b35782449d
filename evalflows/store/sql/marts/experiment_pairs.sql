-- one row per candidate_experiment_id, baseline_experiment_id: two experiments that people compare, and why: a verdict, a gate's decision, or an earlier run
with known as materialized (
    from staging.experiments  -- read once: it has a file for each experiment
), of_verdicts as (
    select v.candidate_experiment_id, v.baseline_experiment_id, 1 as rank, 'run' as relation
    from staging.verdicts v
    join known e on e.experiment_id = v.candidate_experiment_id and e.run_group = v.run_group
    where v.decision_id is null and v.comparison_id is null
), of_gates as (
    select candidate_experiment_id, baseline_experiment_id, 2, 'gate' from staging.decisions
), completed_before as (
    -- trials are no baselines
    select experiment_id,
           last_value(baseline ignore nulls) over (
               partition by name, dataset_name order by started_at, experiment_id
               rows between unbounded preceding and 1 preceding
           ) as on_dataset,
           last_value(baseline ignore nulls) over (
               partition by name, snapshot_id order by started_at, experiment_id
               rows between unbounded preceding and 1 preceding
           ) as on_snapshot,
           dataset_name
    from (
        select *, case when state = 'completed' and not list_contains(tags, 'trial') then experiment_id end as baseline
        from known
    )
), of_names as (
    select experiment_id, coalesce(case when dataset_name is not null then on_dataset end, on_snapshot), 3, 'previous'
    from completed_before
), found as (
    select candidate_experiment_id, baseline_experiment_id, arg_min(relation, rank) as relation
    from (from of_verdicts union all from of_gates union all from of_names)
    where candidate_experiment_id <> baseline_experiment_id
    group by candidate_experiment_id, baseline_experiment_id
)
select f.candidate_experiment_id, f.baseline_experiment_id, f.relation, c.name as candidate, b.name as baseline,
       c.started_at, b.started_at as baseline_started_at, c.state, b.state as baseline_state,
       c.dataset_name, c.snapshot_id, b.snapshot_id as baseline_snapshot_id,
       c.repetitions, b.repetitions as baseline_repetitions,
       same_target(answered_by(c.target_kind, c.spec), c.target_version, b.target_version, c.application_version, b.application_version)
           as same_target_version,
       c.spec
from found f
join known c on c.experiment_id = f.candidate_experiment_id
join known b on b.experiment_id = f.baseline_experiment_id
