"""Reading spec files, and applying changes such as `targets.0.model=gpt-4o`."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from evalflows.specs.errors import InputError, first_problem, short
from evalflows.specs.paths import read_regular
from evalflows.specs.unique_keys import UniqueKeyLoader

MAX_VALUES = 1_000_000
"""Most values of a spec file."""

Spec = TypeVar("Spec", bound=BaseModel)


def load_spec(kind: type[Spec], path: str | Path, changes: Sequence[str], *, wanted: str) -> Spec:
    """Read a spec file (YAML) and apply changes; `wanted` names the required fields, for messages.

    Raise InputError, in one line, if the file is invalid.
    """
    try:
        text = read_regular(Path(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = yaml.load(text, UniqueKeyLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # an invalid date raises ValueError
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if _is_too_large(content):
        raise InputError(f"{path}: got more than {MAX_VALUES:,} values, or an alias that contains itself")
    if not isinstance(content, dict):
        raise InputError(f"{path}: got {type(content).__name__}, wanted a mapping with {wanted}")
    return make_spec(kind, content, changes, str(path))


def _is_too_large(content: Any) -> bool:
    """Whether a spec has more than MAX_VALUES values: aliases repeat what they name, and could contain themselves."""
    pending, count = [content], 0
    while pending and count <= MAX_VALUES:
        value = pending.pop()
        count += 1
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return count > MAX_VALUES


def change_spec(spec: Spec, changes: Sequence[str], where: str) -> Spec:
    """Return the spec with changes applied. Raise InputError, beginning with `where`, if the result is invalid."""
    return make_spec(type(spec), spec.model_dump(mode="json"), changes, where) if changes else spec


def make_spec(kind: type[Spec], content: dict[str, Any], changes: Sequence[str], where: str) -> Spec:
    """Make a spec from its fields, with changes applied. Raise InputError, beginning with `where`, if it is invalid."""
    for change in changes:
        _apply(content, change)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(first_problem(error, where)) from error


def _apply(content: dict[str, Any], change: str) -> None:
    """Set one field of a spec: `path.to.it=value`, with the value as YAML and list elements by number."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {change}: wanted key=value, such as repetitions=3 or targets.0.model=gpt-4o")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"--set {change}: the value is not YAML: {' '.join(str(error).split())}") from error
    node: Any = content
    for key in keys[:-1]:
        node = _step(node, key, change)
    if isinstance(node, list):
        _step(node, keys[-1], change)
        node[int(keys[-1])] = value
    elif isinstance(node, dict):
        node[keys[-1]] = value
    else:
        raise InputError(f"--set {change}: {'.'.join(keys[:-1])} is {short(node)}, wanted a mapping or a list")


def _step(node: Any, key: str, change: str) -> Any:
    """Return the value at a key, renoded there by a copy: a YAML alias is one object in two nodes."""
    if isinstance(node, list):
        if not key.isdecimal() or int(key) >= len(node):
            raise InputError(f"--set {change}: got {key!r}, wanted a number below {len(node)}")
        node[int(key)] = copy(node[int(key)])
        return node[int(key)]
    if isinstance(node, dict):
        node[key] = copy(node.get(key, {}))
        return node[key]
    raise InputError(f"--set {change}: got {short(node)}, wanted a mapping or a list at {key!r}")
