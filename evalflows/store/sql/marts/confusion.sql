-- one row per experiment_id, evaluator, evaluator_version, expected, got: the confusion matrix of an evaluator that compares labels
select c.experiment_id, e.name as experiment, e.target, c.evaluator, c.evaluator_version, c.expected, c.got, count(*) as n
from staging.classified c join staging.experiments e using (experiment_id)
group by all
