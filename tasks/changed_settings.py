"""Change single settings of Prefect for a block: `temporary_settings` reads every source again, which takes 50 ms."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from prefect.context import SettingsContext, get_settings_context
from prefect.settings import Settings


@contextmanager
def changed_settings(
    updates: Mapping[Any, Any] | None = None, *, set_defaults: Mapping[Any, Any] | None = None
) -> Iterator[Settings]:
    """Run the block under other settings, from which Prefect derives no further ones; yield these.

    Args:
        updates: Values by setting, of its type: they are not validated.
        set_defaults: Values for settings that nobody has set.
    """
    context = get_settings_context()
    settings = context.settings.model_copy(deep=True)
    for setting, value in (set_defaults or {}).items():
        group, name = _place(settings, setting)
        if name not in group.model_fields_set:
            setattr(group, name, value)
    for setting, value in (updates or {}).items():
        setattr(*_place(settings, setting), value)
    with SettingsContext(profile=context.profile, settings=settings):
        yield settings


def _place(settings: Settings, setting: Any) -> tuple[Any, str]:
    group, _, name = setting.accessor.rpartition(".")
    return attrgetter(group)(settings), name
