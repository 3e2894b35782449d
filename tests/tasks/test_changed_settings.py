"""changed_settings gives what Prefect's own temporary_settings gives, and leaves the settings around it alone."""

from collections.abc import Mapping
from typing import Any

import pytest
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    Settings,
    get_current_settings,
    temporary_settings,
)

from evalflows.server_watch import change_settings

CHANGES: list[tuple[Mapping[Any, Any], Mapping[Any, Any]]] = [
    ({}, {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ({PREFECT_CLIENT_MAX_RETRIES: 0}, {PREFECT_CLIENT_MAX_RETRIES: 4, PREFECT_API_REQUEST_TIMEOUT: 20.0}),
]


@pytest.mark.parametrize("around", [{}, {PREFECT_CLIENT_MAX_RETRIES: 9, PREFECT_API_REQUEST_TIMEOUT: 1.5}])
@pytest.mark.parametrize(("updates", "set_defaults"), CHANGES)
def test_the_settings_are_those_of_prefects_own_function(
    updates: Mapping[Any, Any], set_defaults: Mapping[Any, Any], around: Mapping[Any, Any]
) -> None:
    with temporary_settings(around) as before:
        kept = before.model_dump()
        with change_settings(updates, set_defaults=set_defaults) as ours:
            assert get_current_settings() is ours
        assert (get_current_settings(), before.model_dump()) == (before, kept)
        with temporary_settings(updates, set_defaults=set_defaults) as theirs:
            assert (ours, set_fields(ours)) == (theirs, set_fields(theirs))


def set_fields(settings: Settings) -> Any:
    """What is set, which later defaults leave as it is."""
    return settings.model_dump(exclude_unset=True)
