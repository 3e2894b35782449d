-- one row per sentinel_id: the judgement of an anchor, whose score is known
select * from source.sentinels
