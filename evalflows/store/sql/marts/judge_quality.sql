-- one row per evaluator_version, judge_model, metric, people_metric: how well each judge agrees with human labels, over all experiments
with beside as (
    select *, coalesce(judge_model, 'no model') as model,
           case when value is not null and people_value is not null then value::text else label end as ours,
           case when value is not null and people_value is not null then people_value::text else people_label end as theirs
    from judge_labels
    where (is_fair or source = 'feedback') and agrees is not null
), ours as (
    select evaluator_version, model, metric, people_metric, ours as said, count(*) as n from beside group by all
), theirs as (
    select evaluator_version, model, metric, people_metric, theirs as said, count(*) as n from beside group by all
), by_chance as (
    select evaluator_version, model, metric, people_metric, sum(ours.n * theirs.n) as expected
    from ours join theirs using (evaluator_version, model, metric, people_metric, said)
    group by all
), summed as (
    select evaluator_version, model, metric, people_metric,
           any_value(evaluator) as evaluator,
           any_value(kind) as kind,
           count(*) as n_labels,
           count(distinct judgement) as n_judgements,
           count(distinct labeller) as n_labellers,
           bool_or(not is_fair) as from_feedback,
           avg(agrees::int) as agreement,
           count(*) filter (agrees) as agreed,
           avg(error) as bias,
           var_samp(error) as error_variance,
           corr(value, people_value) as correlation,
           bool_and(kind = 'pair' or value is null or (value in (0, 1) and people_value in (0, 1))) as is_label
    from beside group by all
)
select s.evaluator, s.evaluator_version, s.model as judge_model, s.metric, s.people_metric, s.kind,
       s.n_judgements, s.n_labels, s.n_labellers, s.from_feedback, s.agreement,
       case when s.is_label and coalesce(c.expected, 0) < s.n_labels * s.n_labels
            then (s.agreed * s.n_labels - coalesce(c.expected, 0)) / (s.n_labels * s.n_labels - coalesce(c.expected, 0))
       end::double as kappa,
       s.bias, s.error_variance,
       case when isfinite(s.correlation) then s.correlation end as correlation
from summed s
left join by_chance c using (evaluator_version, model, metric, people_metric)
