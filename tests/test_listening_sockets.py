"""The sockets on which our servers listen: the parts of an answer are sent at once.

Otherwise its second part waits until the client has acknowledged the first one, which takes 40 ms on Linux.
"""

import asyncio
import socket
from collections.abc import Callable

import pytest

from evalflows.prefect_server import _listen
from evalflows.serving import listen

LISTENERS: dict[str, Callable[[], socket.socket]] = {
    "Prefect's server": lambda: _listen(0),
    "dashboard and receiver": lambda: listen("127.0.0.1", 0, has_token=False),
}


@pytest.mark.parametrize("of", LISTENERS)
def test_parts_of_an_answer_are_sent_at_once(of: str) -> None:
    assert asyncio.run(_sends_at_once(LISTENERS[of]()))


async def _sends_at_once(listener: socket.socket) -> bool:
    """Whether asyncio, which uvicorn serves with, turned off the delay (Nagle's algorithm) of a connection."""
    accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    async with await asyncio.start_server(answer, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            return await asyncio.wait_for(accepted, 30)
        finally:
            writer.close()
