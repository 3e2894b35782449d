"""Values at a path in what an application was asked, answered or retrieved, and the field that is compared or
judged."""

import json
from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass

PathRoots = Mapping[str, dict[str, Any] | None]
"""`inputs`, `outputs`, `reference_outputs` and `metadata` by name."""

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
"""Ranges of characters of scripts that put no spaces between words, or attach particles to them: Thai, Lao, Burmese,
Khmer, Chinese, Japanese, Korean. For use inside a character class of a regular expression."""


def path_roots(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
) -> PathRoots:
    """Return the mappings that a path can start from."""
    return {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "metadata": metadata}


def value_at(setting: str, path: Any, roots: PathRoots) -> Any:
    """Return the value at a path such as `outputs.documents.text`; inside a list, the value in each element.

    None if the example lacks it. Raise ValueError for an invalid path, and if the outputs lack the field, since that is
    an error of the target.
    """
    root, fields = _parts(setting, path, roots)
    try:
        return _walk(roots[root], fields)
    except LookupError:
        if root != "outputs":
            return None
        got = ", ".join(roots[root] or {}) or "nothing"
        raise ValueError(f"{setting}: got {path!r} and outputs of {got}, wanted outputs that have it") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """The contexts, and the example and the outputs without the field that the path names."""

    contexts: list[Any] | None  # None if the example has no context; empty if nothing was retrieved
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    reference_outputs: dict[str, Any]


def retrieved(path: Any, roots: PathRoots) -> Retrieved:
    """Return the value at the path as contexts, one per element of a list.

    The value is not part of the question, the answer or the reference: it is removed from them, and so are mappings
    that become empty, and the whole list if the path leads into a list. Raise ValueError as `at` does.
    """
    value = value_at("context", path, roots)
    root, fields = _parts("context", path, roots)
    remaining = {name: mapping or {} for name, mapping in roots.items()}
    remaining[root] = _without(remaining[root], fields)
    return Retrieved(
        contexts=None if value is None else _contexts(value),
        inputs=remaining["inputs"],
        outputs=remaining["outputs"],
        reference_outputs=remaining["reference_outputs"],
    )


def _without(mapping: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    """Return a copy of the mapping without the value at a path, and without mappings that become empty."""
    name, *deeper = fields
    inner = mapping.get(name)
    rest = _without(inner, deeper) if deeper and isinstance(inner, dict) else None
    return {key: rest if key == name else value for key, value in mapping.items() if key != name or rest}


def _contexts(value: Any) -> list[Any]:
    """Return the contexts. Empty ones stay, since their position is their rank, unless all are empty."""
    listed = value if isinstance(value, list | tuple) else [value]
    contexts = ["" if item is None else item for item in listed]
    return contexts if any(as_text(item).strip() for item in contexts) else []


def _parts(setting: str, path: Any, roots: PathRoots) -> tuple[str, list[str]]:
    root, *fields = path.split(".") if isinstance(path, str) else [""]
    if root not in roots or not fields or not all(fields):
        wanted = ", ".join(f"{name}.…" for name in roots)
        raise ValueError(f"{setting}: got {short(path)}, wanted a path: {wanted}")
    return root, fields


def _walk(value: Any, fields: list[str]) -> Any:
    if not fields or value is None:
        return value
    if isinstance(value, list):
        return [_walk(item, fields) for item in value]
    if not isinstance(value, dict):
        raise LookupError(fields[0])
    return _walk(value[fields[0]], fields[1:])


def pick(value: Any, key: str | None) -> Any:
    """Return the field `key` of a mapping; without a key, the only field of a mapping with one, else the value itself.

    Raise KeyError if the mapping lacks the key.
    """
    if key is not None:
        if not isinstance(value, dict) or key not in value:
            got = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise KeyError(f"no field {key!r}, got {got or 'nothing'}")
        return value[key]
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value


def as_text(value: Any) -> str:
    """Return a text unchanged, and anything else as JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def answer_text(outputs: dict[str, Any], key: str | None) -> str:
    """Return the answer as text; a null answer is the empty text."""
    value = pick(outputs, key)
    return "" if value is None else as_text(value)


def reference_value(reference_outputs: dict[str, Any] | None, key: str | None) -> Any:
    """Return the reference's only field, whatever its name, else the field `key`, else all of it; None if empty."""
    several = isinstance(reference_outputs, dict) and len(reference_outputs) > 1
    value = pick(reference_outputs, key if several else None)
    return None if value == {} else value
