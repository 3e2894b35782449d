-- one row per event_id: one event of an incident: an alarm, its recovery or closing, or its acknowledgement
from source.alerts
