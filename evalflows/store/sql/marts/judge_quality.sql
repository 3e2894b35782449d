-- one row per evaluator_version, judge_model, metric, people_metric: how well each judge agrees with human labels, over all experiments and trace evaluations; as in `labels agreement`, an item counts once, by the majority of its labels, and not if people are evenly split
with beside as (
    -- of pairs the outcome of both orders, and each label once
    select distinct on (coalesce(j.evaluation_id, j.experiment_id), j.label_id, j.subject_id, j.other_run_id, j.evaluator_version, j.judge_model, j.metric, j.people_metric)
           coalesce(j.evaluation_id, j.experiment_id) as experiment_id, j.kind, j.evaluator, j.evaluator_version, coalesce(j.judge_model, 'no model') as model,
           j.metric, j.people_metric, j.subject_id || coalesce(' ' || j.other_run_id, '') as unit,
           case when j.kind = 'pair' then p.left_points else j.value end as value,
           case when j.kind <> 'pair' then j.label when p.left_points > 0.5 then 'left' when p.left_points < 0.5 then 'right'
                else 'tie' end as label,
           j.people_value, j.people_label, j.label_id, j.labeller, j.is_fair
    from judge_labels j
    left join pair_outcomes p
        on j.kind = 'pair' and p.comparison_id = j.experiment_id and p.left_run_id = j.run_id
           and p.right_run_id = j.other_run_id and p.metric = j.metric and p.evaluator_version = j.evaluator_version
    where j.agrees is not null and (j.kind <> 'pair' or (p.status = 'scored' and p.decided_by is distinct from 'failed_output'))
), counted as (
    select *, bool_and(kind <> 'pair' and value is not null and value in (0, 1) and people_value in (0, 1)) over judge as is_yes_no,
           bool_or(kind <> 'pair' and value is not null) over judge as has_numbers
    from beside
    window judge as (partition by evaluator_version, model, metric, people_metric),
           judge_of_experiment as (partition by experiment_id, evaluator_version, model, metric, people_metric)
    qualify is_fair or not bool_or(is_fair) over judge_of_experiment
), votes as (
    select evaluator_version, model, metric, people_metric, experiment_id, unit,
           case when has_numbers then case when is_yes_no then people_value::text end else people_label end as theirs,
           any_value(evaluator) as evaluator, any_value(kind) as kind, any_value(value) as value,
           case when any_value(has_numbers) then any_value(value)::text else any_value(label) end as ours,
           any_value(has_numbers and not is_yes_no) as is_number, avg(people_value) as people_value, count(*) as n
    from counted group by all
), items as (
    select * from votes
    qualify n = max(n) over (partition by evaluator_version, model, metric, people_metric, experiment_id, unit)
            and count(*) over (partition by evaluator_version, model, metric, people_metric, experiment_id, unit, n) = 1
), ours as (
    select evaluator_version, model, metric, people_metric, ours as said, count(*) as n from items group by all
), theirs as (
    select evaluator_version, model, metric, people_metric, theirs as said, count(*) as n from items group by all
), by_chance as (
    select evaluator_version, model, metric, people_metric, sum(ours.n * theirs.n) as expected
    from ours join theirs using (evaluator_version, model, metric, people_metric, said)
    group by all
), labels as (
    select evaluator_version, model, metric, people_metric, count(*) as n_labels,
           count(distinct labeller) as n_labellers, bool_or(not is_fair) as from_feedback
    from counted group by all
), summed as (
    select evaluator_version, model, metric, people_metric,
           any_value(evaluator) as evaluator,
           string_agg(distinct kind, ', ' order by kind) as kind,
           count(*) as n_judgements,
           any_value(is_number) as is_number,
           avg((ours = theirs)::int) as agreement,
           count(*) filter (ours = theirs) as agreed,
           avg(value - people_value) as bias,
           var_samp(value - people_value) as error_variance,
           corr(value, people_value) as correlation
    from items group by all
)
select s.evaluator, s.evaluator_version, s.model as judge_model, s.metric, s.people_metric, s.kind,
       s.n_judgements, l.n_labels, l.n_labellers, l.from_feedback,
       case when not s.is_number then s.agreement end as agreement,
       case when not s.is_number and coalesce(c.expected, 0) < s.n_judgements * s.n_judgements
            then (s.agreed * s.n_judgements - coalesce(c.expected, 0))
                 / (s.n_judgements * s.n_judgements - coalesce(c.expected, 0))
       end::double as kappa,
       s.bias, s.error_variance,
       case when isfinite(s.correlation) then s.correlation end as correlation
from summed s
join labels l using (evaluator_version, model, metric, people_metric)
left join by_chance c using (evaluator_version, model, metric, people_metric)
