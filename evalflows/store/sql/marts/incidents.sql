-- one row per incident_id: one incident of production: its alarm, its state, and how it ended
select incident_id, any_value(name) as name, any_value(rule) as rule, any_value(kind) as kind,
       any_value(metric) as metric, any_value(slice) as slice,
       case when bool_or(event = 'closed') then 'closed' when bool_or(event = 'recovered') then 'recovered'
            when bool_or(event = 'acknowledged') then 'acknowledged' else 'open' end as state,
       any_value(window_start) filter (event = 'alarm') as window_start,
       any_value(window_end) filter (event = 'alarm') as window_end,
       any_value(since) filter (event = 'alarm') as since,
       any_value(n) filter (event = 'alarm') as n, any_value(missing) filter (event = 'alarm') as missing,
       any_value(value) filter (event = 'alarm') as value, any_value(ci_low) filter (event = 'alarm') as ci_low,
       any_value(ci_high) filter (event = 'alarm') as ci_high,
       any_value(confidence_level) filter (event = 'alarm') as confidence_level,
       any_value(reference) filter (event = 'alarm') as reference,
       any_value(evidence) filter (event = 'alarm') as evidence,
       any_value(text) filter (event = 'alarm') as text,
       min(recorded_at) filter (event = 'alarm') as alarmed_at,
       arg_max(acknowledged_by, recorded_at) filter (event = 'acknowledged') as acknowledged_by,
       arg_max(note, recorded_at) filter (note is not null) as note,
       max(recorded_at) filter (event in ('recovered', 'closed')) as ended_at,
       arg_max(text, recorded_at) filter (event in ('recovered', 'closed')) as ended,
       arg_max(reason_code, recorded_at) filter (event in ('recovered', 'closed')) as ended_code,
       max(window_end) filter (event in ('recovered', 'closed')) as ended_window_end,
       any_value(evaluation_id) as evaluation_id, any_value(evaluator_version) as evaluator_version
from staging.alerts
group by incident_id
