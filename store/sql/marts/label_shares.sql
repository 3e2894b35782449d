-- one row per experiment_id, metric, evaluator_version, label: how often each label was given, of all that were scored
-- of a sample, each label stands for as many as its rate says
select experiment_id, metric, evaluator_version, label, count(*) as n,
       sum(1 / coalesce(sampling_rate, 1.0))
           / sum(sum(1 / coalesce(sampling_rate, 1.0))) over (partition by experiment_id, metric, evaluator_version) as share
from scores
where status = 'scored' and label is not null and subject_kind = 'run' and turn is null
group by experiment_id, metric, evaluator_version, label
