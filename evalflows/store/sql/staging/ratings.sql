-- one row per rating_id: an experiment's rating in a comparison
select * replace (settings::json as settings) from source.ratings
