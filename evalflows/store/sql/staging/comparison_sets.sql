-- one row per comparison_id: state as in experiments
select * replace (metadata::json as metadata, evaluators::json as evaluators, spec::json as spec,
                  state_now(state, comparison_id) as state)
from source.comparison_sets
