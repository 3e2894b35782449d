-- one row per experiment_id, metric, evaluator_version: the mean with its interval, the difference from the baseline, and the verdict
with summed as (
    -- a metric once by itself, and once for each metric of several repetitions (pass@k), which has no scores of its own.
    -- Summaries are read once, so that a condition on the experiment reaches the files.
    select m.experiment_id, m.experiment, m.target, coalesce(t.metric, m.metric) as metric, m.evaluator_version, m.evaluator,
           m.subject_kind, case when is_pass_k then t.mean else m.mean end as mean,
           case when is_pass_k then t.n_examples else m.scored end as scored,
           case when is_pass_k
                then greatest(0, e.n_examples - t.n_examples - (m.sampled_out + m.not_applicable) // e.repetitions)
                else m.missing end as missing,
           case when is_pass_k then m.not_applicable // e.repetitions else m.not_applicable end as not_applicable,
           case when is_pass_k then m.sampled_out // e.repetitions else m.sampled_out end as sampled_out,
           case when is_pass_k then 0.0 else m.cost_usd end as cost_usd
    from metric_summary m
    join source.experiments e using (experiment_id)
    cross join (values (false), (true)) as variant(is_pass_k)
    left join source.estimates t
        on is_pass_k and t.experiment_id = m.experiment_id and t.evaluator_version = m.evaluator_version
           and t.slice is null and base_metric(t.metric) = m.metric and t.metric <> m.metric
    where not is_pass_k or t.metric is not null
)
select m.experiment_id, m.experiment, m.target, e.run_group, e.started_at, e.dataset_name, e.snapshot_id, e.tags,
       m.metric, m.evaluator_version, m.evaluator, m.subject_kind,
       coalesce(t.mean, m.mean) as mean, t.standard_error, t.ci_low, t.ci_high, t.confidence_level, t.method,
       m.scored, m.missing, m.not_applicable, m.sampled_out, m.cost_usd,
       v.baseline_experiment_id, b.target as baseline,
       v.candidate_mean as paired_mean, v.baseline_mean as paired_baseline_mean, v.difference,
       v.standard_error as difference_standard_error, v.ci_low as difference_low,
       v.ci_high as difference_high, v.method as difference_method, v.p_value, v.p_adjusted, v.adjustment, v.family, v.n_in_family, v.decision_id, v.n_pairs, v.higher_is_better, v.worst_case_low,
       v.worst_case_high, v.worst_case_ci_low, v.worst_case_ci_high, v.margin, v.minimum_detectable_effect, v.power, v.warning,
       v.conclusion, coalesce(v.reason, t.reason) as reason,
       case when v.reason is null then t.reason_code else v.reason_code end as reason_code
from summed m
join source.experiments e using (experiment_id)
left join source.estimates t
    on t.experiment_id = m.experiment_id and t.metric = m.metric and t.evaluator_version = m.evaluator_version
       and t.slice is null
left join current_verdicts v
    on v.candidate_experiment_id = m.experiment_id and v.metric = m.metric and v.slice = 'all' and v.is_shown
left join source.experiments b on b.experiment_id = v.baseline_experiment_id
