-- one row per experiment_id, mode, evaluator_version: how often a failure mode was found, in an experiment or a day of production
select s.experiment_id, e.name as experiment, w.name as evaluation, s.subject_kind, substr(s.metric, 6) as mode,
       any_value(s.evaluator) as evaluator, s.evaluator_version, count(*) filter (s.value > 0) as n_with, count(*) as n,
       sum(case when s.value > 0 then 1 / coalesce(s.sampling_rate, 1.0) else 0 end)
           / sum(1 / coalesce(s.sampling_rate, 1.0)) as rate,
       any_value(m.ci_low) as ci_low, any_value(m.ci_high) as ci_high, e.target_version, e.git_commit,
       coalesce(min(s.subject_at), e.started_at) as started_at
from staging.scores s
left join staging.experiments e using (experiment_id)
left join (
    select evaluation_id, arg_max(name, started_at) as name from staging.watermarks group by evaluation_id
) w on w.evaluation_id = left(s.experiment_id, length(s.experiment_id) - length('-2026-01-31'))
left join staging.estimates m
    on m.experiment_id = s.experiment_id and m.metric = s.metric and m.evaluator_version = s.evaluator_version
       and m.slice is null
where starts_with(s.metric, 'mode.') and s.status = 'scored' and s.turn is null
group by s.experiment_id, e.name, w.name, s.subject_kind, s.metric, s.evaluator_version, e.target_version, e.git_commit, e.started_at
