"""Connections by name: `openai`, `local`, `auto`, and those of a spec."""

import os
from collections.abc import Mapping

from specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from specs.errors import InputError

AUTO_MODEL = "gpt-4o-mini"
"""What `auto` asks of a provider where OPENAI_MODEL names none."""


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
    if name == "auto":
        return _provider_or_local()
    raise InputError(f"connection {name!r}: wanted one of {', '.join([*own, 'auto', 'local', 'openai'])}")


def _provider_or_local() -> ConnectionSpec:
    """`openai` where the environment has a key or an address for it, else `local`."""
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return resolve("local", {})
    found = resolve("openai", {})
    key_env = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None  # an endpoint of one's own may need none
    return found.model_copy(update={"model": found.model or AUTO_MODEL, "api_key_env": key_env})


def key_of(name: str, connection: EndpointConnection) -> str | None:
    """The key, from the environment. Raises InputError where its variable is not set. Never stored, logged or shown."""
    if connection.api_key_env is None:
        return None
    key = os.environ.get(connection.api_key_env)
    if not key:
        raise InputError(f"connection {name!r}: the environment variable {connection.api_key_env} is not set")
    return key
