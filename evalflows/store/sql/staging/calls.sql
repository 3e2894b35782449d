-- one row per call_id: a finished model call
select * replace (request::json as request, response::json as response) from source.calls where kind <> 'turn'
