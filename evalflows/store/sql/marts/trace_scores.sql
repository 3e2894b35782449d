-- one row per score_id: one score of a trace, an observation or a session of production, with the fields of its trace
select s.score_id, s.subject_kind, s.subject_id, s.turn, t.trace_id, s.metric, s.evaluator, s.evaluator_version,
       s.value, s.label, s.data_type, s.comment, s.metadata as score_metadata, s.status, s.error, s.error_kind, s.sampling_rate, s.spread, s.judge_model,
       s.cost_usd, e.name as evaluation, s.experiment_id as evaluation_day, s.subject_at, t.name, t.session_id, t.user_id, t.tags, t.version,
       t.environment, t.models, t.latency_s as trace_latency_s, t.cost_usd as trace_cost_usd, s.recorded_at
from staging.scores s
left join traces t on t.trace_id = case s.subject_kind
    when 'trace' then s.subject_id when 'observation' then split_part(s.subject_id, '/', 1) end
left join (
    select evaluation_id, arg_max(name, started_at) as name from staging.watermarks group by evaluation_id
) e on e.evaluation_id = left(s.experiment_id, length(s.experiment_id) - length('-2026-01-31'))
where s.subject_kind in ('trace', 'observation', 'session')
