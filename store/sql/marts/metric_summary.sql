-- one row per experiment_id, metric, evaluator_version: how a metric came out, with how much of it is missing
select s.experiment_id, any_value(e.name) as experiment, any_value(e.target) as target, s.metric, s.evaluator_version,
       any_value(s.evaluator) as evaluator,
       avg(s.value) as mean,
       stddev_samp(s.value) as sd,
       count(*) filter (status = 'scored') as scored,
       count(*) filter (status in ('failed', 'not_attempted')) as missing,
       count(*) filter (status = 'not_applicable') as not_applicable,
       count(*) filter (status = 'sampled_out') as sampled_out,
       sum(s.calls) as calls, sum(s.calls_cached) as calls_cached,
       case when bool_or(s.cost_usd is null) then null else sum(s.cost_usd) end as cost_usd
from scores s join experiments e using (experiment_id)
where s.subject_kind = 'run' and s.turn is null
group by s.experiment_id, s.metric, s.evaluator_version
