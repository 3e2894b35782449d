"""Spec files, and changes such as `targets.0.model=gpt-4o` to what they say."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from specs.errors import InputError, first_problem, short

Spec = TypeVar("Spec", bound=BaseModel)


def load_spec(kind: type[Spec], path: str | Path, changes: Sequence[str], *, wanted: str) -> Spec:
    """Read a spec file (YAML) with changes applied; `wanted` are the fields that a file must have, in words.

    Raises InputError, in one line, for whatever is wrong with it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that there is not is a ValueError
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: got {type(content).__name__}, wanted a mapping with {wanted}")
    return make_spec(kind, content, changes, str(path))


def change_spec(spec: Spec, changes: Sequence[str], where: str) -> Spec:
    """A spec with changes applied. Raises InputError, which begins with `where`, for one that cannot be made."""
    return make_spec(type(spec), spec.model_dump(mode="json"), changes, where) if changes else spec


def make_spec(kind: type[Spec], content: dict[str, Any], changes: Sequence[str], where: str) -> Spec:
    """A spec of its fields, with changes applied. Raises InputError in the same way."""
    for change in changes:
        _apply(content, change)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(first_problem(error, where)) from error


def _apply(content: dict[str, Any], change: str) -> None:
    """Set one field of a spec: `path.to.it=value`, the value as YAML, an element of a list by its number."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {change}: wanted key=value, such as repetitions=3 or targets.0.model=gpt-4o")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"--set {change}: the value is not YAML: {' '.join(str(error).split())}") from error
    place: Any = content
    for key in keys[:-1]:
        place = _step(place, key, change)
    if isinstance(place, list):
        _step(place, keys[-1], change)
        place[int(keys[-1])] = value
    elif isinstance(place, dict):
        place[keys[-1]] = value
    else:
        raise InputError(f"--set {change}: {'.'.join(keys[:-1])} is {short(place)}, wanted a mapping or a list")


def _step(place: Any, key: str, change: str) -> Any:
    """What stands at a key, as a copy of its own there: an alias of YAML is one object in two places."""
    if isinstance(place, list):
        if not key.isdecimal() or int(key) >= len(place):
            raise InputError(f"--set {change}: got {key!r}, wanted a number below {len(place)}")
        place[int(key)] = copy(place[int(key)])
        return place[int(key)]
    if isinstance(place, dict):
        place[key] = copy(place.get(key, {}))
        return place[key]
    raise InputError(f"--set {change}: nothing below {short(place)}")
