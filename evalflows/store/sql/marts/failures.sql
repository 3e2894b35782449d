-- one row per failure_id: an answer or a judgement that failed or was not attempted, and why
with planned as (
    select e.experiment_id, x.example_id, unnest(range(e.repetitions)) as repetition
    from staging.experiments e
    join staging.examples x using (snapshot_id)
    where e.state <> 'running'
), found as (
    select run_id as failure_id, experiment_id, 'target' as source, null as evaluator, null as evaluator_version,
           null as metric, 'run' as subject_kind, run_id as subject_id, run_id, example_id, repetition, status,
           error_kind as kind, error, attempts, recorded_at
    from staging.outputs where status in ('failed', 'not_attempted')
    union all
    -- what an experiment planned and has no row of; DuckDB pushes a condition into both sides of this join, unlike an anti join
    select experiment_id || '/' || p.example_id || '/' || p.repetition, experiment_id, 'target', null, null, null, 'run', null,
           null, p.example_id, p.repetition, 'not_attempted', null, null, 0, null
    from planned p left join staging.outputs o using (experiment_id, example_id, repetition)
    where o.run_id is null
    union all
    select score_id, experiment_id, 'evaluator', evaluator, evaluator_version, metric, subject_kind, subject_id, run_id,
           example_id, repetition, status, error_kind, error, attempts, recorded_at
    from staging.scores where status in ('failed', 'not_attempted')
    union all
    select judgement_id, comparison_id, 'pairwise', evaluator, evaluator_version, metric, 'pair',
           left_run_id || ' ' || right_run_id, left_run_id, example_id, repetition, status, error_kind, error, attempts,
           recorded_at
    from staging.comparisons where status in ('failed', 'not_attempted')
)
select f.failure_id, f.experiment_id, coalesce(e.name, c.name) as experiment, e.target, f.source, f.evaluator,
       f.evaluator_version, f.metric, f.subject_kind, f.subject_id, f.run_id, f.example_id, f.repetition, f.status,
       coalesce(f.kind, case when f.status = 'not_attempted' then 'not_attempted' else 'unknown' end) as kind,
       coalesce(f.error, case when f.run_id is null then e.reason end) as error, f.attempts, f.recorded_at
from found f
left join staging.experiments e using (experiment_id)
left join staging.comparison_sets c on c.comparison_id = f.experiment_id
