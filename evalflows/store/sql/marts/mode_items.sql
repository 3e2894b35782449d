-- one row per score_id: an answer of an experiment, or an item of production, that has a failure mode, and why
select s.score_id, substr(s.metric, 6) as mode, s.experiment_id, e.name as experiment, s.example_id, s.run_id,
       s.subject_kind, s.subject_id, s.comment, s.evaluator, s.evaluator_version, s.judge_model,
       coalesce(s.subject_at, e.started_at) as started_at
from staging.scores s
left join staging.experiments e using (experiment_id)
where starts_with(s.metric, 'mode.') and s.status = 'scored' and s.value > 0 and s.turn is null
