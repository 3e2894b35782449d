-- one row per verdict_id: one metric of a candidate against a baseline
select * replace (settings::json as settings) from source.verdicts
