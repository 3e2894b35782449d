-- one row per batch_id: one batch of a trace evaluation: what it judged, and up to where
select * replace (filter::json as filter, evaluators::json as evaluators, spec::json as spec,
                  state_now(state, evaluation_id) as state)
from source.watermarks
