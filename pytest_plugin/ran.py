"""What the fixtures ran, and for which test: the experiment that an assertion means where it names none.

It follows pytest by its hooks: what runs while a fixture is set up belongs to that fixture, the rest to the test.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

ACTIVE: list[Ran] = []
"""The one whose test is under way is the last: a test may run pytest itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    experiment: str
    where: str  # the node that it lasts as long as: of a test, a class, a module, …
    fixture: str | None  # None: the test itself


class Ran:
    """The experiments of one session of pytest."""

    def __init__(self) -> None:
        self._made: list[_Made] = []
        self._setting_up: list[tuple[str, str]] = []
        self._item: pytest.Item | None = None

    def add(self, experiment: str) -> None:
        """Note an experiment that has just been run."""
        fixture, where = self._setting_up[-1] if self._setting_up else (None, self._item.nodeid if self._item else "")
        self._made.append(_Made(experiment=experiment, where=where, fixture=fixture))

    def meant(self) -> list[str]:
        """What the test that is under way may mean: the last that it ran itself, else all that its fixtures ran."""
        if self._item is None:
            return []
        own = [one.experiment for one in self._made if one.fixture is None and one.where == self._item.nodeid]
        return own[-1:] or list(self._of_fixtures(self._item))

    def _of_fixtures(self, item: pytest.Item) -> Generator[str]:
        around, names = {node.nodeid for node in item.listchain()}, {*getattr(item, "fixturenames", ())}
        for one in self._made:
            if one.fixture in names and one.where in around:
                yield one.experiment

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
        place = (fixturedef.argname, request.node.nodeid)
        # Set up again, with another parameter: what it ran before is no longer meant.
        self._made = [one for one in self._made if (one.fixture, one.where) != place]
        self._setting_up.append(place)
        try:
            return (yield)
        finally:
            self._setting_up.pop()
