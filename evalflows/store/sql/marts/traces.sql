-- one row per trace_id: one trace: the fields of its root observation, else of the earliest that has them, and sums over its model calls
select trace_id,
       coalesce(arg_min(trace_name, started_at), arg_min(name, row(parent_id is not null, started_at, span_id)) filter (kind is distinct from 'log')) as name,
       min(started_at) as started_at, max(coalesce(ended_at, started_at)) as ended_at,
       case when max(ended_at) >= min(started_at) then epoch_us(max(ended_at) - min(started_at)) / 1e6 end as latency_s,
       case when arg_min(status, row(parent_id is not null, started_at, span_id)) = 'error' then 'error' else 'ok' end as status,
       count(*) filter (type <> 'event') as observations,
       count(*) filter (status = 'error') as errors,
       arg_min(input, row(parent_id is not null, started_at, span_id)) as input,
       arg_min(output, row(parent_id is not null, started_at, span_id)) as output,
       arg_min(session_id, row(parent_id is not null, started_at, span_id)) as session_id,
       arg_min(user_id, row(parent_id is not null, started_at, span_id)) as user_id,
       list_sort(list_distinct(flatten(list(tags) filter (tags is not null)))) as tags,
       arg_min(version, row(parent_id is not null, started_at, span_id)) as version,
       arg_min(environment, row(parent_id is not null, started_at, span_id)) as environment,
       arg_min(service, row(parent_id is not null, started_at, span_id)) as service,
       list_sort(list_distinct(list(model) filter (model is not null))) as models,
       sum(tokens_in) filter (type in ('generation', 'embedding')) as tokens_in,
       sum(tokens_out) filter (type in ('generation', 'embedding')) as tokens_out,
       coalesce(sum(cost_usd) filter (type in ('generation', 'embedding')), max(cost_usd)) as cost_usd,
       arg_min(attributes, row(parent_id is not null, started_at, span_id)) as attributes,
       max(recorded_at) as recorded_at
from staging.observations
group by trace_id
