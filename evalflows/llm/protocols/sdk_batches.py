"""What the batch interfaces of SDKs share: their errors, and the time that an upload may take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evalflows.llm.endpoint_errors import classify
from evalflows.specs.errors import CallError

UPLOAD_TIMEOUT_S = 600.0


class SDKBatches:
    """A batch interface by an SDK, which sends with an HTTP client of its own: files may be larger than any answer."""

    def __init__(self, redacted: Callable[[CallError], CallError]) -> None:
        """Args: redacted: returns an error without the connection's secrets."""
        self._redacted = redacted

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise what the block raises as a CallError."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError):  # of what is no batch
            raise CallError("bad_request", "the endpoint answers as if it had no batches") from None
        except Exception as error:
            raise self._redacted(classify(error)) from None
