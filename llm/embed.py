"""`embed`: embedding vectors of texts; each text is paid once."""

import asyncio
import base64
import json
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalflows.llm.caller import Caller
from evalflows.specs.errors import CallError
from evalflows.store.records import to_json

if TYPE_CHECKING:
    from evalflows.llm.client import Response

LARGEST = 3.4028234663852886e38
"""The largest 32-bit float."""


class Embedder:
    """`embed` for one connection and one experiment. It makes one call per text, so that each text is cached."""

    def __init__(self, caller: Caller, model: str | None) -> None:
        self.endpoint, self._caller, self._model = caller.endpoint, caller, model

    async def __call__(self, texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        model = model or self._model
        if not model:
            name = self.endpoint.name
            raise CallError("bad_request", f"connection {name!r}: no embedding_model, wanted one in the spec")
        # Raise only when all calls have ended, so that every paid one is recorded for this item.
        results = await asyncio.gather(*(self._embed(text, model) for text in texts), return_exceptions=True)
        return [_vector(result) for result in results]

    async def _embed(self, text: str, model: str) -> list[float]:
        row, _ = await self._caller.call("embedding", {"model": model, "input": text}, _read)
        return list(array("f", base64.b64decode(json.loads(row.response or "{}")["vector"])))


def _read(response: "Response") -> dict[str, Any]:
    """Return the row fields, with the vector as 32-bit floats in base64: a quarter of its size as text."""
    data = response.body.get("data")
    vector = data[0].get("embedding") if isinstance(data, list) and data and isinstance(data[0], dict) else None
    if not isinstance(vector, list) or not vector or not all(_is_number(part) for part in vector):
        raise CallError("bad_answer", "the answer has no vector of numbers")
    packed = base64.b64encode(array("f", vector).tobytes()).decode()
    model = response.body.get("model")
    return {
        "reusable": True,
        "response": to_json({"vector": packed}),
        "answered_by": model if isinstance(model, str) else None,
    }


def _vector(result: list[float] | BaseException) -> list[float]:
    if isinstance(result, BaseException):
        raise result
    return result


def _is_number(value: object) -> bool:
    """Whether it is a number that fits a 32-bit float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
