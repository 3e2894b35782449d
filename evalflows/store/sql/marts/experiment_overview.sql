-- one row per experiment_id: the progress, failures, latency and cost of each experiment
with answers as (
    -- an answer of an HTTP application is a request that is paid; one without a cost is taken to cost the most of them
    select experiment_id, is_application,
           count(*) filter (status = 'ok') as answered,
           count(*) filter (status = 'ok' and error_kind = 'truncated') as cut_off,
           count(*) filter (status = 'failed') as failed,
           sum(cost_usd) filter (is_paid) as usd,
           count(*) filter (is_paid and cost_usd is null) as unpriced,
           case when is_application then max(cost_usd) filter (is_paid) end as highest_usd,
           avg(latency_s) as mean_latency_s,
           quantile_cont(latency_s, 0.95) as p95_latency_s
    from (select o.*, target_kind = 'http' as is_application,
                 case when is_application then status = 'ok' else status in ('ok', 'failed') and o.calls is null end as is_paid
          from source.outputs o join source.experiments e using (experiment_id))
    group by experiment_id, is_application
), judged as (
    select experiment_id, sum(cost_usd) filter (calls is null) as usd,
           count(*) filter (calls is null and cost_usd is null) as unrecorded_judgements
    from source.judgements where subject_kind <> 'pair' group by experiment_id
), recorded as (
    select experiment_id, count(*) as recorded_calls, count(*) filter (kind = 'application') as application_calls,
           sum(cost_usd) as usd, sum(estimated_usd) filter (cost_usd is null) as estimated_usd,
           count(*) filter (cost_usd is null and estimated_usd is not null) as estimated_calls,
           count(*) filter (cost_usd is null and estimated_usd is null) as unpriced,
           count(*) filter (batch_id is not null and error_kind = 'unanswered') as waiting_calls,
           sum(tokens_cached) / nullif(sum(tokens_in) filter (tokens_cached is not null), 0) as cached_share,
           sum(tokens_reasoning) / nullif(sum(tokens_out) filter (tokens_reasoning is not null), 0) as reasoning_share
    from source.calls where kind <> 'turn' group by experiment_id
)
select e.experiment_id, e.name, e.target, e.target_kind, e.state, e.reason, e.run_group, e.run_key,
       e.dataset_name, e.snapshot_id, e.n_examples, e.repetitions, e.n_examples * e.repetitions as planned,
       coalesce(a.answered, 0) as answered,
       coalesce(a.cut_off, 0) as cut_off,
       coalesce(a.failed, 0) as failed,
       e.n_examples * e.repetitions - coalesce(a.answered, 0) - coalesce(a.failed, 0) as not_attempted,
       a.mean_latency_s, a.p95_latency_s,
       coalesce(r.recorded_calls, 0) as recorded_calls, coalesce(r.application_calls, 0) as application_calls,
       case when a.highest_usd is null then coalesce(a.unpriced, 0) else 0 end as unrecorded,
       coalesce(j.unrecorded_judgements, 0) as unrecorded_judgements,
       e.calls, e.calls_cached, e.tokens_in, e.tokens_out, e.cost_usd,
       coalesce(e.cost_usd, list_sum([a.usd, j.usd, r.usd, r.estimated_usd, a.unpriced * a.highest_usd])) as spent_usd,
       case when spent_usd is not null then null when r.unpriced > 0 then 'unpriced' when e.state = 'running' then 'running'
            else 'not_recorded' end as spent_reason,
       list_sum([r.estimated_usd, case when a.unpriced > 0 then a.unpriced * a.highest_usd end]) as estimated_usd,
       coalesce(r.estimated_calls, 0) + case when a.highest_usd is null then 0 else a.unpriced end as estimated_calls,
       coalesce(r.unpriced, 0) as unpriced_calls, coalesce(r.waiting_calls, 0) as waiting_calls, e.budget_usd,
       r.cached_share, r.reasoning_share,
       e.application_version, e.git_commit, e.git_branch, e.git_dirty, e.description, e.tags, e.metadata, e.started_at, e.ended_at,
       factors_of(e.spec, e.target) as factors
from staging.experiments e left join answers a using (experiment_id) left join recorded r using (experiment_id)
     left join judged j using (experiment_id)
