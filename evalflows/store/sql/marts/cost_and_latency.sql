-- one row per experiment_id, source, model: cost, calls, tokens and latency of an experiment: of all, of its target (`target`), in conversations of its user (`target: user`, `target: user_check`), of trial calls (`trial`) and of each evaluator; for `all` models, and for each model that was called
with answers as (
    select experiment_id, 'target' as source, 'all' as model, count(*) filter (status <> 'not_attempted') as n,
           count(*) filter (status = 'failed') as failed,
           sum(calls) as calls, sum(calls_cached) as calls_cached, count(*) - count(calls) as unrecorded,
           sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out, sum(cost_usd) as cost_usd,
           count(*) filter (cost_usd is null and status <> 'not_attempted') as unpriced,
           avg(latency_s) as latency_mean_s, quantile_cont(latency_s, [0.5, 0.95, 0.99]) as quantiles
    from staging.outputs group by experiment_id
), judgements as (
    select experiment_id, evaluator, 'all', count(*) filter (status not in ('not_attempted', 'sampled_out')),
           count(*) filter (status = 'failed'),
           sum(calls), sum(calls_cached), count(*) - count(calls), sum(tokens_in), sum(tokens_out), sum(cost_usd),
           count(*) filter (cost_usd is null and status not in ('not_attempted', 'sampled_out')),
           avg(latency_s), quantile_cont(latency_s, [0.5, 0.95, 0.99])
    from staging.scores group by experiment_id, evaluator
), users as (
    select experiment_id, evaluator, 'all', count(*), count(*) filter (status = 'failed'),
           count(*) filter (kind <> 'turn'), count(*) filter (kind = 'turn'), 0, sum(tokens_in), sum(tokens_out),
           sum(cost_usd), count(*) - count(cost_usd), avg(latency_s), quantile_cont(latency_s, [0.5, 0.95, 0.99])
    from source.calls where evaluator in ('target: user', 'target: user_check', 'trial') group by experiment_id, evaluator
), by_model as (
    -- the ledger has paid calls, those of controls too
    select experiment_id, coalesce(evaluator, 'target'), model, count(*), count(*) filter (status = 'failed'), count(*),
           null, 0, sum(tokens_in), sum(tokens_out), sum(cost_usd), count(*) - count(cost_usd),
           avg(latency_s), quantile_cont(latency_s, [0.5, 0.95, 0.99])
    from staging.calls where kind <> 'application' group by experiment_id, evaluator, model
), in_total as (
    select experiment_id, 'all', 'all', null, null, calls, calls_cached, (calls is null)::bigint, tokens_in, tokens_out,
           spent_usd - coalesce(estimated_usd, 0),
           case when cost_usd is not null then 0 when state = 'running' then 1
                else estimated_calls + unpriced_calls + unrecorded + unrecorded_judgements end, null, null
    from experiment_overview
), details as (
    select experiment_id, case when grouping(evaluator) = 1 then 'all' else coalesce(evaluator, 'target') end as source,
           case when grouping(model) = 1 then 'all' else model end as model,
           sum(tokens_cached)::bigint as tokens_cached, sum(tokens_reasoning)::bigint as tokens_reasoning
    from staging.calls
    group by grouping sets ((experiment_id, evaluator, model), (experiment_id, evaluator), (experiment_id))
), parts as (
    from answers union all from judgements union all from users union all from by_model union all from in_total
)
select e.experiment_id, p.source, p.model, e.name as experiment, e.target, e.started_at, e.state, p.n, p.failed,
       case when p.unrecorded = 0 then p.calls end::bigint as calls,
       case when p.unrecorded = 0 then p.calls_cached end::bigint as calls_cached,
       p.unrecorded, p.tokens_in::bigint as tokens_in, p.tokens_out::bigint as tokens_out,
       d.tokens_cached, d.tokens_reasoning,
       case when p.unpriced = 0 then p.cost_usd end as cost_usd,
       p.cost_usd as cost_known_usd, p.unpriced,
       p.latency_mean_s, p.quantiles[1] as latency_p50_s, p.quantiles[2] as latency_p95_s,
       p.quantiles[3] as latency_p99_s,
       case when p.unpriced > 0 then case when e.state = 'running' then 'running' else 'unpriced' end
            when p.cost_usd is null then 'not_recorded' end as cost_reason,
       case when p.latency_mean_s is not null then null when p.source = 'all' then 'several_sources'
            else 'not_recorded' end as latency_reason
from parts p join staging.experiments e using (experiment_id)
left join details d using (experiment_id, source, model)
