-- one row per experiment_id
select * replace (metadata::json as metadata, evaluators::json as evaluators, spec::json as spec,
                  target_code::json as target_code)
from source.experiments
