-- one row per run_id, metric: the built-in measures of every run: latency (seconds), cost (USD), tokens (in and out), length (characters); a measure that no answer of an experiment has does not apply to its failed answers either
select experiment_id, run_id, example_id, repetition, metric, value,
       case when count(value) over (partition by experiment_id, metric) = 0 then 'not_applicable'
            when status <> 'ok' then status when value is null then 'not_applicable' else 'scored' end as status
from staging.outputs, lateral (
    values ('latency', latency_s), ('cost', cost_usd), ('tokens', (tokens_in + tokens_out)::double), ('length', length::double)
) as measured(metric, value)
