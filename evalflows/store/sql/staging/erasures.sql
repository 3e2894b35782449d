-- one row per erasure_id: texts that were erased, or old experiments that were removed
select * replace (rows::json as rows) from source.erasures
