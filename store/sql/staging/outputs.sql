-- one row per run_id: an experiment's answer to one example, once a repetition
select * replace (outputs::json as outputs, steps::json as steps) from source.outputs
