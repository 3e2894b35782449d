"""The attributes of an observation without its texts: models, tokens, costs, versions and sessions stay."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from evalflows.specs.attribute_aliases import FIELDS, Alias, OfResource, Source, Within
from evalflows.store.erased import ATTRIBUTE, FIELD
from evalflows.store.records import Json, to_json

TEXTS = ("input", "output")
PERSONAL = ("user_id", "tags")
"""Fields that go without a trace: applications put people's names into both."""

Marker = Callable[[str], str]


def without_texts(
    source: Source, row: Mapping[str, Json | None], day: str, marker: Marker
) -> Mapping[str, Json | None]:
    """Return the columns of an observation that have attributes, without texts. Erased ones stay as they are."""
    given = _mapping(row["attributes"])
    if ATTRIBUTE in given:
        return row
    kept = {}
    for name, value in {**given, **_mapping(row["contents"])}.items():
        left = _left_of(source, name, value, marker)
        if left is not None:
            kept[name] = left
    return {
        "resource": _resource(source, row["resource"]),
        "attributes": to_json({**kept, ATTRIBUTE: day}),
        "contents": None,
        "links": _links(row["links"]),
    }


def _left_of(source: Source, name: str, value: Any, marker: Marker) -> Any:
    """Return what stays of an attribute; None if nothing does."""
    is_text = name in _texts(source)
    if name in _names(source) and not is_text:
        return value
    left: dict[str, Any] = {}
    for keys in _paths(source).get(name, ()):
        _keep(left, _mapping(value), keys)
    if not is_text:
        return left or None
    mark = marker(value if isinstance(value, str) else to_json(value))
    return {**left, FIELD: mark} if left else mark


@cache
def _texts(source: Source) -> frozenset[object]:
    """Return the attributes that are what was asked or answered."""
    return frozenset(alias for field in TEXTS for alias in FIELDS[field].get(source, ()))


@cache
def _staying(source: Source) -> tuple[Alias, ...]:
    fields = [field for field in FIELDS if field not in (*TEXTS, *PERSONAL)]
    return tuple(alias for field in fields for alias in FIELDS[field].get(source, ()))


@cache
def _names(source: Source) -> frozenset[Alias]:
    """Return the attributes that stay."""
    return frozenset(alias for alias in _staying(source) if isinstance(alias, str))


@cache
def _paths(source: Source) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """Return the places within attributes that stay."""
    paths: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for alias in _staying(source):
        if isinstance(alias, Within):
            paths[alias.attribute].append(alias.keys)
    return paths


def _keep(left: dict[str, Any], given: Any, keys: tuple[str, ...]) -> None:
    """Copy the value at a path."""
    for key in keys:
        if not isinstance(given, Mapping) or key not in given:
            return
        given = given[key]
    for key in keys[:-1]:
        left = left.setdefault(key, {})
    left[keys[-1]] = given


def _resource(source: Source, resource: Json | None) -> Json | None:
    if resource is None:
        return None
    stays = {alias.attribute for by in FIELDS.values() for alias in by.get(source, ()) if isinstance(alias, OfResource)}
    return to_json({name: value for name, value in _mapping(resource).items() if name in stays})


def _links(links: Json | None) -> Json | None:
    if links is None:
        return None
    given = json.loads(links)
    ids = [
        {name: link[name] for name in ("trace_id", "span_id") if name in link}
        for link in (given if isinstance(given, list) else [])
        if isinstance(link, Mapping)
    ]
    return to_json(ids)


def _mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object, given as itself or as text; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
