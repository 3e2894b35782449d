-- one row per look_id: the look of one watch rule at one closed window of one slice
from source.watched_windows
