-- one row per evaluator_version, judge_model: whether a judge can be relied on: known-answer controls, biases, agreement with people, spread over repeats, failures and cost; a null figure has its reason
with models as (
    -- the judges among the evaluators: most rows of a large store are of rules, which have no model, and are not read.
    -- A judgement that failed before its call has no model; if the version has one model only, it belongs to that
    select evaluator_version, count(distinct judge_model) as models, any_value(judge_model) as model
    from (
        select evaluator_version, judge_model from staging.scores where status <> 'sampled_out' and judge_model is not null
        union all
        select evaluator_version, judge_model from staging.comparisons
        where decided_by is distinct from 'failed_output' and judge_model is not null
    ) group by evaluator_version
), judgements as (
    select evaluator_version, judge_model, evaluator, metric, experiment_id as owner, 'run' as kind, status, spread,
           null::double as agreement, calls, cost_usd, latency_s, error_kind, recorded_at
    from staging.scores semi join models using (evaluator_version) where status <> 'sampled_out'
    union all
    select evaluator_version, judge_model, evaluator, metric, comparison_id, 'pair', status, null, agreement, calls,
           cost_usd, latency_s, error_kind, recorded_at
    from staging.comparisons where decided_by is distinct from 'failed_output'
), summed as (
    select j.evaluator_version, coalesce(j.judge_model, case when m.models = 1 then m.model end, 'no model') as judge_model,
           any_value(j.evaluator) as evaluator, list_sort(list(distinct j.metric)) as metrics, any_value(j.kind) as kind,
           count(distinct j.owner) as n_experiments,
           count(*) filter (j.status in ('scored', 'not_applicable')) as judged,
           count(*) filter (j.status = 'failed' and j.error_kind is distinct from 'no_output') as failed,
           count(*) filter (j.status = 'not_attempted' or j.error_kind = 'no_output') as not_attempted,
           avg(j.spread) as mean_spread, count(j.spread) as n_repeated,
           avg(j.agreement) as repeat_agreement, count(j.agreement) as n_repeated_pairs,
           sum(j.calls)::bigint as calls, count(*) - count(j.calls) as unrecorded,
           sum(j.cost_usd) as cost_usd, count(*) - count(j.cost_usd) as unpriced, avg(j.latency_s) as latency_mean_s,
           max(j.recorded_at) as last_judged_at
    from judgements j join models m using (evaluator_version)
    group by all
), judges as (
    select e.started_at, e.ended_at, j.evaluator ->> 'name' as name, j.evaluator ->> 'version' as version
    from (select started_at, ended_at, evaluators from staging.experiments
          union all select started_at, ended_at, evaluators from staging.comparison_sets) e,
         lateral (select unnest(e.evaluators -> '$[*]') as evaluator) j
), controls as (
    -- a check of controls names its judge; it belongs to the version that ran in that moment
    select j.version as evaluator_version, c.passed, (c.observed ->> 'difference')::double as difference,
           (c.observed ->> 'low')::double as low, (c.observed ->> 'high')::double as high, c.n_checked, c.message,
           c.recorded_at
    from staging.checks c
    join judges j
        on j.name = c.subject_id and c.recorded_at between j.started_at and coalesce(j.ended_at, c.recorded_at)
    where c.subject_kind = 'judge' and c.name = 'controls'
    qualify row_number() over (partition by j.version order by c.recorded_at desc, c.check_id) = 1
), biased as (
    select c.evaluator_version, count(*) filter (b.found) as found, count(*) filter (not b.found) as absent,
           count(*) filter (b.found is null) as unknown,
           list_sort(list(distinct b.bias) filter (b.found)) as biases
    from judge_biases b
    join (select distinct comparison_id, metric, evaluator_version from staging.comparisons) c using (comparison_id, metric)
    group by c.evaluator_version
), people as (
    select evaluator_version, judge_model, sum(n_labels)::bigint as n_labels,
           sum(agreement * n_judgements) / sum(n_judgements) filter (agreement is not null) as agreement,
           sum(kappa * n_judgements) / sum(n_judgements) filter (kappa is not null) as kappa,
           sum(bias * n_judgements) / sum(n_judgements) filter (bias is not null) as bias
    from judge_quality group by evaluator_version, judge_model
)
select s.evaluator_version, s.judge_model, s.evaluator, s.metrics, s.kind, s.n_experiments, s.judged, s.failed,
       s.not_attempted,
       case when s.judged + s.failed > 0 then s.failed / (s.judged + s.failed) end as failure_share,
       case when s.judged + s.failed = 0 then 'not_attempted' end as failure_share_reason,
       c.passed as controls_passed, c.difference as controls_difference, c.low as controls_low, c.high as controls_high,
       c.n_checked as n_controls, c.recorded_at as controls_at,
       case when c.passed is not null then null when c.recorded_at is null then 'no_controls' else 'too_few' end as controls_reason,
       b.found as biases_found, b.absent as biases_absent, b.unknown as biases_unknown, b.biases,
       case when b.found is not null then null when s.kind = 'pair' then 'not_checked' else 'not_pairwise' end as biases_reason,
       p.agreement as people_agreement, p.kappa as people_kappa, p.bias as people_bias, coalesce(p.n_labels, 0) as n_labels,
       case when p.n_labels is null then 'no_labels' end as people_reason,
       s.mean_spread, s.repeat_agreement, s.n_repeated + s.n_repeated_pairs as n_repeated,
       case when s.n_repeated + s.n_repeated_pairs = 0 then 'no_repeats' end as repeats_reason,
       case when s.unrecorded = 0 then s.calls end as calls,
       case when s.unpriced = 0 then s.cost_usd end as cost_usd, s.cost_usd as cost_known_usd, s.unpriced,
       case when s.unpriced > 0 then 'unpriced' end as cost_reason,
       s.latency_mean_s, s.last_judged_at
from summed s
left join controls c using (evaluator_version)
left join biased b using (evaluator_version)
left join people p using (evaluator_version, judge_model)
