-- one row per event_id: one event of an incident: an alarm, its recovery, or its acknowledgement
from source.alerts
