"""Prefect flows, one file each, that list the steps in order. The functions that call them are in evalflows/api/."""

import os

_SETTINGS = {
    # Send no telemetry, and keep Prefect's log out of a program's own output.
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
}
for _name, _value in _SETTINGS.items():  # before Prefect is imported
    os.environ.setdefault(_name, _value)
