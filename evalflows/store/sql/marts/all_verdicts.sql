-- one row per verdict_id: the verdicts of runs and gates on differences between experiments, with the family whose p-values are adjusted together; not enough evidence if people's labels have rejected the judge since
with rejected as (
    select experiment_id, metric, arg_min(rejection, part) as reason
    from (
        select t.experiment_id, t.metric, t.metric as part, r.rejection
        from source.estimates t
        join people_checks r on not r.passed and r.evaluator_version = t.evaluator_version and r.metric = base_metric(t.metric)
        where t.slice is null
        union all
        select t.experiment_id, c.composite ->> 'name', t.metric, r.rejection
        from source.estimates t
        join people_checks r on not r.passed and r.evaluator_version = t.evaluator_version and r.metric = t.metric
        join (
            select experiment_id, unnest(spec::json -> '$.composites[*]') as composite from source.experiments
        ) c on c.experiment_id = t.experiment_id and list_contains(
            coalesce(json_keys(c.composite -> 'weights'), []) || coalesce(json_keys(c.composite -> 'requirements'), []), t.metric
        )
        where t.slice is null
    )
    group by experiment_id, metric
), known as (
    select v.*, d.gate, d.recorded_at as decided_at, v.decision_id is null and is_measure(v.metric) as is_apart
    from staging.verdicts v
    join source.experiments e on e.experiment_id = v.candidate_experiment_id
    left join source.decisions d on d.decision_id = v.decision_id
    where v.comparison_id is null and (d.decision_id is not null or v.run_group = e.run_group)
), families as (
    -- the p-values that were adjusted together: of a run, evaluators' metrics apart from the built-in ones
    select run_group, is_apart, count(p_adjusted) as n_in_family from known group by run_group, is_apart
), pairs as (
    select candidate_experiment_id, baseline_experiment_id,
           row_number() over (
               partition by candidate_experiment_id
               order by bool_or(decision_id is null) desc, max(decided_at) desc, baseline_experiment_id
           ) = 1 as is_shown
    from known group by candidate_experiment_id, baseline_experiment_id
)
select k.verdict_id, k.decision_id, k.gate, k.run_group, k.candidate_experiment_id, k.baseline_experiment_id, k.metric, k.slice,
       k.candidate_mean, k.baseline_mean, k.difference, k.standard_error, k.ci_low, k.ci_high, k.confidence_level,
       k.p_value, k.p_adjusted, k.adjustment, case when k.gate is null then 'run' else 'gate ' || k.gate end as family,
       f.n_in_family, p.is_shown,
       k.method, k.n_pairs, k.n_clusters,
       k.candidate_scored, k.candidate_missing, k.baseline_scored, k.baseline_missing,
       k.worst_case_low, k.worst_case_high, k.worst_case_ci_low, k.worst_case_ci_high, k.margin, k.higher_is_better,
       k.minimum_detectable_effect, k.power, k.length_controlled,
       case when r.reason is null then k.conclusion else 'not_enough_evidence' end as conclusion,
       coalesce(r.reason, k.reason) as reason,
       case when r.reason is null then k.reason_code else 'judge_rejected_by_people' end as reason_code,
       k.warning, k.settings, k.decided_at, k.recorded_at,
       row_number() over (
           partition by k.candidate_experiment_id, k.baseline_experiment_id, k.metric, k.slice
           order by k.decided_at desc nulls last, k.decision_id desc, k.verdict_id
       ) = 1 as is_current
from known k
join families f using (run_group, is_apart)
join pairs p on p.candidate_experiment_id = k.candidate_experiment_id
            and p.baseline_experiment_id is not distinct from k.baseline_experiment_id
left join rejected r on r.experiment_id = k.candidate_experiment_id and r.metric = k.metric
