"""Track which test or fixture ran which experiment, to find the experiment of an assertion that names none.

It follows pytest through hooks: an experiment run during a fixture's setup belongs to the fixture, any other to the
test.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

ACTIVE: list[Ran] = []
"""The last belongs to the test that is running: a test may run pytest itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    experiment: str
    node: str  # id of the node that it belongs to: a test, a class, a module, …
    fixture: str | None  # None: run by the test itself


class Ran:
    """The experiments run in one pytest session."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._setting_up: list[tuple[str, str]] = []
        self._item: pytest.Item | None = None

    def add(self, experiment: str) -> None:
        """Record an experiment that has just been run."""
        fixture, node = self._setting_up[-1] if self._setting_up else (None, self._item.nodeid if self._item else "")
        self._entries.append(_Entry(experiment=experiment, node=node, fixture=fixture))

    def default_experiments(self) -> list[str]:
        """Return the last experiment that the current test ran itself, else all that its fixtures ran."""
        if self._item is None:
            return []
        nodeid = self._item.nodeid
        own = [entry.experiment for entry in self._entries if entry.fixture is None and entry.node == nodeid]
        return own[-1:] or list(self._of_fixtures(self._item))

    def _of_fixtures(self, item: pytest.Item) -> Generator[str]:
        nodes, fixtures = {node.nodeid for node in item.listchain()}, {*getattr(item, "fixturenames", ())}
        for entry in self._entries:
            if entry.fixture in fixtures and entry.node in nodes:
                yield entry.experiment

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        self._item = item
        ACTIVE.append(self)
        try:
            return (yield)
        finally:
            ACTIVE.pop()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        fixture = (fixturedef.argname, request.node.nodeid)
        # If it is set up again with another parameter, its earlier experiments no longer count.
        self._entries = [entry for entry in self._entries if (entry.fixture, entry.node) != fixture]
        self._setting_up.append(fixture)
        try:
            return (yield)
        finally:
            self._setting_up.pop()
