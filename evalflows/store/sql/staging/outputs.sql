-- one row per run_id: one run: an answer to one example, in one repetition
select * replace (outputs::json as outputs, steps::json as steps) from source.outputs
