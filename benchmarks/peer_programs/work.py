"""The same work for every peer: items, two rules, and a call; and a guard against the network."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import openai

IN_FLIGHT = 50
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def items(count: int) -> list[dict[str, str]]:
    """Questions with references and recorded answers, of which three in four are right."""
    return [
        {"question": f"What is {i} plus 1?", "reference": str(i + 1), "said": str(i + 1 if i % 4 else i)}
        for i in range(count)
    ]


def exact(said: str, reference: str) -> bool:
    return said.strip() == reference.strip()


def contains(said: str, reference: str) -> bool:
    return reference.lower() in said.lower()


def asking(base_url: str) -> Callable[[str], Any]:
    """Return a function that asks the endpoint, whose client is made on the loop that first asks."""
    clients: dict[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = {}

    async def ask(question: str) -> str:
        loop = asyncio.get_running_loop()
        if loop not in clients:
            clients[loop] = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
        messages: Any = [{"role": "user", "content": question}]
        answer = await clients[loop].chat.completions.create(model="mock", messages=messages, temperature=0.0)
        return answer.choices[0].message.content or ""

    return ask


def stay_here() -> None:
    """End the process if anything connects to another machine."""
    connect = socket.socket.connect

    def checked(self: socket.socket, address: Any) -> Any:
        if isinstance(address, tuple) and address[0] not in LOOPBACK:
            print(f"tried to connect to {address[0]}", file=sys.stderr, flush=True)
            os._exit(1)
        return connect(self, address)

    socket.socket.connect = checked  # type: ignore[method-assign]


def main(rules: Callable[[list[dict[str, str]]], int], calls: Callable[[list[dict[str, str]], Any], int]) -> None:
    """Print the seconds of `rules COUNT` or `calls COUNT BASE_URL`. Both return how many scores they have."""
    stay_here()
    what, count = sys.argv[1], int(sys.argv[2])
    rows, ask = items(count), asking(sys.argv[3]) if what == "calls" else None
    began = time.perf_counter()
    scores = rules(rows) if ask is None else calls(rows, ask)
    seconds = time.perf_counter() - began
    assert scores == count * (2 if what == "rules" else 1), f"got {scores} scores"
    print(f"\n{seconds}", flush=True)
    os._exit(0)  # without waiting for threads that would send something
