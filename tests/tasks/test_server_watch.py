"""A lost server is noticed after a while without any answer, and ends the run with one IncompleteError."""

import asyncio
import socket
from collections.abc import Iterator

import httpx
import pytest
from endpoint import Endpoint, Reply, serving
from prefect._internal.concurrency.services import QueueService
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

from evalflows import server_watch
from evalflows import server_watch as prefect_services
from evalflows.server_watch import ServerLostError, answers, end_services, report_if_possible, server_watched
from evalflows.specs.errors import IncompleteError, InputError


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def url(port: int) -> Iterator[str]:
    address = f"http://127.0.0.1:{port}/api"
    with temporary_settings({PREFECT_API_URL: address}):
        yield address


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer once is lost."""
    monkeypatch.setattr(server_watch, "INTERVAL_S", 0.001)
    monkeypatch.setattr(server_watch, "LOST_AFTER_S", 0.0)


@pytest.mark.usefixtures("soon")
def test_a_lost_server_ends_the_run_with_one_line(url: str) -> None:
    with pytest.raises(IncompleteError) as caught, server_watched() as server:
        assert server is not None
        server.owners |= {"exp-2", "exp-1"}
        assert server.lost.wait(30)
        assert get_current_settings().client.max_retries == 0
        server.raise_if_lost()
    assert caught.value.experiments == ("exp-1", "exp-2")
    then = "finished calls are kept, and `evalflows resume exp-1` continues"
    assert str(caught.value) == f"the Prefect server at {url} no longer answers; {then}"


@pytest.mark.usefixtures("soon")
def test_a_server_lost_before_the_first_call(url: str) -> None:
    with pytest.raises(IncompleteError, match="no longer answers; nothing was called yet"), server_watched() as server:
        assert server is not None and server.lost.wait(30)
        raise RuntimeError("whatever Prefect raises")


def test_what_prefects_client_raises_is_a_lost_server_too_and_other_errors_stay(url: str) -> None:
    with pytest.raises(IncompleteError, match="no longer answers"), server_watched():
        raise httpx.ConnectError("refused")
    for error in (InputError("wrong"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, server_watched():
            raise error
        assert caught.value is error


@pytest.mark.parametrize(("answered", "is_lost"), [("ynnnynnny", False), ("ynnnn", True), ("nnnn", True)])
def test_a_server_is_lost_after_twenty_seconds_without_an_answer(
    answered: str, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, now = list(answered), [0.0]
    with temporary_settings({}) as settings:
        watch = server_watch.WatchedServer("http://server", settings)

    def answer(url: str) -> bool:
        now[0] += 5.0
        said = left.pop(0) == "y"
        if not left:
            watch.ended.set()
        return said

    monkeypatch.setattr(server_watch, "answers", answer)
    monkeypatch.setattr(server_watch, "INTERVAL_S", 0.0)
    monkeypatch.setattr(server_watch.time, "monotonic", lambda: now[0])
    watch.watch()
    assert watch.lost.is_set() is is_lost
    assert (settings.client.max_retries == 0) is is_lost


def test_any_answer_is_one_and_a_server_that_hangs_gives_none(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Endpoint(answer=lambda _: Reply({}, 404))) as endpoint:
        assert answers(endpoint.base_url)
    assert not answers(f"http://127.0.0.1:{port}/api")
    monkeypatch.setattr(server_watch, "LOST_AFTER_S", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert not answers(f"http://127.0.0.1:{silent.getsockname()[1]}/api")


def test_a_report_that_fails_is_skipped_until_the_server_is_lost(url: str) -> None:
    with pytest.raises(IncompleteError), server_watched() as server:
        assert server is not None
        with report_if_possible(server):
            assert get_current_settings().client.max_retries == 0
            raise httpx.ConnectError("refused")
        assert get_current_settings().client.max_retries > 0
        server.lost.set()
        with pytest.raises(ServerLostError), report_if_possible(server):
            raise httpx.ConnectError("refused")
        server.raise_if_lost()


class Stuck(QueueService[str]):
    """A service that never gets rid of what it has to send."""

    async def _handle(self, item: str) -> None:
        await asyncio.Event().wait()


def test_services_that_cannot_send_are_ended(capfd: pytest.CaptureFixture[str]) -> None:
    service = Stuck.instance()
    service.send("a")
    service.send("b")
    end_services()
    assert service._done_event is not None and service._done_event.is_set()
    assert Stuck.instance() is not service, "what comes later is sent"
    end_services()
    assert not prefect_services._log.disabled
    assert capfd.readouterr() == ("", "")
