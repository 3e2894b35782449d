"""Read the shared connections file: a YAML mapping of names to connections."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from evalflows.specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from evalflows.specs.errors import InputError, describe, first_problem, short
from evalflows.specs.paths import read_regular
from evalflows.specs.unique_keys import UniqueKeyLoader

_KINDS: dict[str, type[EndpointConnection | LocalConnection]] = {
    "endpoint": EndpointConnection,
    "local": LocalConnection,
}


def read_connections(path: Path) -> dict[str, ConnectionSpec]:
    """Return the connections in a file, by name; `kind` may be omitted if there is a base_url.

    Raises InputError, in one line, for any mistake. No message quotes the file, since it may contain a key by mistake.
    """
    return {name: _connection(f"{path}: {name}", fields) for name, fields in _entries(path).items()}


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(read_regular(path).decode("utf-8"), UniqueKeyLoader)
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
        raise InputError(f"{where}: got {type(fields).__name__}, wanted a mapping with base_url or kind: local")
    kind = fields.get("kind", "endpoint" if "base_url" in fields else None)
    if kind is None:
        raise InputError(f"{where}: got no base_url, wanted one (or kind: local)")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"{where}: kind: got {short(kind)}, wanted one of {', '.join(_KINDS)}")
    try:
        return _KINDS[kind].model_validate(fields)
    except ValidationError as error:
        raise InputError(first_problem(error, where)) from None
