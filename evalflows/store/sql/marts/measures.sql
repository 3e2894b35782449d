-- one row per run_id, metric: the built-in measures of every run: latency (seconds), cost (USD), tokens (in and out), answer_length (characters); a measure that no answer of an experiment has does not apply to its failed answers either, nor cost to an answer from the ledger
select experiment_id, run_id, example_id, repetition, metric, value,
       case when not is_known then 'not_applicable'
            when status <> 'ok' then status when value is null then 'not_applicable' else 'scored' end as status
from (
    select experiment_id, run_id, example_id, repetition, status, latency_s, cost_asked_usd, length,
           tokens_in + tokens_out as tokens, count(latency_s) over w > 0 as has_latency,
           count(cost_asked_usd) over w > 0 as has_cost, count(tokens_in + tokens_out) over w > 0 as has_tokens,
           count(length) over w > 0 as has_length
    from (select *, case when coalesce(calls_cached, 0) = 0 then cost_usd end as cost_asked_usd from source.outputs)
    window w as (partition by experiment_id)
), lateral (
    values ('latency', latency_s, has_latency), ('cost', cost_asked_usd, has_cost),
           ('tokens', tokens::double, has_tokens), ('answer_length', length::double, has_length)
) as measured(metric, value, is_known)
