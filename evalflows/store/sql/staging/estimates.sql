-- one row per estimate_id: the mean of one metric of one experiment, with its interval
select * from source.estimates
