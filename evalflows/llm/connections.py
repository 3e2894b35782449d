"""Find connections by name: those of a spec, of the shared file, and the built-in `openai`, `local` and `auto`."""

import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import ValidationError

from evalflows.specs.connections import (
    AnthropicConnection,
    ConnectionSpec,
    EndpointConnection,
    GoogleConnection,
    LocalConnection,
    RemoteConnection,
)
from evalflows.specs.errors import InputError, describe, first_problem, short
from evalflows.specs.files import expanded, read_regular
from evalflows.specs.permitted import Source, check_sent, variable, variables_in
from evalflows.specs.placeholders import filled
from evalflows.specs.yaml_loader import SpecLoader

_KINDS: dict[str, type[ConnectionSpec]] = {
    "endpoint": EndpointConnection,
    "anthropic": AnthropicConnection,
    "google": GoogleConnection,
    "local": LocalConnection,
}

_SDKS = {"anthropic": "anthropic", "google": "google.genai"}
"""The packages of kinds that are extras of the same name."""

FILE = "connections.yaml"
"""The shared connections file in the current folder, unless EVALFLOWS_CONNECTIONS names another."""

AUTO_MODEL = "gpt-4o-mini"
"""The provider's model that `auto` uses unless OPENAI_MODEL names one."""

SENT_BY_SDK = {
    "endpoint": ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"),
    "anthropic": ("ANTHROPIC_CUSTOM_HEADERS",),
    "google": (),
}
"""Environment variables that the SDK of a kind sends to every address."""

SHORTEST_KEY = 4
"""Shortest redacted secret, in characters: redacting a shorter one would garble every message."""


def read_connections(path: Path) -> dict[str, ConnectionSpec]:
    """Return the connections in a file, by name; `kind` may be omitted if there is a base_url.

    Raise InputError, in one line, for any mistake. No message quotes the file, since it may contain a key by mistake.
    """
    return {name: _connection(f"{path}: {name}", fields) for name, fields in _entries(path).items()}


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(read_regular(path).decode("utf-8"), SpecLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.MarkedYAMLError as error:  # its text quotes the lines, which may contain a key
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not YAML: {describe(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: got {type(content).__name__}, wanted a mapping of names to connections")
    for name in content:
        if not isinstance(name, str) or not name:
            raise InputError(f"{path}: got name {short(name)}, wanted text")
    return content


def _connection(where: str, fields: object) -> ConnectionSpec:
    """Parse one entry. Messages about it as a whole leave out its content, which may contain a key."""
    if not isinstance(fields, dict):
        raise InputError(f"{where}: got {type(fields).__name__}, wanted a mapping with base_url or kind")
    kind = fields.get("kind", "endpoint" if "base_url" in fields else None)
    if kind is None:
        raise InputError(f"{where}: got no base_url, wanted one, or a kind: {', '.join([*_KINDS][1:])}")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"{where}: kind: got {short(kind)}, wanted one of {', '.join(_KINDS)}")
    try:
        return _KINDS[kind].model_validate(fields)
    except ValidationError as error:
        raise InputError(first_problem(error, where, _KINDS[kind])) from None


def require_sdk(name: str, connection: ConnectionSpec) -> None:
    """Raise InputError if the package that speaks the connection's protocol is not installed."""
    package = _SDKS.get(connection.kind)
    try:
        lacks = package is not None and find_spec(package) is None
    except ModuleNotFoundError:  # of the package around it
        lacks = True
    if lacks:
        wanted = f'pip install "evalflows[{connection.kind}]"'
        raise InputError(f"connection {name!r}: kind: {connection.kind} needs the package {package}: {wanted}")


def resolve(name: str, own: Mapping[str, ConnectionSpec]) -> ConnectionSpec:
    """Return the connection with this name: a spec's own take precedence, then the shared file's, then the built-in.

    Raise InputError for an unknown name or an invalid shared file.
    """
    if name in own:
        return own[name]
    connections = known(own)
    if name not in connections:
        raise InputError(f"connection {name!r}: wanted one of {', '.join(connections)}")
    return connections[name]


def known(own: Mapping[str, ConnectionSpec]) -> dict[str, ConnectionSpec]:
    """Return every connection that can be named. Raise InputError for an invalid shared file."""
    connections = {**own}
    for name, connection in shared().items():
        connections.setdefault(name, connection)
    for name, make in _BUILT_IN.items():
        if name not in connections:
            connections[name] = make()
    return connections


def shared() -> dict[str, ConnectionSpec]:
    """Return the shared file's connections by name; an empty mapping if there is no such file.

    Raise InputError if the file is invalid, or EVALFLOWS_CONNECTIONS names one that does not exist.
    """
    named = os.environ.get("EVALFLOWS_CONNECTIONS")
    path = expanded(named or FILE)
    if not path.exists():
        if named:
            raise InputError(f"EVALFLOWS_CONNECTIONS: no file at {named!r}")
        return {}
    return read_connections(path)


def addresses_of_keys() -> dict[Source, list[str]]:
    """Return the base URLs with which the shared and the built-in connections define each key."""
    addresses: dict[Source, list[str]] = {}
    for connection in known({}).values():
        if isinstance(connection, RemoteConnection):
            of_headers = {name for value in connection.headers.values() for name in variables_in(value)}
            for source in (_source(connection), *map(variable, (*SENT_BY_SDK[connection.kind], *of_headers))):
                if source is not None:
                    addresses.setdefault(source, []).append(connection.base_url)
    return addresses


def check_key(name: str, connection: RemoteConnection) -> None:
    """Raise InputError if a deployment's run may not send the connection's key to its base URL."""
    if source := _source(connection):
        shown = _variable(source.name) if connection.api_key_env else repr(block_name(source.name))
        check_sent(f"connection {name!r}", source, shown, connection.base_url)


def _source(connection: RemoteConnection) -> Source | None:
    if connection.api_key_env is not None:
        return variable(connection.api_key_env)
    return None if connection.api_key_block is None else Source("block", connection.api_key_block)


def key_of(name: str, connection: RemoteConnection) -> str | None:
    """Return the key from the environment; it is never stored, logged or shown.

    Raise InputError if its variable is not set or does not hold a key, or a deployment's run may not send it there.
    """
    headers_of(connection.headers, f"connection {name!r}", connection.base_url)
    if connection.api_key_env is None:
        return None
    check_key(name, connection)
    where = f"connection {name!r}: the environment variable {_variable(connection.api_key_env)}"
    if lacks_key(connection):
        raise InputError(f"{where} is not set")
    return plain_key(os.environ[connection.api_key_env], where)


def plain_key(text: object, where: str) -> str:
    """Return a key without surrounding white space. Raise InputError, without showing the key, if it is invalid."""
    if not isinstance(text, str):
        raise InputError(f"{where} holds {type(text).__name__}, wanted a key as text")
    key = text.strip()  # a key read from a file ends with a newline
    if not re.fullmatch(r"[\x20-\x7e]+", key):
        raise InputError(f"{where} is {'not a key' if key else 'empty'}, wanted plain characters in one line")
    return key


def lacks_key(connection: ConnectionSpec | RemoteConnection) -> bool:
    """Return whether the key should come from the environment but its variable is not set."""
    variable = connection.api_key_env if isinstance(connection, RemoteConnection) else None
    return variable is not None and not os.environ.get(variable, "").strip()


def headers_of(headers: Mapping[str, str], where: str, url: str) -> dict[str, str]:
    """Return headers with values from the environment filled in, to be sent to `url`.

    Raise InputError, without showing the value, if a variable is not set, a header cannot be sent, or a deployment's
    run may not send a variable there.
    """
    whole = {}
    for name, value in headers.items():
        place = f"{where}: headers: {name}"
        for used in variables_in(value):
            check_sent(place, variable(used), used, url)
        whole[name] = filled(value, place).strip()
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(r"[\t\x20-\x7e]*", whole[name]):
            raise InputError(f"{place}: cannot be sent as a header, wanted plain characters in one line")
    return whole


def secrets_of(headers: Mapping[str, str]) -> list[str]:
    """Return the header values taken from the environment, which must not appear in any message."""
    names = {name for value in headers.values() for name in variables_in(value)}
    return [value for name in names if len(value := os.environ.get(name, "").strip()) >= SHORTEST_KEY]


def key_source(connection: ConnectionSpec) -> str:
    """Describe where the key comes from and, for a variable, whether it is set; never the key itself."""
    if isinstance(connection, RemoteConnection):
        if connection.api_key_block is not None:
            return f"Secret block {block_name(connection.api_key_block)!r}"
        if connection.api_key_env is not None:
            return f"{_variable(connection.api_key_env)}: {'not set' if lacks_key(connection) else 'set'}"
    return "none needed"


def block_name(name: str) -> str:
    """Return the name of a Secret block for display, redacted if it looks like a key given by mistake."""
    return name if re.fullmatch(r"(?!sk-)[a-z0-9]{0,20}(-[a-z0-9]{0,20})*", name) else "…"


def address(connection: ConnectionSpec) -> str:
    """Return the address of the model's server, without its query."""
    if isinstance(connection, LocalConnection):
        return "this machine"
    parts = urlsplit(connection.base_url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def without_key(text: str, key: str | None, shortest: int = SHORTEST_KEY) -> str:
    """Redact the key in a message: providers quote what they reject.

    The end of a text may cut the key in two: what is left of it is redacted from `shortest` characters on.
    """
    if not key or len(key) < shortest:
        return text
    text = text.replace(key, "…")
    for length in range(len(key) - 1, shortest - 1, -1):
        if text.endswith(key[:length]):
            return text[:-length] + "…"
    return text


def _variable(name: str) -> str:
    """Return the name of a variable for display, redacted if it looks like a key given by mistake."""
    plain = re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) or name in os.environ
    return name if plain else "…"


def _openai() -> ConnectionSpec:
    try:
        return EndpointConnection(
            base_url=os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
            api_key_env="OPENAI_API_KEY",
            model=os.environ.get("OPENAI_MODEL"),
        )
    except ValidationError as error:
        raise InputError(first_problem(error, "OPENAI_BASE_URL")) from None


def _provider_or_local() -> ConnectionSpec:
    """Return `openai` if the environment has a key or an address for it, else `local`."""
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return LocalConnection()
    provider = _openai()
    key_env = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None  # a self-hosted endpoint may need none
    return provider.model_copy(update={"model": provider.model or AUTO_MODEL, "api_key_env": key_env})


_BUILT_IN: dict[str, Callable[[], ConnectionSpec]] = {
    "auto": _provider_or_local,
    "local": LocalConnection,
    "openai": _openai,
}
