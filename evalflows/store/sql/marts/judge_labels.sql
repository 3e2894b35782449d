-- one row per judgement, label_id: a judgement and a person's label of the same run, pair (in each order), trace, observation or session
-- metrics match by name, or as compared by `evalflows labels agreement --people`; labels of a panel's metric are of its judges too
with same as (
    select distinct metric, metric as people_metric from staging.labels
    union
    select distinct subject_id, observed ->> 'people_metric' from staging.checks where subject_kind = 'judge' and name = 'people'
    union
    select unnest(json_extract_string(panel, '$.panel[*]')), panel ->> 'name'
    from (
        select unnest(spec -> '$.composites[*]') as panel
        from (select spec from staging.experiments union all select distinct spec from staging.watermarks)
    )
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
), labelled as (
    select subject_kind, subject_id, other_run_id, label_id, metric as people_metric, value as people_value,
           label as people_label, labeller, source, is_fair, comment as people_comment
    from current_labels where turn is null
), beside as (
    select j.judgement, l.label_id, j.kind, j.experiment_id, null as evaluation_id, l.subject_id, j.run_id, j.other_run_id, j.example_id,
           j.repetition, j.metric, l.people_metric, j.evaluator, j.evaluator_version, j.judge_model, j.value, j.label,
           j.comment, l.people_value, l.people_label, l.labeller, l.source, l.is_fair, l.people_comment
    from judgements j
    join labelled l
        on l.subject_kind = 'run' and l.subject_id = j.run_id and l.other_run_id is not distinct from j.other_run_id
    union all
    select s.score_id, l.label_id, s.subject_kind, s.experiment_id, left(s.experiment_id, -11), l.subject_id, null, null,
           null, null, s.metric, l.people_metric, s.evaluator, s.evaluator_version, s.judge_model, s.value, s.label,
           s.comment, l.people_value, l.people_label, l.labeller, l.source, l.is_fair, l.people_comment
    from staging.scores s
    join labelled l on l.subject_kind = s.subject_kind and l.subject_id = s.subject_id
    where s.status = 'scored' and s.subject_kind <> 'run' and s.turn is null and l.subject_kind <> 'run'
    -- an item that was judged through several mappers counts by the newest score
    qualify row_number() over (
        partition by l.label_id, s.experiment_id, s.metric, s.evaluator, s.evaluator_version
        order by s.recorded_at desc, s.score_id
    ) = 1
)
select b.judgement, b.label_id, b.kind, b.experiment_id, b.evaluation_id, b.subject_id, b.run_id, b.other_run_id,
       b.example_id, b.repetition, b.metric, b.people_metric, b.evaluator, b.evaluator_version, b.judge_model,
       b.value, b.label, b.people_value, b.people_label,
       case when b.value is not null and b.people_value is not null then b.value = b.people_value
            else b.label = b.people_label end as agrees,
       b.value - b.people_value as error,
       b.labeller, b.source, b.is_fair, b.comment, b.people_comment
from beside b join same s on s.metric = b.metric and s.people_metric = b.people_metric
