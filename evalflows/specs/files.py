"""Read spec files, with changes such as `targets.0.model=gpt-4o`."""

import os
import stat
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator
from pydantic import ValidationError as PydanticError

from evalflows.specs.errors import InputError, first_problem, short
from evalflows.specs.permitted import check_in_paths, permitted_path
from evalflows.specs.placeholders import filled

Spec = TypeVar("Spec", bound=BaseModel)


def _as_here(given: Any) -> Any:
    """Return a path without `file://`, and with the slashes of this system in place of Windows'."""
    if isinstance(given, list):
        raise ValueError(f"got {short(given)}, wanted one file; a `function` can yield rows of several")
    return given.removeprefix("file://").replace("\\", "/") if isinstance(given, str) else given


FilePath = Annotated[str, BeforeValidator(_as_here)]
"""The path of a file in a spec, as promptfoo and Windows write it too."""


def located(path: str | os.PathLike[str]) -> Path:
    """Return a path of a spec with its environment variables and `~` expanded.

    Raise InputError if a variable is not set, or if a deployment's run may not name the path or use the variable: see
    `permitted.py` and `permitted.py`.
    """
    check_in_paths(os.fspath(path))
    return permitted_path(expanded(path), os.fspath(path))


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with its environment variables and `~` expanded. Raise InputError if a variable is not set."""
    text = os.fspath(path)
    try:
        return Path(filled(text, text)).expanduser()
    except RuntimeError as error:
        raise InputError(f"{text}: {error}") from error


def check_regular(path: Path) -> None:
    """Raise OSError unless the path is a file: a FIFO that nobody writes to, or a device, could be read for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder raises an error of its own
        raise OSError(None, "not a regular file")


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raise OSError if it cannot be read, or is not a regular file."""
    check_regular(path)
    return path.read_bytes()


def texts(template: Any) -> Iterator[str]:
    """Yield every text inside a JSON value that `fill_json` would fill."""
    if isinstance(template, str):
        yield template
    elif isinstance(template, dict | list):
        for value in template.values() if isinstance(template, dict) else template:
            yield from texts(value)


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, as the `object_pairs_hook` of `json.loads`. Raise ValueError for a key that repeats."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise ValueError(f"got the key {short(repeated)} twice")
    return made


def load_spec(kind: type[Spec], path: str | Path, changes: Sequence[str], *, wanted: str) -> Spec:
    """Read a spec file (YAML) and apply changes; `wanted` names the required fields, for messages.

    Raise InputError, in one line, if the file is invalid.
    """
    return make_spec(kind, load_text(read_text(path), str(path), wanted=wanted), changes, str(path))


def read_text(path: str | Path) -> str:
    """Return the text of a file (UTF-8). Raise InputError if it cannot be read."""
    try:
        return read_regular(Path(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def load_text(text: str, where: str, *, wanted: str) -> dict[str, Any]:
    """Return the fields of a spec's text (YAML). Raise InputError, beginning with `where`, if it has none."""
    import yaml  # late: specs that the store has need none

    from evalflows.specs.yaml_loader import SpecLoader, TooLargeError, yaml_problem

    try:
        content = yaml.load(text, SpecLoader)
    except TooLargeError as error:
        raise InputError(f"{where}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # an invalid date raises ValueError
        raise InputError(f"{where}: not YAML: {yaml_problem(error)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{where}: got {type(content).__name__}, wanted a mapping with {wanted}")
    return content


def change_spec(spec: Spec, changes: Sequence[str], where: str) -> Spec:
    """Return the spec with changes applied. Raise InputError, beginning with `where`, if the result is invalid."""
    return make_spec(type(spec), spec.model_dump(mode="json"), changes, where) if changes else spec


def make_spec(kind: type[Spec], content: dict[str, Any], changes: Sequence[str], where: str) -> Spec:
    """Make a spec from its fields, with changes applied. Raise InputError, beginning with `where`, if it is invalid."""
    for change in changes:
        _apply(content, change)
    try:
        return kind.model_validate(content)
    except PydanticError as error:
        if texts := [change for change in changes if _is_text_field(change, error)]:
            for change in texts:
                _apply(content, change, as_text=True)
            return make_spec(kind, content, [], where)
        raise InputError(first_problem(error, where, kind)) from error


def _is_text_field(change: str, error: PydanticError) -> bool:
    """Return whether a change gave a number, a date or yes or no to a field that is a text: `version=0123456`."""
    keys = change.partition("=")[0].strip().split(".")
    wrong = [[str(key) for key in error["loc"]] for error in error.errors() if error["type"] == "string_type"]
    return any(loc[-1] == keys[-1] and [key for key in loc if key in keys] == keys for loc in wrong)


def _apply(content: dict[str, Any], change: str, *, as_text: bool = False) -> None:
    """Set one field of a spec: `path.to.it=value`, with the value as YAML or as it is, and list elements by number."""
    import yaml  # late, as above

    from evalflows.specs.yaml_loader import SpecLoader, yaml_problem

    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {change}: wanted key=value, such as repetitions=3 or targets.0.model=gpt-4o")
    try:
        value = text if as_text else yaml.load(text, SpecLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"--set {change}: the value is not YAML: {yaml_problem(error)}") from error
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
