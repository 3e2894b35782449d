"""The key of a connection: from the environment, or from a Secret block of Prefect."""

from typing import Any

from llm.connections import block_name, key_of, plain_key
from specs.connection import ConnectionSpec, LocalConnection
from specs.errors import InputError, describe


def key_for(name: str, connection: ConnectionSpec) -> str | None:
    """The key of a connection; None where it needs none. Never stored, logged or shown.

    Raises InputError where its variable is not set, where there is no such block, and where what stands there can be
    no key.
    """
    if isinstance(connection, LocalConnection):
        return None
    if connection.api_key_block is None:
        return key_of(name, connection)
    shown = block_name(connection.api_key_block)
    where = f"connection {name!r}: the Prefect Secret block {shown!r}"
    secret = _block(connection.api_key_block, f"connection {name!r}: no Prefect Secret block called {shown!r}", where)
    read = secret.get()
    # What looks like JSON is read as such by Prefect: a key of digits alone would be a number.
    return plain_key(read if isinstance(read, str) else secret.value.get_secret_value(), where)


def _block(block: str, missing: str, where: str) -> Any:
    """Raised without what lies beneath: that may bear the value."""
    from prefect.blocks.system import Secret  # only here: most connections have no block
    from prefect.exceptions import ObjectNotFound

    try:
        # Without `_sync` a coroutine would come back wherever an event loop runs: in a notebook, in an async flow.
        return Secret.load(block, _sync=True)  # type: ignore[call-arg]
    except Exception as error:
        if isinstance(error.__cause__, ObjectNotFound):
            raise InputError(missing) from None
        raise InputError(f"{where} cannot be read: {describe(error)}") from None
