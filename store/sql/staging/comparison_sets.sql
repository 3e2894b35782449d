-- one row per comparison_id
select * replace (metadata::json as metadata, evaluators::json as evaluators, spec::json as spec)
from source.comparison_sets
