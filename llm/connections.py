"""Connections by name: `openai`, `local`, and those of a spec."""

import os
from collections.abc import Mapping

from specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from specs.errors import InputError


def resolve(name: str, own: Mapping[str, ConnectionSpec]) -> ConnectionSpec:
    """The connection of that name; a spec's own come first. Raises InputError for an unknown name."""
    if name in own:
        return own[name]
    if name == "local":
        return LocalConnection()
    if name == "openai":
        return EndpointConnection(
            base_url=os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
            api_key_env="OPENAI_API_KEY",
            model=os.environ.get("OPENAI_MODEL"),
        )
    raise InputError(f"connection {name!r}: wanted one of {', '.join([*own, 'local', 'openai'])}")


def key_of(name: str, connection: EndpointConnection) -> str | None:
    """The key, from the environment. Raises InputError where its variable is not set. Never stored, logged or shown."""
    if connection.api_key_env is None:
        return None
    key = os.environ.get(connection.api_key_env)
    if not key:
        raise InputError(f"connection {name!r}: the environment variable {connection.api_key_env} is not set")
    return key
