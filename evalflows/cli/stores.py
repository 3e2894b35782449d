"""The store of a command that lists what is in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from evalflows.cli.output import echo_error
from evalflows.store.layout import Layout
from evalflows.store.store import Store, is_store, no_store, store_or_empty


@contextmanager
def store_to_list() -> Iterator[Store]:
    """Yield the store; if there is none, say so on standard error and yield an empty temporary one."""
    if not is_store(layout := Layout.at()):
        echo_error(no_store(layout))
    with store_or_empty() as store:
        yield store
