-- one row per comparison_id, metric, evaluator_version, left_run_id, right_run_id: the combined outcome of all orders of a pair, with its inputs and outputs
with pairs as (
    select c.comparison_id, c.metric, c.evaluator_version, c.left_run_id, c.right_run_id,
           any_value(s.name) as comparison,
           any_value(s.snapshot_ids[1]) as snapshot_id,  -- the first experiment's snapshot, which judges saw
           any_value(c.evaluator) as evaluator,
           any_value(c.example_id) as example_id,
           any_value(c.repetition) as repetition,
           any_value(c.left_experiment_id) as left_experiment_id,
           any_value(c.right_experiment_id) as right_experiment_id,
           count(*) filter (c.status <> 'sampled_out') as orders,
           -- a verdict recorded in one order needs no judgement in the other
           any_value(case when s.both_orders then 2 else 1 end) - count(*) filter (c.status = 'sampled_out') as planned,
           case when orders > 1 then 'both' else any_value(c.shown_first) filter (c.status <> 'sampled_out') end
               as shown_first,
           bool_or(c.status in ('failed', 'not_attempted')) as is_missing,
           bool_or(c.status = 'not_applicable' and c.decided_by is distinct from 'failed_output') as is_not_applicable,
           bool_or(c.status = 'not_applicable' and c.decided_by = 'failed_output') as is_left_out,
           case when count(distinct c.winner) > 1 then 'flipped' else any_value(c.winner) end as said,
           avg(c.left_score) as left_score,
           avg(c.right_score) as right_score,
           -- 'left' sorts before 'right': the order with the left answer first comes first
           arg_min(c.decided_by, c.shown_first) filter (c.status <> 'sampled_out') as decided_by,
           arg_min_null(c.comment, c.shown_first) filter (c.status <> 'sampled_out') as comment,
           case when orders > 1 then arg_max_null(c.comment, c.shown_first) end as other_comment,
           arg_min(c.error, c.shown_first) filter (c.status <> 'sampled_out') as error,
           arg_min(c.judge_model, c.shown_first) filter (c.status <> 'sampled_out') as judge_model,
           avg(c.agreement) as agreement,
           case when bool_or(c.cost_usd is null) then null else sum(c.cost_usd) end as cost_usd,
           case when bool_or(c.calls is null) then null else sum(c.calls)::bigint end as calls
    from comparisons c join comparison_sets s using (comparison_id)
    group by c.comparison_id, c.metric, c.evaluator_version, c.left_run_id, c.right_run_id
), outcomes as (
    select *,
           -- one order of two would include the judge's position bias
           case when is_missing or orders < planned then 'missing'
                when is_not_applicable then 'not_applicable'
                when is_left_out then 'left_out'
                else 'scored' end as status,
           case when status = 'scored' then said end as outcome
    from pairs
)
select p.comparison_id, p.comparison, p.metric, p.evaluator, p.evaluator_version, p.example_id, p.repetition,
       p.left_experiment_id, p.right_experiment_id, l.name as left_experiment, r.name as right_experiment,
       p.left_run_id, p.right_run_id, p.orders, p.shown_first, p.outcome,
       case p.outcome when 'left' then l.name when 'right' then r.name when 'tie' then 'tie' when 'flipped' then 'tie' end as winner,
       case p.outcome when 'left' then 1 when 'right' then 0 when 'tie' then 0.5 when 'flipped' then 0.5 end::double as left_points,
       case when p.status = 'scored' then p.left_score end as left_score,
       case when p.status = 'scored' then p.right_score end as right_score,
       p.status, p.decided_by, p.comment, p.other_comment,
       case when p.status = 'missing' then coalesce(
           p.error,
           'no judgement with the ' || case p.shown_first when 'left' then 'right' else 'left' end || ' answer shown first'
       ) end as error,
       p.agreement, lo.length as left_length, ro.length as right_length, p.judge_model, p.cost_usd, p.calls,
       x.split, x.cluster, x.metadata, x.position, x.inputs, x.reference_outputs,
       lo.outputs as left_outputs, ro.outputs as right_outputs,
       lo.status as left_output_status, ro.status as right_output_status
from outcomes p
join experiments l on l.experiment_id = p.left_experiment_id
join experiments r on r.experiment_id = p.right_experiment_id
join examples x on x.snapshot_id = p.snapshot_id and x.example_id = p.example_id
left join outputs lo on lo.run_id = p.left_run_id
left join outputs ro on ro.run_id = p.right_run_id
