-- one row per limit_id: a limiter's width from this moment on
select * from source.limits
