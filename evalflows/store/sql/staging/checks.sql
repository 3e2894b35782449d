-- one row per check_id
select * replace (observed::json as observed, expected::json as expected) from source.checks
