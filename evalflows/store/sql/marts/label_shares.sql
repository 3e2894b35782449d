-- one row per experiment_id, metric, evaluator_version, label: the share of each label among all scored runs
-- for samples, labels are weighted by the inverse sampling rate
select experiment_id, metric, evaluator_version, label, count(*) as n,
       sum(1 / coalesce(sampling_rate, 1.0))
           / sum(sum(1 / coalesce(sampling_rate, 1.0))) over (partition by experiment_id, metric, evaluator_version) as share
from source.judgements
where status = 'scored' and label is not null and subject_kind = 'run' and turn is null
group by experiment_id, metric, evaluator_version, label
