-- one row per run_id, metric: the built-in measures of every run: latency (seconds), cost (USD), tokens (in and out), length (characters); a measure that no answer of an experiment has does not apply to its failed answers either
select experiment_id, run_id, example_id, repetition, metric, value,
       case when not is_known then 'not_applicable'
            when status <> 'ok' then status when value is null then 'not_applicable' else 'scored' end as status
from staging.outputs join (
    select experiment_id, count(latency_s) > 0 as latency, count(cost_usd) > 0 as cost,
           count(tokens_in + tokens_out) > 0 as tokens, count(length) > 0 as length
    from staging.outputs group by experiment_id
) as known using (experiment_id), lateral (
    values ('latency', latency_s, known.latency), ('cost', cost_usd, known.cost),
           ('tokens', (tokens_in + tokens_out)::double, known.tokens), ('length', outputs.length::double, known.length)
) as measured(metric, value, is_known)
