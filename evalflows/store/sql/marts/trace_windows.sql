-- one row per evaluation_id, metric, evaluator_version, size, window_start: one metric in one hour or day (UTC) of production, by when the judged items began
with sized as (
    select left(evaluation_day, -11) as evaluation_id, metric, evaluator_version, evaluator, size,
           date_trunc(size, subject_at at time zone 'UTC') at time zone 'UTC' as window_start,
           case when status = 'scored' then value end as value, status in ('failed', 'not_attempted') as is_missing,
           1 / coalesce(sampling_rate, 1) as weight, trace_latency_s, trace_cost_usd
    from trace_scores, (select unnest(['hour', 'day']) as size)
    where turn is null and status in ('scored', 'failed', 'not_attempted') and subject_at is not null
)
select evaluation_id, metric, evaluator_version, any_value(evaluator) as evaluator, size, window_start,
       count(value) as n, count(*) filter (is_missing) as missing,
       -- samples are weighted by the inverse sampling rate
       sum(value * weight) / sum(weight) filter (value is not null) as mean, stddev_samp(value) as sd,
       sum(weight) filter (is_missing) / sum(weight) filter (is_missing or value is not null) as failure_share,
       quantile_cont(trace_latency_s, 0.5) as latency_p50_s, quantile_cont(trace_latency_s, 0.95) as latency_p95_s,
       sum(trace_cost_usd) as cost_usd
from sized
group by evaluation_id, metric, evaluator_version, size, window_start
