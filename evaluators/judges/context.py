"""Where the context of an answer is found: a dotted path into the example, or into what the target gave."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.text import as_text
from specs.errors import short

Sides = Mapping[str, dict[str, Any] | None]
"""`inputs`, `outputs`, `reference_outputs` and `metadata`, by their names."""


def sides_of(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
) -> Sides:
    """What a path may begin with."""
    return {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "metadata": metadata}


def at(setting: str, path: Any, sides: Sides) -> Any:
    """What stands at a path such as `outputs.documents.text`; into a list, what stands there in each element.

    None where the example lacks it. Raises ValueError for what is no path, and where the outputs lack the field: that
    is the target's slip, and not the example's.
    """
    side, fields = _parts(setting, path, sides)
    try:
        return _walk(sides[side], fields)
    except LookupError:
        if side != "outputs":
            return None
        got = ", ".join(sides[side] or {}) or "nothing"
        raise ValueError(f"{setting}: got {path!r} and outputs of {got}, wanted outputs that have it") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """The contexts, and the example and the answer without what the path names."""

    contexts: list[str] | None  # None where the example has none; without elements where nothing was retrieved
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    reference_outputs: dict[str, Any]


def retrieved(path: Any, sides: Sides) -> Retrieved:
    """What stands at the path, as texts: one an element of a list; a structure as JSON.

    What stands there is no part of the question, the answer or the reference: it is left out of them, and so is a
    mapping that held nothing else. A list that the path goes into is left out whole. Raises as `at` does.
    """
    found = at("context", path, sides)
    side, fields = _parts("context", path, sides)
    kept = {name: held or {} for name, held in sides.items()}
    kept[side] = _without(kept[side], fields)
    return Retrieved(
        contexts=None if found is None else _texts(found),
        inputs=kept["inputs"],
        outputs=kept["outputs"],
        reference_outputs=kept["reference_outputs"],
    )


def _without(held: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    """A mapping, as another one, without what stands at a path in it, and without mappings that then hold nothing."""
    name, *deeper = fields
    inner = held.get(name)
    left = _without(inner, deeper) if deeper and isinstance(inner, dict) else None
    return {key: left if key == name else value for key, value in held.items() if key != name or left}


def _texts(found: Any) -> list[str]:
    """Those that say nothing keep their place, since it is their rank; unless none says anything."""
    listed = found if isinstance(found, list | tuple) else [found]
    texts = ["" if one is None else as_text(one) for one in listed]
    return texts if any(text.strip() for text in texts) else []


def _parts(setting: str, path: Any, sides: Sides) -> tuple[str, list[str]]:
    side, *fields = path.split(".") if isinstance(path, str) else [""]
    if side not in sides or not fields or not all(fields):
        wanted = ", ".join(f"{name}.…" for name in sides)
        raise ValueError(f"{setting}: got {short(path)}, wanted a path: {wanted}")
    return side, fields


def _walk(value: Any, fields: list[str]) -> Any:
    if not fields or value is None:
        return value
    if isinstance(value, list):
        return [_walk(one, fields) for one in value]
    if not isinstance(value, dict):
        raise LookupError(fields[0])
    return _walk(value[fields[0]], fields[1:])
