-- one row per experiment_id, metric, evaluator_version: the mean with its interval, the difference from the baseline, and the verdict
with summed as (
    select experiment_id, experiment, target, metric, evaluator_version, evaluator, subject_kind, mean, scored, missing,
           not_applicable, sampled_out, cost_usd
    from metric_summary
    union all
    -- metrics of several repetitions (pass@k) have no scores of their own
    select t.experiment_id, e.name, e.target, t.metric, t.evaluator_version, b.evaluator, 'run', t.mean, t.n_examples,
           greatest(0, e.n_examples - t.n_examples - (b.sampled_out + b.not_applicable) // e.repetitions),
           b.not_applicable // e.repetitions, b.sampled_out // e.repetitions, 0.0
    from staging.estimates t join staging.experiments e using (experiment_id)
    join metric_summary b
        on b.experiment_id = t.experiment_id and b.metric = base_metric(t.metric)
           and b.evaluator_version = t.evaluator_version
    where t.slice is null and base_metric(t.metric) <> t.metric
)
select m.experiment_id, m.experiment, m.target, e.run_group, m.metric, m.evaluator_version, m.evaluator, m.subject_kind,
       coalesce(t.mean, m.mean) as mean, t.standard_error, t.ci_low, t.ci_high, t.confidence_level, t.method,
       m.scored, m.missing, m.not_applicable, m.sampled_out, m.cost_usd,
       v.baseline_experiment_id, b.target as baseline, v.difference,
       v.standard_error as difference_standard_error, v.ci_low as difference_low,
       v.ci_high as difference_high, v.method as difference_method, v.p_value, v.p_adjusted, v.adjustment, v.n_pairs, v.higher_is_better, v.worst_case_low,
       v.worst_case_high, v.worst_case_ci_low, v.worst_case_ci_high, v.margin, v.minimum_detectable_effect, v.power, v.warning,
       v.conclusion, coalesce(v.reason, t.reason) as reason,
       case when v.reason is null then t.reason_code else v.reason_code end as reason_code
from summed m
join staging.experiments e using (experiment_id)
left join staging.estimates t
    on t.experiment_id = m.experiment_id and t.metric = m.metric and t.evaluator_version = m.evaluator_version
       and t.slice is null
left join staging.verdicts v
    on v.run_group = e.run_group and v.candidate_experiment_id = m.experiment_id and v.metric = m.metric
       and v.slice is null and v.decision_id is null and v.comparison_id is null
left join staging.experiments b on b.experiment_id = v.baseline_experiment_id
