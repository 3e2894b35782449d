-- one row per session_id: one session: its traces in order of time
select session_id, list(trace_id order by started_at, trace_id) as trace_ids, count(*) as traces,
       min(started_at) as started_at, max(ended_at) as ended_at,
       arg_min(user_id, started_at) as user_id, arg_min(environment, started_at) as environment,
       arg_max(version, started_at) as version, list_sort(list_distinct(flatten(list(tags)))) as tags,
       sum(errors) as errors, sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out, sum(cost_usd) as cost_usd,
       max(recorded_at) as recorded_at
from traces
where session_id is not null
group by session_id
