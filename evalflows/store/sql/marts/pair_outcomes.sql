-- one row per comparison_id, metric, evaluator_version, left_run_id, right_run_id: the combined outcome of all orders of a pair, with its inputs and outputs
select p.comparison_id, p.comparison, p.metric, p.evaluator, p.evaluator_version, p.example_id, p.repetition,
       p.left_experiment_id, p.right_experiment_id,
       coalesce(l.name, p.left_experiment_id) as left_experiment,
       coalesce(r.name, p.right_experiment_id) as right_experiment,
       p.left_run_id, p.right_run_id, p.orders, p.shown_first, p.order_status, p.weight, p.outcome, p.consistency,
       case when p.left_points > 0.5 then left_experiment
            when p.left_points < 0.5 then right_experiment
            when p.left_points = 0.5 then 'tie' end as winner,
       p.left_points,
       case when p.status = 'scored' and p.is_graded then p.left_score end as left_preference,
       case when p.status = 'scored' then p.left_score end as left_score,
       case when p.status = 'scored' then p.right_score end as right_score,
       p.status, p.decided_by, p.comment, p.other_comment,
       case when p.status = 'missing' then coalesce(
           p.error,
           'no judgement with the answer of '
               || case p.shown_first when 'left' then right_experiment else left_experiment end || ' shown first'
       ) end as error,
       p.agreement, lo.length as left_length, ro.length as right_length, p.judge_model, p.cost_usd, p.calls,
       x.split, x.cluster, coalesce(x.metadata, p.vote_metadata) as metadata, x.position, x.inputs, x.reference_outputs,
       lo.outputs as left_outputs, ro.outputs as right_outputs,
       lo.status as left_output_status, ro.status as right_output_status
from pair_verdicts p
left join staging.experiments l on l.experiment_id = p.left_experiment_id
left join staging.experiments r on r.experiment_id = p.right_experiment_id
left join staging.examples x on x.snapshot_id = p.snapshot_id and x.example_id = p.example_id
left join staging.outputs lo on lo.experiment_id = p.left_experiment_id and lo.run_id = p.left_run_id
left join staging.outputs ro on ro.experiment_id = p.right_experiment_id and ro.run_id = p.right_run_id
