-- one row per experiment_id, metric, evaluator_version: the mean of each metric, with counts of scored and missing runs
with of_metrics as (
    -- names are keys of the groups, so that a condition on them reaches the files
    select s.experiment_id, e.name, e.target, metric, evaluator_version, evaluator, subject_kind, value, status,
           sampling_rate, s.calls, s.calls_cached, s.cost_usd
    from source.judgements s join source.experiments e using (experiment_id)
    where subject_kind in ('run', 'experiment') and turn is null
), by_measure as (
    -- the rows of `measures`, summed without making them
    select experiment_id, name, target, count(*) as n, count(*) filter (status = 'ok') as ok,
           unnest([
               {'metric': 'latency', 'known': count(latency_s), 'scored': count(latency_s) filter (status = 'ok'),
                'mean': avg(latency_s) filter (status = 'ok'), 'sd': stddev_samp(latency_s) filter (status = 'ok')},
               {'metric': 'cost', 'known': count(cost_asked_usd),
                'scored': count(cost_asked_usd) filter (status = 'ok'),
                'mean': avg(cost_asked_usd) filter (status = 'ok'),
                'sd': stddev_samp(cost_asked_usd) filter (status = 'ok')},
               {'metric': 'tokens', 'known': count(tokens_in + tokens_out),
                'scored': count(tokens_in + tokens_out) filter (status = 'ok'),
                'mean': avg(tokens_in + tokens_out) filter (status = 'ok'),
                'sd': stddev_samp(tokens_in + tokens_out) filter (status = 'ok')},
               {'metric': 'answer_length', 'known': count(length), 'scored': count(length) filter (status = 'ok'),
                'mean': avg(length) filter (status = 'ok'), 'sd': stddev_samp(length) filter (status = 'ok')}
           ]) as m
    from (
        select o.*, e.name, e.target, case when coalesce(o.calls_cached, 0) = 0 then o.cost_usd end as cost_asked_usd
        from source.outputs o join source.experiments e using (experiment_id)
    )
    group by experiment_id, name, target
), summed as (
    select experiment_id, name, target, metric, evaluator_version,
           any_value(subject_kind) as subject_kind,
           any_value(evaluator) as evaluator,
           -- for samples, values are weighted by the inverse sampling rate
           case when min(sampling_rate) is distinct from max(sampling_rate)
                then sum(value / sampling_rate) filter (status = 'scored')
                     / sum(1 / sampling_rate) filter (status = 'scored' and value is not null)
                else avg(value) filter (status = 'scored') end as mean,
           stddev_samp(value) filter (status = 'scored') as sd,
           -- of a metric with numbers, labels are not averaged, and do not count as scored
           case when count(value) > 0 then count(value) filter (status = 'scored')
                else count(*) filter (status = 'scored') end as scored,
           count(*) filter (status in ('failed', 'not_attempted')) as missing,
           count(*) filter (status = 'not_applicable') + case when count(value) > 0
               then count(*) filter (status = 'scored' and value is null) else 0 end as not_applicable,
           count(*) filter (status = 'sampled_out') as sampled_out,
           case when bool_or(calls is null) then null else sum(calls) end as calls,
           case when bool_or(calls_cached is null) then null else sum(calls_cached) end as calls_cached,
           case when bool_or(cost_usd is null) then null else sum(cost_usd) end as cost_usd
    from of_metrics
    group by experiment_id, name, target, metric, evaluator_version
    union all
    select experiment_id, name, target, m.metric, 'measured', 'run', 'measured', m.mean, m.sd,
           case when m.known > 0 then m.scored else 0 end, case when m.known > 0 then n - ok else 0 end,
           case when m.known > 0 then ok - m.scored else n end, 0, 0, 0, 0.0
    from by_measure
)
select experiment_id, name as experiment, target, metric, evaluator_version, subject_kind, evaluator, mean, sd, scored,
       missing, not_applicable, sampled_out, calls, calls_cached, cost_usd
from summed
