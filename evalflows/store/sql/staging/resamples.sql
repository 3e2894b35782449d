-- one row per resample_id: a metric of a whole experiment on resamples of its examples
select * from source.resamples
