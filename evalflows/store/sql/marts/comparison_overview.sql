-- one row per comparison_id: the progress and cost of each comparison
with compared as (
    select n.comparison_id,
           list_sort(list_distinct(list(e.dataset_name))) as datasets,
           list(coalesce(e.name, n.experiment_id) order by n.place) as experiments,
           any_value(coalesce(e.name, n.experiment_id)) filter (n.experiment_id = n.baseline) as baseline
    from (
        select comparison_id, baseline_experiment_id as baseline, unnest(experiments) as experiment_id,
               generate_subscripts(experiments, 1) as place
        from source.comparison_sets
    ) n
    left join source.experiments e using (experiment_id)
    group by n.comparison_id
), judgements as (
    -- one judgement per evaluator, pair and order, however many metrics it gave
    select comparison_id,
           bool_or(status in ('scored', 'not_applicable', 'sampled_out')) as judged,
           bool_or(decided_by = 'failed_output') is true as unasked
    from staging.comparisons
    group by comparison_id, evaluator, evaluator_version, left_run_id, right_run_id, shown_first
), done as (
    select comparison_id,
           count(*) filter (judged and not unasked) as judged,
           count(*) filter (unasked) as unasked
    from judgements
    group by comparison_id
), even as (
    select comparison_id,
           count(*) filter (outcome = 'tie') as ties,
           count(*) filter (outcome = 'half') as half,
           count(*) filter (outcome = 'flipped') as flipped
    from pair_verdicts
    group by comparison_id
), plans as (
    select comparison_id, len(experiments) as n_experiments,
           case when (spec ->> 'pairs') = 'baseline' then n_experiments - 1
                else n_experiments * (n_experiments - 1) // 2 end as pairs,
           coalesce(
               n_votes,
               n_shared * repetitions * pairs * case when both_orders then 2 else 1 end * json_array_length(evaluators)::bigint
           ) as planned
    from staging.comparison_sets
)
select s.comparison_id, s.name, s.description, s.tags, c.datasets, c.experiments, c.baseline, p.n_experiments,
       s.n_shared, s.n_left_out, s.n_votes, s.repetitions, s.randomize_order, s.both_orders,
       coalesce(s.order_rule, 'strict') as order_rule, s.failed_output_policy,
       p.planned,
       coalesce(d.judged, 0) as judged,
       coalesce(d.unasked, 0) as decided_without_judge,
       greatest(0, p.planned - coalesce(d.judged, 0) - coalesce(d.unasked, 0)) as missing,
       coalesce(e.ties, 0) as ties,
       coalesce(e.half, 0) as half,
       coalesce(e.flipped, 0) as flipped,
       s.calls, s.calls_cached, s.cost_usd, s.state, s.reason, s.started_at, s.ended_at
from staging.comparison_sets s
join plans p using (comparison_id)
left join compared c using (comparison_id)
left join done d using (comparison_id)
left join even e using (comparison_id)
