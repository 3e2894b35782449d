"""Every test has a store and a spool of its own; those of one worker that run flows share one Prefect server."""

import os
import secrets
import signal
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from certificates import one_certificate
from homes import prepared
from hypothesis import settings
from kept_workers import KeptWorkers
from lent_roots import LentRoots
from plain_flows import plain_flows
from postgres_server import binaries, postgres_server
from prefect_server import prefect_server
from s3_server import BUCKET, S3Server, s3_server
from store_copies import StoreCopies
from store_rows import make_row

import evalflows.prefect_server
import evalflows.store.store
from evalflows.store import database, query_process
from evalflows.store.layout import Layout
from evalflows.store.store import Store

# The same examples each time, so that a change is never blamed for what it did not break, and as long as they take on a
# busy machine. HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("COLUMNS", None)  # set by xdist; what is printed would depend on it
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])  # as messages say
if Path("/dev/shm").is_dir():  # on some disks, removing the folders of all tests takes longer than the tests
    _memory = os.statvfs("/dev/shm")
    if _memory.f_bavail * _memory.f_frsize > 8e9 and not _memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power, so none needs to wait until the disk has what was written."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def empty_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store: to copy, and for tests that only read."""
    root = tmp_path_factory.mktemp("empty") / "store"
    Store(root)
    return root


@pytest.fixture(scope="session")
def store_copies(empty_root: Path) -> StoreCopies:
    return StoreCopies(empty_root, Path(Layout(str(empty_root)).marker).name)


@pytest.fixture(autouse=True)
def new_stores_are_copies(store_copies: StoreCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new store in a folder is a copy of an empty one."""
    make = evalflows.store.store.prepare

    def copy(layout: Layout, fs: Any) -> None:
        if layout.is_local and not Path(layout.root).exists():
            store_copies.make(layout.root)
        else:
            make(layout, fs)

    monkeypatch.setattr(evalflows.store.store, "prepare", copy)


@pytest.fixture(scope="session", autouse=True)
def no_server_begins_early() -> Iterator[None]:
    """A local server begins when a run needs it, not beside the tests' own while modules load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evalflows.prefect_server, "may_use_another", lambda: True)
        yield


@pytest.fixture(scope="session", autouse=True)
def catalogs_are_written_once() -> Iterator[None]:
    """The file of views for other programs, which each run leaves in its store, is made once for the latest roots."""
    write, written = database.write_views, dict[str, bytes]()

    def write_again(path: Path, *, root: str) -> None:
        if root in written:
            path.write_bytes(written[root])
        else:
            write(path, root=root)
            written[root] = path.read_bytes()
            if len(written) > 4:
                written.pop(next(iter(written)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write_views", write_again)
        yield


@pytest.fixture(scope="session", autouse=True)
def few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test speaks to a provider, so none needs the certificates of the system, which each client would load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(one_certificate(tmp_path_factory.mktemp("certificates"))))
        yield


@pytest.fixture(scope="session", autouse=True)
def query_processes_are_kept() -> Iterator[None]:
    """Processes for the queries of others serve one test after another."""
    workers = KeptWorkers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_process, "_Worker", workers.take)
        patch.setattr(query_process.QueryProcesses, "close", lambda queries: workers.close(queries))
        yield
    workers.end()


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests share a folder of their own for what is kept for a user. Processes that they start share a local server
    there, which ends after them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALFLOWS_HOME", str(prepared(tmp_path_factory.getbasetemp() / "home")))
        yield


@pytest.fixture(scope="session")
def lent_roots(tmp_path_factory: pytest.TempPathFactory) -> LentRoots:
    return LentRoots(tmp_path_factory.mktemp("roots"))


@pytest.fixture(autouse=True)
def store_root(
    tmp_path: Path, lent_roots: LentRoots, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """The root of this test's store, which `Store()` and `connect()` use.

    Quick tests have it in turn. Slow ones may leave processes that still write to theirs.
    """
    monkeypatch.setenv("EVALFLOWS_SPOOL", str(tmp_path / "spool"))
    own = tmp_path / "store"
    is_slow = any(map(request.node.get_closest_marker, ("slow", "soak")))
    with nullcontext(own) if is_slow else lent_roots.lend(own) as root:
        monkeypatch.setenv("EVALFLOWS_STORE", str(root))
        yield root


@pytest.fixture
def store(store_root: Path) -> Store:
    """An empty store in a folder."""
    return Store(store_root)


@pytest.fixture(scope="session")
def store_at(store_copies: StoreCopies) -> Callable[[Path], AbstractContextManager[Store]]:
    """`with store_at(folder) as store`: an empty store that several tests share, made by a fixture of their module.

    In the block, `Store()` and `connect()` use it, and everything is as quick as in a test.
    """

    @contextmanager
    def at(folder: Path) -> Iterator[Store]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EVALFLOWS_STORE", str(folder / "store"))
            patch.setenv("EVALFLOWS_SPOOL", str(folder / "spool"))
            patch.setattr(os, "fsync", lambda _: None)
            store_copies.make(str(folder / "store"))
            yield Store(folder / "store")

    return at


@pytest.fixture(scope="module")
def _filled(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    store_at: Callable[[Path], AbstractContextManager[Store]],
) -> Iterator[tuple[str, Any]]:
    with store_at(tmp_path_factory.mktemp("filled")) as store:
        yield store.layout.root, request.module.fill()


@pytest.fixture
def filled(_filled: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the module's function `fill` returned, which is called once; `Store()` is the store that it has filled.

    Tests only read that store.
    """
    root, made = _filled
    monkeypatch.setenv("EVALFLOWS_STORE", root)
    return made


@pytest.fixture(scope="session")
def s3_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that lasts as long as the tests."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_root(s3_service: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty root on that server, which `Store()` and `connect()` use, also in processes."""
    root = f"s3://{BUCKET}/{secrets.token_hex(6)}"
    for name, value in {**s3_service.environment, "EVALFLOWS_STORE": root}.items():
        monkeypatch.setenv(name, value)
    return root


@pytest.fixture(scope="session")
def make() -> Callable[..., Any]:
    """`make(table, **fields)`: a row of a table, whose other fields are their defaults, or something plain."""
    return make_row


@pytest.fixture(scope="session")
def prefect_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a Prefect server that lasts as long as the tests; with several workers, each has its own."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as environment:
        yield environment


@pytest.fixture(scope="session")
def prefect_settings(prefect_environment: dict[str, str]) -> Any:
    """Prefect's settings by which that server is used."""
    from prefect.settings import (
        PREFECT_API_SSL_CERT_FILE,
        PREFECT_API_URL,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    changed = {
        PREFECT_API_URL: prefect_environment["PREFECT_API_URL"],
        PREFECT_LOGGING_TO_API_ENABLED: False,  # from a thread that would try for a minute after the server has ended
        PREFECT_API_SSL_CERT_FILE: prefect_environment["PREFECT_API_SSL_CERT_FILE"],
    }
    with temporary_settings(changed) as settings:
        return settings


@pytest.fixture
def prefect_api(prefect_environment: dict[str, str], prefect_settings: Any) -> Iterator[dict[str, str]]:
    """Flows of this process run on that server."""
    from prefect.context import SettingsContext, get_settings_context

    settings = prefect_settings.model_copy(deep=True)  # made anew they take 50 ms
    with SettingsContext(profile=get_settings_context().profile, settings=settings):
        yield prefect_environment


@pytest.fixture
def without_prefect() -> Iterator[None]:
    """Flows of this process run without Prefect, which takes longer than they do."""
    with plain_flows():
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server. Skips where none is installed, fails where one has to be."""
    programs = binaries()
    if programs is None:
        give_up = pytest.fail if os.environ.get("EVALFLOWS_REQUIRE_POSTGRES") == "1" else pytest.skip
        give_up("no PostgreSQL server here: apt-get install postgresql")
    assert programs is not None
    with postgres_server(programs) as url:
        yield url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the server, by its fixtures. Files of that come first, as they take the longest, then others with
    slow tests: no worker shall begin one when the others are nearly done."""
    places = dict[Path, int]()
    for item in items:
        if "prefect_environment" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server)
        is_long = item.path.parent.name == "real_size" or any(map(item.get_closest_marker, ("server", "browser")))
        place = 0 if is_long else 1 if item.get_closest_marker("slow") else 2
        places[item.path] = min(place, places.get(item.path, place))
    items.sort(key=lambda item: places[item.path])
