-- one row per experiment_id, metric, evaluator_version, label: how often each label was given, of all that were scored
select experiment_id, metric, evaluator_version, label, count(*) as n,
       count(*) / sum(count(*)) over (partition by experiment_id, metric, evaluator_version) as share
from scores
where status = 'scored' and label is not null and subject_kind = 'run' and turn is null
group by experiment_id, metric, evaluator_version, label
