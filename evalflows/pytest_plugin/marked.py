"""Tests marked `@pytest.mark.langsmith`: each is recorded while it runs; at the end, each suite is an experiment.

A test is recorded here if its module imports something of evalflows.compat.langsmith, or if LangSmith's own plugin is
not there; otherwise that plugin has it.
"""

from __future__ import annotations

import base64
import inspect
import logging
import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evalflows.compat.langsmith.cases import Case

MARK = "langsmith"
THEIRS = "langsmith.pytest_plugin"
"""LangSmith's plugin, by its module."""
DOOR = "evalflows.compat.langsmith"
SETTINGS = pytest.StashKey[Mapping[str, Any]]()
CASE = pytest.StashKey[Any]()
REPORTED = "evalflows_case"
"""The attribute of a test's report that brings its case from a worker of xdist to the process that writes."""

OUTPUT = "langsmith_output"
"""The option `--langsmith-output`: with it, each test is listed with its result."""

KNOWN = ("id", "output_keys", "client", "test_suite_name", "metadata", "experiment_metadata", "split")
REFUSED = {
    "repetitions": "parametrize the test, or use evaluate with num_repetitions",
    "cached_hosts": "responses are not cached here; evaluate's own calls are, in the ledger",
}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Prefect's log out of pytest's captured log; its warnings still go to stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("prefect"), "propagate", False)
        yield


class Marked:
    """The marked tests of a pytest session."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_worker = hasattr(config, "workerinput")
        theirs = sys.modules.get(THEIRS)
        self._theirs = theirs is not None and config.pluginmanager.is_registered(theirs)
        self._cases: list[Case] = []
        self._lines: list[str] = []
        self._with_tests = bool(config.getoption(OUTPUT, False))
        self._has_ours = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the marked tests, and hide their mark from LangSmith's plugin."""
        marked = [(item, mark) for item in items if (mark := item.get_closest_marker(MARK)) is not None]
        ours = [(item, mark) for item, mark in marked if not self._theirs or _imports_the_door(item)]
        self._has_ours = bool(ours)
        for item, mark in ours:
            item.stash[SETTINGS] = _checked(item, mark.kwargs)
        for item, _ in ours if self._theirs else ():
            for node in item.listchain():
                if isinstance(node, pytest.Module | pytest.Class | pytest.Item):
                    node.own_markers = [mark for mark in node.own_markers if mark.name != MARK]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        if SETTINGS not in item.stash:
            return (yield)
        from evalflows.compat.langsmith.cases import running

        case = _case_of(item, item.stash[SETTINGS])
        try:
            with running(case):
                returned = yield
        except pytest.skip.Exception:
            raise
        except BaseException as error:
            case.finish(error)
            item.stash[CASE] = case
            raise
        case.finish(None)
        item.stash[CASE] = case
        return returned

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        is_recorded = os.environ.get("LANGSMITH_TEST_TRACKING", "").lower() != "false"
        if is_recorded and call.when == "call" and (case := item.stash.get(CASE, None)) is not None:
            setattr(report, REPORTED, base64.b64encode(pickle.dumps(case)).decode("ascii"))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._is_worker and (case := getattr(report, REPORTED, None)) is not None:
            self._cases.append(pickle.loads(base64.b64decode(case)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Keep failures in pytest's summary, from which the option of LangSmith's plugin takes them."""
        if not (self._with_tests and self._has_ours and report.failed):
            return None
        return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        suites: dict[str, list[Case]] = {}
        for case in self._cases:
            suites.setdefault(case.suite, []).append(case)
        for suite, cases in suites.items():
            self._record(session, suite, cases)

    def _record(self, session: pytest.Session, suite: str, cases: list[Case]) -> None:
        from evalflows.compat.langsmith.recorded_cases import record
        from evalflows.specs import hints
        from evalflows.specs.errors import IncompleteError, InputError, StorageError
        from evalflows.specs.escaping import one_line

        try:
            with quiet():
                recorded = record(suite, cases, os.environ.get("LANGSMITH_EXPERIMENT") or suite)
        except (InputError, IncompleteError, StorageError) as error:
            self._lines.append(one_line(f"{suite}: not recorded: {error}"))
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        counts = f"{recorded.passed} of {recorded.tests} passed"
        self._lines.append(one_line(f"{suite}: {counts}: {hints.show(recorded.experiment)}"))
        if self._with_tests:
            self._lines += [f"  {one_line(case.result)}" for case in cases]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("evalflows experiments")
        for line in self._lines:
            terminalreporter.write_line(line)


def _imports_the_door(item: pytest.Item) -> bool:
    """Return whether a test's module imports something of the package that has LangSmith's names here."""
    module = item.getparent(pytest.Module)
    return module is not None and any(_origin(value).startswith(DOOR) for value in vars(module.obj).values())


def _origin(value: object) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    named = value if isinstance(value, FunctionType | type) else type(value)
    return str(getattr(named, "__module__", ""))


def _checked(item: pytest.Item, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mark's settings. Raise UsageError for those that have no meaning here."""
    for name, value in settings.items():
        if name in REFUSED and value not in (None, 1):
            raise pytest.UsageError(f"{item.nodeid}: langsmith: {name}: not supported here: {REFUSED[name]}")
        if name not in (*KNOWN, *REFUSED):
            raise pytest.UsageError(f"{item.nodeid}: langsmith: got {name!r}, wanted only {', '.join(KNOWN)}")
    return settings


def _case_of(item: pytest.Item, settings: Mapping[str, Any]) -> Case:
    from evalflows.compat.langsmith.cases import Case
    from evalflows.compat.langsmith.conversion import given
    from evalflows.specs.errors import InputError
    from evalflows.specs.reference import version_of
    from evalflows.store.records import derived_id

    suite = settings.get("test_suite_name") or os.environ.get("LANGSMITH_TEST_SUITE") or _module_of(item)
    function: Callable[..., Any] = getattr(item, "function", type(item).runtest)
    names = inspect.signature(function).parameters
    arguments = given({name: value for name, value in getattr(item, "funcargs", {}).items() if name in names})
    reference_keys = list(settings.get("output_keys") or ())
    if missing := [key for key in reference_keys if key not in arguments]:
        raise InputError(f"output_keys: got {missing[0]!r}, wanted arguments of the test that are JSON values")
    splits = settings.get("split")
    split = splits[0] if isinstance(splits, list | tuple) and len(splits) == 1 else splits
    return Case(
        id=str(settings.get("id") or derived_id(suite, item.nodeid)),
        name=item.nodeid,
        suite=suite,
        version=version_of(function),
        inputs={name: value for name, value in arguments.items() if name not in reference_keys},
        reference_outputs={name: arguments[name] for name in reference_keys},
        metadata=dict(settings.get("metadata") or {}),
        experiment_metadata=dict(settings.get("experiment_metadata") or {}),
        split=None if split is None else str(split),
    )


def _module_of(item: pytest.Item) -> str:
    module = item.getparent(pytest.Module)
    return item.nodeid.partition("::")[0] if module is None else str(module.obj.__name__)
