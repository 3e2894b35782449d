"""The API key of a connection: from the environment, or from a Prefect Secret block."""

from typing import Any

from evalflows.llm.connections import block_name, check_key, key_of, plain_key
from evalflows.prefect_server import server_access
from evalflows.specs.connections import ConnectionSpec, LocalConnection
from evalflows.specs.errors import InputError, describe


def key_for(name: str, connection: ConnectionSpec) -> str | None:
    """Return the key of a connection; None if it needs none. Keys are never stored, logged or shown.

    Raise InputError if the variable is not set, if there is no such block, if the value cannot be a key, and if a
    deployment's run may not send it there.
    """
    if isinstance(connection, LocalConnection):
        return None
    if connection.api_key_block is None:
        return key_of(name, connection)
    check_key(name, connection)
    shown = block_name(connection.api_key_block)
    where = f"connection {name!r}: the Prefect Secret block {shown!r}"
    secret = _block(connection.api_key_block, f"connection {name!r}: no Prefect Secret block called {shown!r}", where)
    read = secret.get()
    # Prefect parses values that look like JSON: a key of digits only would be a number.
    return plain_key(read if isinstance(read, str) else secret.value.get_secret_value(), where)


def _block(block: str, missing: str, where: str) -> Any:
    """Load a block. Errors are raised without their cause, which may contain the value."""
    from prefect.blocks.system import Secret  # late: most connections have no block
    from prefect.exceptions import ObjectNotFound

    try:
        with server_access():
            # Without `_sync` this returns a coroutine if an event loop runs, as in a notebook or an async flow.
            return Secret.load(block, _sync=True)  # type: ignore[call-arg]
    except Exception as error:
        if isinstance(error.__cause__, ObjectNotFound):
            raise InputError(missing) from None
        raise InputError(f"{where} cannot be read: {describe(error)}") from None
