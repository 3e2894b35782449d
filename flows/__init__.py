"""Prefect flows, one file each, that list the steps in order. The Python functions that call them are in flows/api/."""

import os

SERVER_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Record task runs in batches: one by one, the server manages only 30 a second.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
}
"""Settings of every Prefect server started by evalflows: that of `evalflows up`, and Prefect's temporary one."""

_SETTINGS = SERVER_SETTINGS | {
    # Send no telemetry, and keep Prefect's log out of a program's own output.
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
    # A temporary server's first start on an empty PREFECT_HOME takes 16 s on two idle cores; Prefect gives up after 20.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
for _name, _value in _SETTINGS.items():  # before Prefect is imported
    os.environ.setdefault(_name, _value)
