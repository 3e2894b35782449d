"""The pytest plugin: a command-line option and fixtures.

Evalflows itself is imported when a fixture is first used: pytest loads this plugin in every project of the environment,
and most test runs evaluate nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from evalflows.pytest_plugin import asserts
from evalflows.pytest_plugin.asserts import Ran
from evalflows.pytest_plugin.marked import Marked, quiet

if TYPE_CHECKING:
    from evalflows import ExperimentResult
    from evalflows.store import Store
    from evalflows.store.records import DecisionRow

STORE = "EVALFLOWS_STORE"
RAN = pytest.StashKey[Ran]()

SHOWN_FROM_S = 5.0
"""Seconds that an experiment runs before its progress is printed."""

XDIST = "PYTEST_XDIST_TESTRUNUID"
"""The variable with what the workers of one session of xdist share."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    parser.getgroup("evalflows", "evaluations").addoption(
        "--evalflows-store",
        metavar="PATH",
        help="store for experiments: a folder or s3://bucket/prefix, or `tmp` for a folder that is removed at the end. "
        "Default: EVALFLOWS_STORE, else data/store in the current folder",
    )
    parser.getgroup("evalflows").addoption(
        "--junit-examples",
        action="store_true",
        help="also list every answer of the experiments in the report of --junit-xml, wrong ones as skipped",
    )
    if pluginmanager.is_blocked("langsmith_plugin") or find_spec("langsmith") is None:  # whose plugin adds it itself
        said = "list each test marked langsmith with its result, feedback and time"
        parser.getgroup("evalflows").addoption("--langsmith-output", action="store_true", help=said)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RAN] = Ran()
    config.pluginmanager.register(config.stash[RAN], "evalflows-ran")
    config.addinivalue_line("markers", "langsmith(test_suite_name, output_keys, …): record the test in an experiment")
    config.pluginmanager.register(Marked(config), "evalflows-marked")
    if option := config.getoption("evalflows_store"):
        _use(_root(config, option), config)
    if config.getoption("junit_examples") and not config.getoption("xmlpath"):
        raise pytest.UsageError("--junit-examples: got no report, wanted --junit-xml PATH too")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("junit_examples"):
        from evalflows.pytest_plugin import junit_examples

        junit_examples.finish(session.config, session.config.stash[RAN].all)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Of xdist: a worker has ended."""
    if node.config.getoption("junit_examples"):
        from evalflows.pytest_plugin import junit_examples

        junit_examples.receive(node.config, getattr(node, "workeroutput", {}))


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"evalflows store: {os.environ[STORE]}" if config.getoption("evalflows_store") else None


def _root(config: pytest.Config, option: str) -> str:
    """Return a URL or an absolute path, since a test may change the working folder."""
    if option == "tmp":
        folder = tempfile.mkdtemp(prefix="evalflows-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        return folder
    return option if "://" in option else str(config.invocation_params.dir / option)


def _use(root: str, config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv(STORE, root)
    config.add_cleanup(patch.undo)


@pytest.fixture(scope="session")
def evalflows_store() -> Iterator[Store]:
    """Yield the session's store.

    EVALFLOWS_STORE names it until the session ends, also for processes that tests start.
    """
    __tracebackhide__ = True
    from evalflows.store import Store

    try:
        store = Store()
    except _expected() as error:
        raise _shown(error) from None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STORE, store.layout.root)
        yield store


@pytest.fixture(scope="session")
def evaluate(evalflows_store: Store, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`evalflows.evaluate` in the session's store: run a target on a dataset and evaluate every answer.

    A module-scoped fixture may use it, so that one experiment serves many assertions.
    """
    ran = request.config.stash[RAN]

    def run(*arguments: Any, **settings: Any) -> Any:
        __tracebackhide__ = True
        from evalflows import ExperimentResult, evaluate

        try:
            with quiet(), _progress(request.config):
                result = evaluate(*arguments, **_shared(arguments, settings))
        except _expected() as error:  # report the test's line, without the traceback below it
            raise _shown(error) from None
        if isinstance(result, ExperimentResult):
            ran.add(result.experiment_id)
        return result

    return run


@pytest.fixture(scope="session")
def evalflows_run(evalflows_store: Store, request: pytest.FixtureRequest) -> Callable[..., dict[str, ExperimentResult]]:
    """`evalflows_run(path, *changes)`: run a spec file, with changes such as `"repetitions=3"`, in the session's store.

    It returns the experiments by the names of their targets.
    """
    ran = request.config.stash[RAN]

    def run(path: str | os.PathLike[str], *changes: str) -> dict[str, ExperimentResult]:
        __tracebackhide__ = True
        from evalflows import ExperimentResult
        from evalflows import run as run_spec
        from evalflows.specs import load_experiment

        try:
            spec = load_experiment(os.fspath(path), changes)
            if spec.run_key is None:
                spec = spec.model_copy(update=_shared((spec.model_dump_json(),), {}))
            with quiet(), _progress(request.config):
                experiments = run_spec(spec)
        except _expected() as error:
            raise _shown(error) from None
        for experiment in experiments:
            ran.add(experiment)
        by_target = zip(spec.targets, experiments, strict=True)
        return {target.name: ExperimentResult(experiment) for target, experiment in by_target}

    return run


@contextmanager
def _progress(config: pytest.Config) -> Iterator[None]:
    """Print the progress of a long experiment past pytest's capture, as lines on standard error."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None or hasattr(config, "workerinput"):
        yield
        return
    from evalflows.engine.run_context import calling
    from evalflows.reports.progress import Lines, Progress

    lines, began = Lines(), time.monotonic()

    def watch(state: Progress) -> None:
        if state.planned and time.monotonic() - began > SHOWN_FROM_S:
            with capture.global_and_fixture_disabled():
                lines(state)

    with calling(watch):
        yield


def _shared(arguments: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings; in a worker of xdist with a key of this call, so that only one worker runs it.

    The others wait, and have the same experiment.
    """
    session = os.environ.get(XDIST)
    if session is None or "run_key" in settings:
        return settings
    from evalflows.store.records import derived_id

    return {**settings, "run_key": f"xdist-{derived_id(session, *map(_text, (*arguments, settings)))}"}


def _text(value: Any) -> str:
    """Return a text that is the same for the same argument in every process of a session."""
    from evalflows.specs.reference import version_of

    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if callable(value):
        return f"{getattr(value, '__qualname__', type(value).__qualname__)} {version_of(value)}"
    frame = getattr(value, "to_csv", None)  # of a DataFrame, whose repr leaves rows out
    return str(frame()) if callable(frame) else repr(value)


def _shown(error: Exception) -> Exception:
    """Return an error for pytest to print, with control characters escaped: its message may repeat data."""
    from evalflows.specs.escaping import one_line

    return type(error)(one_line(str(error)))


def _expected() -> tuple[type[Exception], ...]:
    from evalflows.specs.errors import IncompleteError, InputError

    return InputError, IncompleteError


@pytest.fixture(scope="session")
def assert_no_regression(evalflows_store: Store) -> Callable[..., DecisionRow]:
    """`evalflows.pytest_plugin.assert_no_regression` in the session's store."""
    return asserts.assert_no_regression


@pytest.fixture(scope="session")
def assert_at_least(evalflows_store: Store) -> Callable[..., DecisionRow]:
    """`evalflows.pytest_plugin.assert_at_least` in the session's store."""
    return asserts.assert_at_least


@pytest.fixture(scope="session")
def assert_at_most(evalflows_store: Store) -> Callable[..., DecisionRow]:
    """`evalflows.pytest_plugin.assert_at_most` in the session's store."""
    return asserts.assert_at_most
