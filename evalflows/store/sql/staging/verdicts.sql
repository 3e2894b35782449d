-- one row per verdict_id: the conclusion on one metric of a candidate against a baseline
select * replace (settings::json as settings) from source.verdicts
