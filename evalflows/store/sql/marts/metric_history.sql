-- one row per experiment_id, metric, evaluator_version: one metric over time: its mean in each experiment, and what changed since the previous point of its line (same experiment, target, evaluator and metric)
with points as (
    select r.* exclude (higher_is_better), e.state, e.git_commit, e.git_branch, e.git_dirty,
           e.target_version || ' ' || coalesce(e.application_version, '') as target_version,
           higher_is_better(e.spec, r.metric) as higher_is_better,
           -- two versions of an evaluator in one experiment are two lines
           row_number() over (
               partition by r.experiment_id, r.metric, r.evaluator order by r.evaluator_version
           ) as version_number
    from results r
    join staging.experiments e using (experiment_id)
), lines as (
    select *, row_number() over line as n, lag(experiment_id) over line as previous_experiment_id,
           lag(mean) over line as previous_mean,
           lag(evaluator_version) over line <> evaluator_version as evaluator_changed,
           lag(target_version) over line <> target_version as target_changed,
           lag(snapshot_id) over line <> snapshot_id as snapshot_changed
    from points
    window line as (
        partition by experiment, target, metric, evaluator, version_number order by started_at, experiment_id
    )
)
select experiment_id, metric, evaluator_version, evaluator, experiment, target, run_group, dataset_name, snapshot_id, state, tags,
       started_at, git_commit, git_branch, git_dirty, mean, ci_low, ci_high, confidence_level, scored, missing,
       not_applicable, sampled_out, higher_is_better, n, previous_experiment_id, previous_mean,
       mean - previous_mean as difference_from_previous,
       case when evaluator_changed and target_changed then 'evaluator and target' when evaluator_changed then 'evaluator'
            when target_changed then 'target' end as version_changed,
       snapshot_changed, baseline_experiment_id, difference, difference_low, difference_high, p_adjusted,
       conclusion, reason, reason_code,
       case when mean is not null then null when scored > 0 then 'has_labels' when missing > 0 then 'all_missing'
            when sampled_out > 0 then 'sampled_out' else 'not_applicable' end as mean_reason
from lines
