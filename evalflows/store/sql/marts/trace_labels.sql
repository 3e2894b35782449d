-- one row per label_id: each person's latest label of a trace, an observation or a session, with the fields of its trace
select l.label_id, l.subject_kind, l.subject_id, l.turn, t.trace_id, l.metric, l.value, l.label, l.data_type, l.labeller,
       l.comment, l.source, l.metadata, l.labelled_at, l.seconds, l.cost_usd, t.name, t.session_id, t.user_id, t.tags, t.version, t.environment,
       t.models, l.recorded_at
from current_labels l
left join traces t on t.trace_id = case l.subject_kind
    when 'trace' then l.subject_id when 'observation' then split_part(l.subject_id, '/', 1) end
where l.subject_kind in ('trace', 'observation', 'session')
