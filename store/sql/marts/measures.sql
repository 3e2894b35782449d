-- one row per run_id, metric: what every run is measured by: latency (seconds), cost (USD), tokens (in and out), length (characters)
with known as (
    select experiment_id, run_id, example_id, repetition, status, latency_s, cost_usd, tokens_in + tokens_out as tokens,
           case when json_array_length(json_keys(outputs)::json) = 1
                     and json_type(outputs, '$."' || json_keys(outputs)[1] || '"') = 'VARCHAR'
                then length(outputs ->> json_keys(outputs)[1])
                else length(outputs::varchar) end as characters
    from outputs
)
select experiment_id, run_id, example_id, repetition, metric, value,
       case when status <> 'ok' then status when value is null then 'not_applicable' else 'scored' end as status
from known, lateral (
    values ('latency', latency_s), ('cost', cost_usd), ('tokens', tokens::double), ('length', characters::double)
) as measured(metric, value)
