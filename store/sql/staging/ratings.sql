-- one row per rating_id: an experiment's place in a tournament
select * replace (settings::json as settings) from source.ratings
