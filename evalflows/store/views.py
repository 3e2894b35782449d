"""The SQL of the catalog's views: one per table in `staging`, marts in `main`, the user's own marts among them, and
macros that find the fields of an observation in its attributes."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import Any

from evalflows.specs.attribute_aliases import (
    FIELDS,
    IMPLAUSIBLE,
    LONG,
    MOST,
    NOT_CAPTURED,
    TYPES,
    Alias,
    Implied,
    Numbered,
    OfEvents,
    OfResource,
    Within,
)
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, PASS_K
from evalflows.store.layout import quoted
from evalflows.store.schemas import TABLES

_FIELDS_BELOW = """map_from_entries(list_transform(
    list_filter(json_keys(attributes), lambda key: starts_with(key, prefix) and not contains(key, '"')),
    lambda key: {'key': substr(key, length(prefix) + 1),
                 'value': json_extract_string(attributes, '$."' || key || '"')}))"""

# Some instrumentations keep the roles and the kinds of parts of messages, or an empty object, of what they leave out.
_CAPTURED = r"""list_transform([text], lambda said:
case when starts_with(said, '[') and contains(said, '"parts"')
          and not regexp_matches(said, '"(content|text|arguments|response|result)"\s*:\s*[^n\s]') then null
     when said = '{}' and (source = 'langsmith' or contains(attributes, 'langsmith.span.kind')) then null
     else said end)[1]"""

_EVENTS_WITHIN = """
case when contains(text, '"event.name"') and json_valid(text) then to_json(list_transform(from_json(text, '["json"]'),
    lambda event: {'name': json_extract_string(event, '$."event.name"'), 'attributes': event}))::varchar end"""

FOLDER = "EVALFLOWS_MARTS"

SQL = Path(__file__).parent / "sql"

CHANGES_BETWEEN = "changes_between"
"""The table macro `changes_between(candidate, baseline)`: the rows of `changes`, for any two experiments."""

# DuckDB finds the files and row groups of a range, and pushes it through joins, but not the condition of a list.
# With `list_contains`, DuckDB would read the long texts of other experiments, too.
_IS_ONE_OF = "list_position(ids, id) is not null and id between list_min(ids) and list_max(ids)"

HELD_LEASES = "create or replace macro held_leases() as getvariable('held_leases')::varchar[]"
"""For connections that know the leases; DuckDB before 1.1 has no variables."""

# Where the leases are not known, as in a cursor of the user's, the row's state is shown.
_STATE_NOW = """case when state = 'running' and not list_contains(held_leases(), lease)
                     then 'interrupted' else state end"""

_WITH_STATES = re.compile(
    r"\b(?:from|join|pivot)\s+(?:(?:staging|main)\.)?(?:experiments|comparison_sets|watermarks)\b", re.IGNORECASE
)
"""Where SQL names one of the views that use `state_now`; the tables below `source` have the states of their rows."""

_FACTORS_OF = """json_extract(json_extract(spec, '$.targets[*]')[list_position(
    json_extract_string(spec, '$.targets[*].name'), target)], '$.factors')"""

# As evalflows/analysis/pairing.py does: null if that cannot be told.
_ANSWERED_BY = (
    "case when kind = 'conversation' and list_contains(json_extract_string(spec, '$.targets[*].target.kind'), 'http')"
    " then 'http' else kind end"
)
_SAME_TARGET = """case when version <> other or application is distinct from other_application then false
                      when kind = 'http' and application is null then null else true end"""

# As ExperimentSpec.direction does. JSON pointers take any name, with two characters escaped.
_HIGHER_IS_BETTER = f"""coalesce(
    (spec ->> ('/metrics/' || replace(replace(metric, '~', '~0'), '/', '~1') || '/higher_is_better'))::boolean,
    metric not in ({", ".join(map(quoted, MEASURES))}))"""


def attribute_macros() -> Iterator[str]:
    """Yield the SQL that creates the macros `attribute_<field>(source, attributes, contents, resource, events)`.

    Each gives the value as text, or null.
    """
    yield (
        "create or replace macro text_within(text, path) as "
        "case when json_valid(text) then json_extract_string(text::json, path) end"
    )
    yield f"create or replace macro fields_below(attributes, prefix) as {_FIELDS_BELOW}"
    yield f"create or replace macro numbered_messages(attributes, contents, prefix, inner_) as {_NUMBERED_MESSAGES}"
    yield f"create or replace macro events_within(text) as {_EVENTS_WITHIN}"
    yield f"create or replace macro event_messages(events, names, fields) as {_EVENT_MESSAGES}"
    for field, by_source in FIELDS.items():
        cases = " ".join(
            f"when {quoted(source)} then {_first_of(aliases, field in LONG)}" for source, aliases in by_source.items()
        )
        yield (
            f"create or replace macro attribute_{field}(source, attributes, contents, resource, events) as "
            f"case source {cases} end"
        )
    yield f"create or replace macro captured(text, source, attributes) as {_CAPTURED}"
    yield (
        "create or replace macro list_of_tags(text) as list_transform([text], lambda tags: case "
        "when tags is null then null "
        "when json_valid(tags) then coalesce(try_cast(tags::json as varchar[]), [tags]) "
        "else list_transform(string_split(tags, ','), lambda tag: trim(tag)) end)[1]"
    )
    most = " ".join(f"when {quoted(name)} then {number}" for name, number in MOST.items())
    yield (
        "create or replace macro plausible(name, number) as "
        "list_transform([number], "
        f"lambda one: case when one::double between 0 and case name {most} end then one end)[1]"
    )
    times = ", ".join(
        f"case when json_extract_string(attributes, {_path(IMPLAUSIBLE + name)}) is not null then {quoted(name)} end"
        for name in ("started_at", "ended_at")
    )
    numbers_of = {name: f"attribute_{name}(source, attributes, contents, resource, events)" for name in MOST}
    numbers = ", ".join(
        f"case when plausible({quoted(name)}, try_cast({value} as double)) is null and {value} is not null "
        f"then {quoted(name)} end"
        for name, value in numbers_of.items()
    )
    yield (
        "create or replace macro implausible(source, attributes, contents, resource, events) as "
        f"list_sort(list_distinct([{times}, {numbers}]))"
    )
    kinds = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in TYPES.items())
    # `map[key]` is a list before DuckDB 1.2, which reads exported views too
    found = f"map_extract(map {{{kinds}}}, lower(name))[1]"
    yield f"create or replace macro observation_type(name) as coalesce({found}, 'span')"


def _first_of(aliases: Sequence[Alias], is_long: bool) -> str:
    """Return SQL for the first alias that has a value. Neighbours of one column are read in one pass over its JSON."""
    columns = ("attributes", "contents") if is_long else ("attributes",)
    found = []
    for kind, group in groupby(aliases, key=type):
        if kind is str:
            paths = ", ".join(_path(str(alias)) for alias in group)
            found += [_any_value(f"json_extract_string({column}, [{paths}])", is_long) for column in columns]
        else:
            found += [_elsewhere(alias) for alias in group if not isinstance(alias, str)]
    return f"coalesce({', '.join(found)})" if len(found) > 1 else found[0]


def _any_value(values: str, is_long: bool) -> str:
    captured = f"list_filter({values}, lambda value: value <> {quoted(NOT_CAPTURED)})" if is_long else values
    return f"list_any_value({captured})"


def _events(attribute: str | None) -> str:
    """Return SQL for the events of an observation, or for those that are one of its attributes, in the same form."""
    if attribute is None:
        return "events"
    short, long = (f"json_extract_string({column}, {_path(attribute)})" for column in ("attributes", "contents"))
    return f"events_within(coalesce({short}, {long}))"


def _elsewhere(alias: Within | OfResource | Implied | Numbered | OfEvents) -> str:
    match alias:
        case OfResource():
            return f"json_extract_string(resource, {_path(alias.attribute)})"
        case Implied():
            present = f"json_extract_string(attributes, {_path(alias.attribute)}) is not null"
            return f"case when {present} then {quoted(alias.value)} end"
        case Numbered():
            return f"numbered_messages(attributes, contents, {quoted(alias.prefix)}, {quoted(alias.inner)})"
        case OfEvents():
            names, fields = ", ".join(map(quoted, alias.names)), ", ".join(_path(name) for name in alias.fields)
            return f"event_messages({_events(alias.attribute)}, [{names}], [{fields}])"
    text = f"json_extract_string(attributes, {_path(alias.attribute)})"
    longer = f"json_extract_string(contents, {_path(alias.attribute)})"
    return f"text_within(coalesce({text}, {longer}), {_path(*alias.keys)})"


# Lists of one element name what is used twice: DuckDB binds a macro's argument, which may be most of a thousand
# functions, wherever it is used. A message counts if any of its text, or of its calls, was captured.
_NUMBERED_MESSAGES = f"""
case when contains(attributes, prefix || '.0.') or contains(contents, prefix || '.0.') then list_transform(
    [fields_below(json_merge_patch(attributes::json, coalesce(contents, '{{}}')::json), prefix || '.')],
    lambda fields: case when len(list_filter(map_entries(fields), lambda field: field.value <> {quoted(NOT_CAPTURED)}
            and regexp_matches(field.key, '(content|text|arguments)$'))) > 0 then
        to_json(list_transform(
            list_sort(list_distinct(list_transform(map_keys(fields),
                lambda key: try_cast(split_part(key, '.', 1) as int)))),
            lambda number: fields_below(to_json(fields), number || '.' || inner_)))::varchar end)[1] end"""

_EVENT_MESSAGES = """
case when list_has_any(json_extract_string(events, '$[*].name'), names) then nullif(to_json(list_filter(list_transform(
    from_json(events, '[{"name": "varchar", "attributes": "json"}]'),
    lambda event: {'event': event.name, 'content': case when list_contains(names, event.name) then
                   list_any_value(json_extract_string(event.attributes, fields)) end}),
    lambda message: message.content is not null))::varchar, '[]') end"""


def _path(*keys: str) -> str:
    return quoted("$" + "".join(f'."{key}"' for key in keys))


@dataclass(frozen=True, slots=True)
class OwnMart:
    """A file, and when it was changed: what was read of it is valid until then."""

    path: Path
    changed_ns: int
    size: int


def own_marts(taken: Collection[str]) -> tuple[OwnMart, ...]:
    """Return the user's marts, by name; none if the variable is not set.

    Raise InputError, in one line, if the folder is missing, or if a file cannot be a mart.
    """
    named = os.environ.get(FOLDER)
    if not named:
        return ()
    try:
        paths = sorted(path for path in Path(named).absolute().iterdir() if path.suffix == ".sql")
        return tuple(_mart(path, taken) for path in paths)
    except OSError as error:
        raise InputError(f"{FOLDER}={named}: {error}, wanted a folder of .sql files") from error


def _mart(path: Path, taken: Collection[str]) -> OwnMart:
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", path.stem):
        raise InputError(f"{path}: got the name {path.stem!r}, wanted a-z, 0-9 and _ only")
    if path.stem in taken:
        raise InputError(f"{path}: got the name {path.stem!r}, wanted another: evalflows has a view of that name")
    try:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {error}, wanted UTF-8") from error
    if not re.fullmatch(r"-- one row per [a-z0-9_]+(?:, [a-z0-9_]+)*(?:: .*)?", first):
        raise InputError(f"{path}: got {first!r} as its first line, wanted '-- one row per column, column: what it is'")
    state = path.stat()
    return OwnMart(path, state.st_mtime_ns, state.st_size)


def view_files() -> list[Path]:
    """Return the SQL files of the views, in order of dependency: of tables, our marts, and the user's own marts.

    Raise InputError, in one line, for a mart of the user's that cannot be one.
    """
    return [*_files(own_marts(_taken()))]


def is_mart(path: Path) -> bool:
    """Return whether a view is one for people, in the schema `main`; the others are in `staging`."""
    return path.parent != SQL / "staging"


def is_own(path: Path) -> bool:
    """Return whether a view is one of the user's own marts."""
    return not path.is_relative_to(SQL)


def view_text(name: str) -> str:
    """Return the SQL of a view, with bare names of tables, which a query around it may replace by its own."""
    text = next(path for path in view_files() if path.stem == name).read_text(encoding="utf-8")
    return re.sub(r"\bstaging\.", "", text)


def tables_of(sql: str) -> frozenset[str]:
    """Return the store's tables that a query reads, also through views."""
    return (_named(sql) | views_of(sql)) & TABLES.keys()


def own_tables_of(sql: str) -> frozenset[str]:
    """Return the same for a query of ours, which reads none of the user's marts: they may be broken."""
    return (_named(sql) | _views_of(sql, ())) & TABLES.keys()


def views_of(sql: str) -> frozenset[str]:
    """Return the views that a query reads, also through other views. Those of staging are named like their tables.

    The macro `changes_between` counts as a view.
    """
    return _views_of(sql, own_marts(_taken()))


def reads_states(sql: str) -> bool:
    """Return whether a query reads a view of staging with states that depend on the leases, also through others."""
    return _reads_states(sql, own_marts(_taken()))


def grain(path: Path) -> tuple[str, ...]:
    """Return the key columns of a view, read from its first line: `-- one row per a, b: …`."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    match = re.fullmatch(r"-- one row per ([a-z0-9_]+(?:, [a-z0-9_]+)*)(?:: .*)?", first)
    if not match:
        raise ValueError(f"{path.name}: got {first!r}, wanted '-- one row per column, column'")
    return tuple(match[1].split(", "))


def meanings(name: str) -> Mapping[str, str]:
    """Return what the columns of a view mean; nothing of one of the user's marts. The columns of others may be more."""
    if name not in _taken():
        return {}
    described = _described()
    own: Mapping[str, str] = described["marts"].get(name, {}).get("columns", {})
    return {**described["columns"], **own}


@cache
def _described() -> Any:
    import yaml  # late: it is slow to import

    return yaml.safe_load((SQL / "tables.yaml").read_text(encoding="utf-8"))


def macros() -> Iterator[str]:
    """Yield the SQL of the functions that views use."""
    # Python and SQL share one pattern for names of pass@k metrics.
    yield f"create or replace macro base_metric(metric) as regexp_replace(metric, '{PASS_K}', '')"
    yield f"create or replace macro is_measure(metric) as metric in ({', '.join(map(quoted, MEASURES))})"
    yield f"create or replace macro is_one_of(id, ids) as {_IS_ONE_OF}"
    yield "create or replace macro held_leases() as null::varchar[]"
    yield f"create or replace macro state_now(state, lease) as {_STATE_NOW}"
    yield f"create or replace macro higher_is_better(spec, metric) as {_HIGHER_IS_BETTER}"
    yield f"create or replace macro answered_by(kind, spec) as {_ANSWERED_BY}"
    yield f"create or replace macro factors_of(spec, target) as {_FACTORS_OF}"
    yield f"create or replace macro same_target(kind, version, other, application, other_application) as {_SAME_TARGET}"


def view_statement(path: Path) -> str:
    """Return the SQL that creates a view."""
    schema = "main" if is_mart(path) else "staging"
    return f"create or replace view {schema}.{path.stem} as {path.read_text(encoding='utf-8')}"


def view_statements(names: frozenset[str] | None = None) -> Iterator[str]:
    """Yield the SQL that creates the views of these names, which include those that they read; all but the user's own
    by default. The schemas `source` (a view per table) and `staging` must exist."""
    yield from macros()
    if names is None or "observations" in names:
        yield from attribute_macros()
    for path in _files(()):
        if names is None or path.stem in names:
            yield view_statement(path)
    if names is None or CHANGES_BETWEEN in names:
        yield f"create or replace macro {CHANGES_BETWEEN}(candidate, baseline) as table {_changes_between()}"


def own_views(names: frozenset[str] | None = None) -> list[Path]:
    """Return the files of the user's own marts, in order of dependency; of these names if given."""
    own = {mart.path for mart in own_marts(_taken()) if names is None or mart.path.stem in names}
    return [path for path in view_files() if path in own] if own else []


@cache
def _taken() -> frozenset[str]:
    """Return the names of our views and of what they read."""
    return frozenset({*TABLES, *(path.stem for path in SQL.rglob("*.sql")), CHANGES_BETWEEN})


@lru_cache(8)
def _files(own: tuple[OwnMart, ...]) -> list[Path]:
    marts = {path.stem: path for path in [*sorted((SQL / "marts").glob("*.sql")), *(mart.path for mart in own)]}
    reads = {name: _named(_without_comments(path)) & marts.keys() for name, path in marts.items()}
    try:
        order = [*TopologicalSorter(reads).static_order()]
    except CycleError as error:
        names: list[str] = error.args[1]
        path = next(marts[name] for name in names if is_own(marts[name]))
        raise InputError(f"{path}: got a circle, {' reads '.join(reversed(names))}, wanted none") from error
    return [*sorted((SQL / "staging").glob("*.sql")), *(marts[name] for name in order)]


@lru_cache(512)
def _views_of(sql: str, own: tuple[OwnMart, ...]) -> frozenset[str]:
    return _reached(_named(sql), _reads(own))


@lru_cache(8)
def _reads(own: tuple[OwnMart, ...]) -> Mapping[str, frozenset[str]]:
    """Return what each view names, but for the table of its own name."""
    return {name: _named(text) - {name} for name, text in _texts(own).items()}


@lru_cache(8)
def _texts(own: tuple[OwnMart, ...]) -> Mapping[str, str]:
    """Return the SQL of each view."""
    return {path.stem: _without_comments(path) for path in _files(own)} | {CHANGES_BETWEEN: _changes_between()}


@lru_cache(512)
def _reads_states(sql: str, own: tuple[OwnMart, ...]) -> bool:
    texts = _texts(own)
    return any(_WITH_STATES.search(text) for text in (sql, *(texts[name] for name in _views_of(sql, own))))


def _reached(names: frozenset[str], reads: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found = names & reads.keys()
    return found.union(*(_reached(reads[name], reads) for name in found))


def _without_comments(path: Path) -> str:
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


def _named(sql: str) -> frozenset[str]:
    found = re.findall(r"\b(?:from|join|pivot)\s+(?:(?:source|staging|main)\.)?(\w+)", sql, flags=re.IGNORECASE)
    return frozenset(name.lower() for name in found)


def _changes_between() -> str:
    """Return the text of `changes`, in which two of the views that it reads are replaced.

    DuckDB finds the files of experiments whose ids are constants, and would otherwise open all.
    """
    changes = (SQL / "marts" / "changes.sql").read_text(encoding="utf-8")
    return f"{_ONE_PAIR} from (\n{changes})"


_ONE_PAIR = """
with experiment_pairs as (
    select c.experiment_id as candidate_experiment_id, b.experiment_id as baseline_experiment_id, 'given' as relation,
           c.name as candidate, b.name as baseline, c.snapshot_id, b.snapshot_id as baseline_snapshot_id,
           c.repetitions, b.repetitions as baseline_repetitions,
           same_target(answered_by(c.target_kind, c.spec), c.target_version, b.target_version, c.application_version,
                       b.application_version) as same_target_version,
           c.spec
    from (from staging.experiments where experiment_id = candidate) c,
         (from staging.experiments where experiment_id = baseline) b
), run_values as (
    from main.run_values where experiment_id in (candidate, baseline)
)"""
