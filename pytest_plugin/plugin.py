"""The plugin: an option, and fixtures. Evalflows itself is imported when a fixture is first used: pytest finds this
plugin in every project of the environment, and most of its runs evaluate nothing."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_plugin import asserts
from pytest_plugin.ran import Ran

if TYPE_CHECKING:
    from flows import ExperimentResult
    from store import Store
    from store.records import DecisionRow

STORE = "EVALFLOWS_STORE"
RAN = pytest.StashKey[Ran]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("evalflows", "evaluations").addoption(
        "--evalflows-store",
        metavar="PATH",
        help="where experiments are kept: a folder or an fsspec URL; `tmp` is one that is removed at the end. Without "
        "it, EVALFLOWS_STORE, else data/store below the current folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RAN] = Ran()
    config.pluginmanager.register(config.stash[RAN], "evalflows-ran")
    if given := config.getoption("evalflows_store"):
        _use(_root(config, given), config)


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"evalflows store: {os.environ[STORE]}" if config.getoption("evalflows_store") else None


def _root(config: pytest.Config, given: str) -> str:
    """An absolute path, since a test may go to another folder; or a URL."""
    if given == "tmp":
        folder = tempfile.mkdtemp(prefix="evalflows-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        return folder
    return given if "://" in given else str(config.invocation_params.dir / given)


def _use(root: str, config: pytest.Config) -> None:
    """From now on to the end of the session, this is the store."""
    patch = pytest.MonkeyPatch()
    patch.setenv(STORE, root)
    config.add_cleanup(patch.undo)


@pytest.fixture(scope="session")
def evalflows_store() -> Iterator[Store]:
    """The store of this session. EVALFLOWS_STORE names it, also for what the tests start, until the session ends."""
    __tracebackhide__ = True
    from store import Store

    try:
        store = Store()
    except _expected() as error:
        raise type(error)(str(error)) from None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STORE, store.layout.root)
        yield store


@pytest.fixture(scope="session")
def evaluate(evalflows_store: Store, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`flows.evaluate` in the session's store: run a target on a dataset and judge every answer.

    A fixture of module scope may use it, so that one run serves many assertions.
    """
    ran = request.config.stash[RAN]

    def run(*arguments: Any, **settings: Any) -> Any:
        __tracebackhide__ = True
        from flows import ExperimentResult, evaluate

        try:
            with _quiet():
                result = evaluate(*arguments, **settings)
        except _expected() as error:  # a line of the test, and not of what lies below
            raise type(error)(str(error)) from None
        if isinstance(result, ExperimentResult):
            ran.add(result.experiment_id)
        return result

    return run


@pytest.fixture(scope="session")
def evalflows_run(evalflows_store: Store, request: pytest.FixtureRequest) -> Callable[..., dict[str, ExperimentResult]]:
    """`evalflows_run(path, *changes)`: run a spec file, with changes such as `"repetitions=3"`, in the session's store.

    What comes back is an experiment for each target, by the target's name.
    """
    ran = request.config.stash[RAN]

    def run(path: str | os.PathLike[str], *changes: str) -> dict[str, ExperimentResult]:
        __tracebackhide__ = True
        from flows import ExperimentResult
        from flows import run as run_spec
        from specs import load_experiment

        try:
            spec = load_experiment(os.fspath(path), changes)
            with _quiet():
                made = run_spec(spec)
        except _expected() as error:
            raise type(error)(str(error)) from None
        for experiment in made:
            ran.add(experiment)
        return {target.name: ExperimentResult(one) for target, one in zip(spec.targets, made, strict=True)}

    return run


@contextmanager
def _quiet() -> Iterator[None]:
    """What the machinery logs is not among what pytest shows of a test's log; its warnings are on stderr, as ever.

    Great Expectations, where it is first imported, warns of itself, and sends all warnings to the log from then on:
    those of the test are pytest's.
    """
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="great_expectations")
        for name in ("prefect", "great_expectations"):
            patch.setattr(logging.getLogger(name), "propagate", False)
        yield


def _expected() -> tuple[type[Exception], ...]:
    from specs.errors import IncompleteError, InputError

    return InputError, IncompleteError


@pytest.fixture(scope="session")
def assert_no_regression(evalflows_store: Store) -> Callable[..., DecisionRow]:
    """`pytest_plugin.assert_no_regression`, in the session's store."""
    return asserts.assert_no_regression


@pytest.fixture(scope="session")
def assert_at_least(evalflows_store: Store) -> Callable[..., DecisionRow]:
    """`pytest_plugin.assert_at_least`, in the session's store."""
    return asserts.assert_at_least


@pytest.fixture(scope="session")
def assert_at_most(evalflows_store: Store) -> Callable[..., DecisionRow]:
    """`pytest_plugin.assert_at_most`, in the session's store."""
    return asserts.assert_at_most
