-- one row per run_id, metric: the built-in measures of every run: latency (seconds), cost (USD), tokens (in and out), length (characters)
select experiment_id, run_id, example_id, repetition, metric, value,
       case when status <> 'ok' then status when value is null then 'not_applicable' else 'scored' end as status
from outputs, lateral (
    values ('latency', latency_s), ('cost', cost_usd), ('tokens', (tokens_in + tokens_out)::double), ('length', length::double)
) as measured(metric, value)
