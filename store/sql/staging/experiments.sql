-- one row per experiment_id
select * replace (metadata::json as metadata, evaluators::json as evaluators, spec::json as spec)
from source.experiments
