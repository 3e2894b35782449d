"""SQL macros that find the fields of an observation in its attributes, made from specs/attribute_aliases.py."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from evalflows.specs.attribute_aliases import FIELDS, LONG, NOT_CAPTURED, TYPES, Alias, OfResource, Within
from evalflows.store.layout import quoted


def attribute_macros() -> Iterator[str]:
    """Yield the SQL that creates the macros `attribute_<field>(source, attributes, contents, resource)`.

    Each gives the value as text, or null.
    """
    yield (
        "create or replace macro text_within(text, path) as "
        "case when json_valid(text) then json_extract_string(text::json, path) end"
    )
    for field, by_source in FIELDS.items():
        cases = " ".join(
            f"when {quoted(source)} then {_first_of(aliases, field in LONG)}"
            for source, aliases in by_source.items()
            if aliases
        )
        yield (
            f"create or replace macro attribute_{field}(source, attributes, contents, resource) as "
            f"case source {cases} end"
        )
    yield (
        "create or replace macro list_of_tags(text) as case when text is null then null "
        "when json_valid(text) then coalesce(try_cast(text::json as varchar[]), [text]) "
        "else list_transform(string_split(text, ','), lambda tag: trim(tag)) end"
    )
    yield "create or replace macro finite(number) as case when isfinite(number) then number end"
    kinds = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in TYPES.items())
    # `map[key]` is a list before DuckDB 1.2, which reads exported views too
    found = f"map_extract(map {{{kinds}}}, lower(name))[1]"
    yield f"create or replace macro observation_type(name) as coalesce({found}, 'span')"


def _first_of(aliases: Sequence[Alias], is_long: bool) -> str:
    """Return SQL for the first alias that has a value. Neighbours of one column are read in one pass over its JSON."""
    columns = ("attributes", "contents") if is_long else ("attributes",)
    found = []
    for place, group in groupby(aliases, key=type):
        if place is str:
            paths = ", ".join(_path(str(alias)) for alias in group)
            found += [_any_value(f"json_extract_string({column}, [{paths}])", is_long) for column in columns]
        else:
            found += [_elsewhere(alias) for alias in group if not isinstance(alias, str)]
    return f"coalesce({', '.join(found)})" if len(found) > 1 else found[0]


def _any_value(values: str, is_long: bool) -> str:
    captured = f"list_filter({values}, lambda value: value <> {quoted(NOT_CAPTURED)})" if is_long else values
    return f"list_any_value({captured})"


def _elsewhere(alias: Within | OfResource) -> str:
    if isinstance(alias, OfResource):
        return f"json_extract_string(resource, {_path(alias.attribute)})"
    text = f"json_extract_string(attributes, {_path(alias.attribute)})"
    longer = f"json_extract_string(contents, {_path(alias.attribute)})"
    return f"text_within(coalesce({text}, {longer}), {_path(*alias.keys)})"


def _path(*keys: str) -> str:
    return quoted("$" + "".join(f'."{key}"' for key in keys))
