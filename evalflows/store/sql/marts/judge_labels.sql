-- one row per judgement, label_id: a judgement and a person's label of the same run; for pairs, in each order
-- metrics match by name, or as compared by `evalflows labels agreement --people`; labels of a panel's metric are of its judges too
with same as (
    select distinct metric, metric as people_metric from staging.labels
    union
    select distinct subject_id, observed ->> 'people_metric' from staging.checks where subject_kind = 'judge' and name = 'people'
    union
    select unnest(json_extract_string(panel, '$.panel[*]')), panel ->> 'name'
    from (select unnest(spec -> '$.composites[*]') as panel from staging.experiments)
), judgements as (
    select score_id as judgement, 'run' as kind, run_id, null as other_run_id, experiment_id, example_id, repetition,
           metric, evaluator, evaluator_version, judge_model, value, label, comment
    from staging.scores
    where status = 'scored' and subject_kind = 'run' and turn is null
    union all
    select judgement_id, 'pair', left_run_id, right_run_id, comparison_id, example_id, repetition, metric, evaluator,
           evaluator_version, judge_model, case winner when 'left' then 1 when 'right' then 0 else 0.5 end, winner, comment
    from staging.comparisons
    where status = 'scored' and decided_by is distinct from 'failed_output'
)
select j.judgement, l.label_id, j.kind, j.experiment_id, j.run_id, j.other_run_id, j.example_id, j.repetition,
       j.metric, l.metric as people_metric, j.evaluator, j.evaluator_version, j.judge_model,
       j.value, j.label, l.value as people_value, l.label as people_label,
       case when j.value is not null and l.value is not null then j.value = l.value else j.label = l.label end as agrees,
       j.value - l.value as error,
       l.labeller, l.source, l.is_fair, j.comment, l.comment as people_comment
from judgements j
join current_labels l
    on l.subject_kind = 'run' and l.turn is null and l.subject_id = j.run_id
       and l.other_run_id is not distinct from j.other_run_id
join same s on s.metric = j.metric and s.people_metric = l.metric
