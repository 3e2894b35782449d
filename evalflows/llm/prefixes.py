"""Calls with the same beginning: the first is sent alone, and the others after it, so that the provider's cache of
prefixes serves them."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from evalflows.store.records import to_json

LONG = 4 * 1024
"""Characters of a beginning that a cache keeps: the providers' least is some 1,024 tokens."""
KEPT_S = 300.0
"""Seconds after the last call for which a provider surely keeps a beginning."""
MOST_WAIT_S = 30.0
"""Seconds that calls wait at most for the first one."""
MOST_KNOWN = 4096
"""Beginnings that are remembered."""


class Prefixes:
    """The beginnings of the calls of one endpoint. Use it on one event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent_at: dict[str, float] = {}  # the newest last
        self._first: dict[str, asyncio.Event] = {}  # set when the first call has ended, answered or not

    @asynccontextmanager
    async def turn(self, request: Mapping[str, Any]) -> AsyncIterator[None]:
        """Make a call within the block: at once, or after the first one with the same long beginning."""
        key = beginning_of(request)
        if key is None or self._is_kept(key):
            yield
        elif (first := self._first.get(key)) is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(first.wait(), MOST_WAIT_S)
            yield
        else:
            ended = self._first[key] = asyncio.Event()
            try:
                yield
            finally:
                del self._first[key]
                self._sent_at[key] = self._clock()
                while len(self._sent_at) > MOST_KNOWN:
                    del self._sent_at[next(iter(self._sent_at))]
                ended.set()

    def _is_kept(self, key: str) -> bool:
        """Return whether the provider has the beginning in its cache, as far as is known, and note that it is used."""
        sent_at, time_now = self._sent_at.pop(key, None), self._clock()
        if sent_at is None or time_now - sent_at > KEPT_S:
            return False
        self._sent_at[key] = time_now
        return True


def beginning_of(request: Mapping[str, Any]) -> str | None:
    """Return a hash of the beginning of a chat request, in the order of providers; None if it is short."""
    text = "".join(to_json(request[name]) for name in ("tools", "response_format") if name in request)[:LONG]
    for message in request.get("messages", ()):
        if len(text) >= LONG:
            break
        content = message.get("content")
        text += f"\n{message.get('role')}: {content[:LONG] if isinstance(content, str) else to_json(content)}"
    beginning = f"{request['model']}\n{text[:LONG]}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(beginning).hexdigest() if len(text) >= LONG else None
