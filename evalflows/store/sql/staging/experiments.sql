-- one row per experiment_id: state is `interrupted` for one that is running according to its row, but that no process works on
select * replace (metadata::json as metadata, evaluators::json as evaluators, spec::json as spec,
                  target_code::json as target_code,
                  state_now(state, run_group) as state)
from source.experiments
