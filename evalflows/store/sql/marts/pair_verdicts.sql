-- one row per comparison_id, metric, evaluator_version, left_run_id, right_run_id: the verdicts of all orders of a pair, combined by the comparison's order_rule
with pairs as (
    select c.comparison_id, c.metric, c.evaluator_version, c.left_run_id, c.right_run_id,
           any_value(s.name) as comparison,
           any_value(coalesce(s.order_rule, 'strict')) as order_rule,
           any_value(s.snapshot_ids[1]) as snapshot_id,  -- the first experiment's snapshot, which judges saw
           any_value(c.evaluator) as evaluator,
           any_value(c.example_id) as example_id,
           any_value(c.repetition) as repetition,
           any_value(c.left_experiment_id) as left_experiment_id,
           any_value(c.right_experiment_id) as right_experiment_id,
           any_value(c.order_status) as order_status,
           coalesce(any_value(c.weight), 1) as weight,
           count(*) filter (c.status <> 'sampled_out') as orders,
           -- a verdict recorded in no known order is one on the pair
           any_value(case when s.both_orders then 2 else 1 end) - count(*) filter (c.status = 'sampled_out') as planned,
           case when orders > 1 then 'both'
                when any_value(coalesce(c.order_status, 'known')) = 'known'
                    then any_value(c.shown_first) filter (c.status <> 'sampled_out') end as shown_first,
           bool_or(c.status in ('failed', 'not_attempted')) as is_missing,
           bool_or(c.status = 'not_applicable' and c.decided_by is distinct from 'failed_output') as is_not_applicable,
           bool_or(c.status = 'not_applicable' and c.decided_by = 'failed_output') as is_left_out,
           bool_or(c.winner = 'left') as left_won,
           bool_or(c.winner = 'right') as right_won,
           bool_or(c.winner = 'tie') as tied,
           -- two scores from 0 to 1 that add up to 1 are a graded preference
           bool_and(c.left_score between 0 and 1 and abs(c.left_score + c.right_score - 1) < 1e-9)
               filter (c.winner is not null) as is_graded,
           avg(c.left_score) as left_score,
           avg(c.right_score) as right_score,
           -- 'left' sorts before 'right': the order with the left answer first comes first
           arg_min(c.decided_by, c.shown_first) filter (c.status <> 'sampled_out') as decided_by,
           arg_min_null(c.comment, c.shown_first) filter (c.status <> 'sampled_out') as comment,
           case when orders > 1 then arg_max_null(c.comment, c.shown_first) end as other_comment,
           arg_min(c.error, c.shown_first) filter (c.status <> 'sampled_out') as error,
           arg_min(c.judge_model, c.shown_first) filter (c.status <> 'sampled_out') as judge_model,
           any_value(c.metadata) filter (s.n_votes is not null) as vote_metadata,
           avg(c.agreement) as agreement,
           case when bool_or(c.cost_usd is null) then null else sum(c.cost_usd) end as cost_usd,
           case when bool_or(c.calls is null) then null else sum(c.calls)::bigint end as calls
    from staging.comparisons c join source.comparison_sets s using (comparison_id)
    group by c.comparison_id, c.metric, c.evaluator_version, c.left_run_id, c.right_run_id
)
select *,
       -- one order of two would include the judge's position bias
       case when is_missing or orders < planned then 'missing'
            when is_not_applicable then 'not_applicable'
            when is_left_out then 'left_out'
            else 'scored' end as status,
       case when status <> 'scored' then null
            when left_won and right_won then 'flipped'
            when tied and (left_won or right_won) then 'half'
            when left_won then 'left'
            when right_won then 'right'
            when tied then 'tie' end as outcome,
       case when outcome is null or orders = 1 then null
            when outcome in ('flipped', 'half') then outcome
            else 'consistent' end as consistency,
       case when outcome is null then null
            when outcome = 'left' then 1
            when outcome = 'right' then 0
            when outcome <> 'half' or order_rule = 'strict' then 0.5
            when order_rule = 'sum' then left_won::integer
            when order_rule = 'mean' then 0.25 + 0.5 * left_won::integer end::double as left_points
from pairs
