"""Connections by name: those of a spec, those of the shared file, and `openai`, `local`, `auto`."""

import os
import re
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit

from llm.connections_file import read_connections
from specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from specs.errors import InputError
from specs.paths import located

FILE = "connections.yaml"
"""Where shared connections stand, in the current folder, unless EVALFLOWS_CONNECTIONS names another file."""

AUTO_MODEL = "gpt-4o-mini"
"""What `auto` asks of a provider where OPENAI_MODEL names none."""

SHORTEST_KEY = 4
"""Characters: what is shorter is no secret, and would blot out half of a message."""


def resolve(name: str, own: Mapping[str, ConnectionSpec]) -> ConnectionSpec:
    """The connection of that name: a spec's own come first, then the shared file's, then those that come with us.

    Raises InputError for an unknown name, and for a shared file that is broken.
    """
    if name in own:
        return own[name]
    found = known(own)
    if name not in found:
        raise InputError(f"connection {name!r}: wanted one of {', '.join(found)}")
    return found[name]


def known(own: Mapping[str, ConnectionSpec]) -> dict[str, ConnectionSpec]:
    """Every connection that can be named. Raises InputError for a shared file that is broken."""
    found = {**own}
    for name, connection in shared().items():
        found.setdefault(name, connection)
    for name, make in _OURS.items():
        if name not in found:
            found[name] = make()
    return found


def shared() -> dict[str, ConnectionSpec]:
    """The connections of the shared file, by name; none where there is no such file.

    Raises InputError for a file that EVALFLOWS_CONNECTIONS names and that is not there, and for what is wrong in it.
    """
    named = os.environ.get("EVALFLOWS_CONNECTIONS")
    path = located(named or FILE)
    if not path.exists():
        if named:
            raise InputError(f"EVALFLOWS_CONNECTIONS: no file at {named!r}")
        return {}
    return read_connections(path)


def key_of(name: str, connection: EndpointConnection) -> str | None:
    """The key, from the environment. Raises InputError where its variable is not set. Never stored, logged or shown."""
    if connection.api_key_env is None:
        return None
    where = f"connection {name!r}: the environment variable {_variable(connection.api_key_env)}"
    if lacks_key(connection):
        raise InputError(f"{where} is not set")
    return plain_key(os.environ[connection.api_key_env], where)


def plain_key(text: object, where: str) -> str:
    """A key as it can be sent. Raises InputError, without telling the key, for what can be none."""
    if not isinstance(text, str):
        raise InputError(f"{where} holds {type(text).__name__}, wanted a key as text")
    key = text.strip()  # the line's end, where it came out of a file
    if not re.fullmatch(r"[\x20-\x7e]+", key):
        raise InputError(f"{where} is {'no key' if key else 'empty'}, wanted plain characters in one line")
    return key


def lacks_key(connection: ConnectionSpec) -> bool:
    """Whether its key is to come from the environment, and is not there."""
    variable = connection.api_key_env if isinstance(connection, EndpointConnection) else None
    return variable is not None and not os.environ.get(variable, "").strip()


def whence_key(connection: ConnectionSpec) -> str:
    """Where the key comes from, and whether it is there as far as that can be said at once; never the key."""
    if isinstance(connection, EndpointConnection):
        if connection.api_key_block is not None:
            return f"Secret block {block_name(connection.api_key_block)!r}"
        if connection.api_key_env is not None:
            return f"{_variable(connection.api_key_env)}: {'not set' if lacks_key(connection) else 'set'}"
    return "none needed"


def block_name(name: str) -> str:
    """The name of a Secret block as it may be shown: a key that stands in its place by mistake may not."""
    return name if re.fullmatch(r"(?!sk-)[a-z0-9]{0,20}(-[a-z0-9]{0,20})*", name) else "…"


def address(connection: ConnectionSpec) -> str:
    """Where its model is served, without a user, a password or a query in it."""
    if isinstance(connection, LocalConnection):
        return "this machine"
    parts = _parts(connection.base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts else "no address"


def without_secrets(text: str, connection: ConnectionSpec, key: str | None) -> str:
    """A message with the key, and a password of the address, put out: providers quote what they refuse."""
    parts = _parts(connection.base_url) if isinstance(connection, EndpointConnection) else None
    for secret in (key, parts.password if parts else None):
        if secret and len(secret) >= SHORTEST_KEY:
            text = _put_out(text, secret)
    return text


def _parts(url: str) -> SplitResult | None:
    """The parts of an address, if it is one."""
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.scheme and parts.hostname and parts.port != 0)  # a port that is no number raises
    except ValueError:
        return None
    return parts if is_whole else None


def _put_out(text: str, secret: str) -> str:
    """Whoever cut the message may have cut the secret in two."""
    text = text.replace(secret, "…")
    for length in range(len(secret) - 1, SHORTEST_KEY - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + "…"
    return text


def _variable(name: str) -> str:
    """The name of a variable as it may be shown: a key that stands in its place by mistake may not."""
    plain = re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) or name in os.environ
    return name if plain else "…"


def _openai() -> ConnectionSpec:
    return EndpointConnection(
        base_url=os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
        api_key_env="OPENAI_API_KEY",
        model=os.environ.get("OPENAI_MODEL"),
    )


def _provider_or_local() -> ConnectionSpec:
    """`openai` where the environment has a key or an address for it, else `local`."""
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return LocalConnection()
    found = _openai()
    key_env = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None  # an endpoint of one's own may need none
    return found.model_copy(update={"model": found.model or AUTO_MODEL, "api_key_env": key_env})


_OURS: dict[str, Callable[[], ConnectionSpec]] = {
    "auto": _provider_or_local,
    "local": LocalConnection,
    "openai": _openai,
}
