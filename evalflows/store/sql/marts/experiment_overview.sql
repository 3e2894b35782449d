-- one row per experiment_id: the progress, failures, latency and cost of each experiment
with answers as (
    select experiment_id,
           count(*) filter (status = 'ok') as answered,
           count(*) filter (status = 'ok' and error_kind = 'truncated') as cut_off,
           count(*) filter (status = 'failed') as failed,
           count(*) filter (status in ('ok', 'failed') and calls is null and cost_usd is null) as unrecorded,
           avg(latency_s) as mean_latency_s,
           quantile_cont(latency_s, 0.95) as p95_latency_s
    from source.outputs
    group by experiment_id
), judged as (
    select experiment_id, count(*) filter (calls is null) as unrecorded_judgements
    from source.judgements where subject_kind <> 'pair' group by experiment_id
), recorded as (
    select experiment_id, count(*) as recorded_calls, count(*) filter (kind = 'application') as application_calls,
           case when count(coalesce(cost_usd, estimated_usd)) = count(*) then sum(coalesce(cost_usd, estimated_usd)) end as usd,
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
       coalesce(a.unrecorded, 0) as unrecorded,
       coalesce(j.unrecorded_judgements, 0) as unrecorded_judgements,
       e.calls, e.calls_cached, e.tokens_in, e.tokens_out, e.cost_usd,
       coalesce(e.cost_usd, case when e.calls = r.recorded_calls then r.usd end) as spent_usd,
       r.cached_share, r.reasoning_share,
       e.application_version, e.git_commit, e.git_branch, e.git_dirty, e.description, e.tags, e.metadata, e.started_at, e.ended_at,
       factors_of(e.spec, e.target) as factors
from staging.experiments e left join answers a using (experiment_id) left join recorded r using (experiment_id)
     left join judged j using (experiment_id)
