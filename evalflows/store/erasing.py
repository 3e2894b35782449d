"""Erasing the texts of examples, traces and people: what is selected, which rows are about it, and how they change.

From an example: its copies in other snapshots, its runs, their scores, judgements, calls and labels, the trace of a
run, and what judged a whole experiment that it is in. From a trace: its observations, scores, calls and labels, and
the examples that were made of it.

The file is written anew beside the old one and renamed, so readers see the one or the other.

Equal values of one erasure get equal markers, so that what compares texts (the examples that experiments share, changed
answers) comes to the same result as before. The key that makes them is deleted with the erasure's plan, so nobody can
try out which text a marker stood for.

The rows that named what to erase may be the first to lose their texts, so the plan has the keys of all rows.
"""

import hashlib
import json
import os
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evalflows.specs.attribute_aliases import FIELDS, Alias, OfResource, Source, Within
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.files import damaged, file_mode, row_groups_of, state_of, storage_errors, verify, write_file
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import name_file
from evalflows.store.packs import OWNERS_KEY
from evalflows.store.records import Json, derived_id, new_id, now, to_json
from evalflows.store.schemas import ATTRIBUTE, FIELD, MARKER, TABLES, columns_of, is_erased, schema_of
from evalflows.store.sql import ask
from evalflows.store.store import Store

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


FOLDER = "erasing"

Keys = Mapping[str, Sequence[Sequence[str]]]
"""Keys of rows, by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which rows an erasure changes, and what is recorded of it. Neither has texts or names."""

    erasure_id: str
    at: str
    secret: str
    kind: str  # of the selection
    selector_hash: str
    erased_by: str | None
    kept: Sequence[str] = ()
    keys: Keys = field(default_factory=dict)  # of rows about what is erased
    written: Keys = field(default_factory=dict)  # of rows that an erased person wrote
    owners: Sequence[str] = ()  # the experiments, comparisons and trace evaluations that they belong to
    leases: Mapping[str, str] = field(default_factory=dict)  # of those owners
    snapshots: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def day(self) -> str:
        return self.at[:10]

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)

    @property
    def recorded_at(self) -> datetime:
        return datetime.fromisoformat(self.at)


def new_plan(kind: str, selector_hash: str, erased_by: str | None, **fields: Any) -> Plan:
    """Return a plan with a new id and key."""
    at = now()
    return Plan(
        erasure_id=new_id("erasure", at),
        at=at.astimezone(UTC).isoformat(),
        secret=secrets.token_hex(32),
        kind=kind,
        selector_hash=selector_hash,
        erased_by=erased_by,
        **fields,
    )


def keep_plan(store: Store, plan: Plan) -> None:
    """Write a plan; in a folder, it is on disk when this returns. Raise StorageError if that fails."""
    path, content = _path(store.layout, plan.erasure_id), json.dumps(asdict(plan)).encode()
    with storage_errors(path):
        if store.layout.is_local:
            _write(Path(path), content, file_mode(Path(store.layout.root)))
        else:
            store.filesystem.pipe_file(path, content)


def remove_plan(store: Store, plan: Plan) -> None:
    """Remove a plan, and with it the key of its markers."""
    path = _path(store.layout, plan.erasure_id)
    with storage_errors(path):
        store.filesystem.rm_file(path)


def plans(store: Store) -> list[Plan]:
    """Return the plans of erasures that have not ended, the oldest first. Raise StorageError for a damaged one."""
    fs = store.filesystem
    fs.invalidate_cache()
    found = []
    for path in sorted(fs.glob(f"{store.layout.root}/{FOLDER}/*.json")):
        try:
            found.append(Plan(**json.loads(fs.cat_file(path))))
        except FileNotFoundError:  # the erasure has just ended
            continue
        except (ValueError, TypeError) as error:
            raise StorageError(f"{path}: cannot be read; delete it and erase again") from error
    return found


def _path(layout: Layout, identity: str) -> str:
    return f"{layout.root}/{FOLDER}/{identity}.json"


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Names of what is to be erased. All that any of them names is."""

    examples: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)  # values of fields of examples' metadata, all of which hold
    dataset: str | None = None  # only examples of its versions, and their copies elsewhere
    traces: Sequence[str] = ()
    sessions: Sequence[str] = ()
    users: Sequence[str] = ()
    reviewers: Sequence[str] = ()
    kept: Sequence[str] = ()  # fields of examples' metadata that stay

    def __post_init__(self) -> None:
        """Raise InputError if nothing is named."""
        if self.dataset is not None and not (self.examples or self.where):
            raise InputError("dataset: got no example or field of metadata, wanted one that says what to erase in it")
        if not self.kinds:
            raise InputError("got nothing to erase, wanted an example, a trace, a session, a user or a reviewer")

    @property
    def kinds(self) -> list[str]:
        named = {
            "example": self.examples,
            "where": self.where,
            "trace": self.traces,
            "session": self.sessions,
            "user": self.users,
            "reviewer": self.reviewers,
        }
        return [kind for kind, names in named.items() if names]

    @property
    def text(self) -> str:
        """All names, in one order."""
        lists = (self.examples, self.traces, self.sessions, self.users, self.reviewers)
        return to_json([*(sorted(names) for names in lists), sorted(self.where.items()), self.dataset])


def hashed(text: str, salt: bytes | None = None) -> str:
    """Return a salted hash that is slow to make, so that names cannot be found by trying many."""
    salt = secrets.token_bytes(16) if salt is None else salt
    digest = hashlib.scrypt(text.encode("utf-8", "surrogatepass"), salt=salt, n=1 << 14, r=8, p=1, dklen=32)
    return f"scrypt:{salt.hex()}:{digest.hex()}"


def is_of(text: str, selector_hash: str) -> bool:
    """Whether a hash was made of this text."""
    name, _, rest = selector_hash.partition(":")
    salt = rest.partition(":")[0]
    return name == "scrypt" and selector_hash == hashed(text, bytes.fromhex(salt))


Key = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Subjects:
    """The keys of rows by table, and what the rows belong to."""

    keys: dict[str, list[Key]] = field(default_factory=dict)
    written: dict[str, list[Key]] = field(default_factory=dict)  # by an erased person
    snapshots: set[str] = field(default_factory=set)
    experiments: set[str] = field(default_factory=set)  # of those snapshots
    owners: set[str] = field(default_factory=set)  # experiments, comparisons and trace evaluations with such rows
    leases: dict[str, str] = field(default_factory=dict)  # which whoever works on these owners holds


def subjects_of(store: Store, selection: Selection) -> Subjects:
    """Return what a selection names, from one consistent state of the store."""
    return store.steady(lambda: _Finder(store).of(selection))


def trace_rows(store: Store, traces: Iterable[str]) -> Subjects:
    """Return the rows about traces, without the examples that were made of them."""
    finder = _Finder(store)
    finder.add_traces(sorted(traces))
    return finder.found


class _Finder:
    """Follows texts from table to table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found = Subjects()
        self._runs: list[str] = []

    def of(self, selection: Selection) -> Subjects:
        traces = self._traces(selection)
        examples = {*self._named_examples(selection), *self._examples_of(traces)}
        self._add_examples(sorted(self._with_copies(examples)))
        self.add_traces(sorted({*traces, *self._traces_of_runs()}))
        self._add_reviewers([*selection.reviewers, *selection.users])  # whose feedback has their id
        return self.found

    def add_traces(self, traces: Sequence[str]) -> None:
        """Add the rows about traces and their sessions."""
        if not traces:
            return
        self._add(
            "observations", "select trace_id, span_id from source.observations where trace_id in (from wanted)", traces
        )
        sessions = self._ask(
            "select distinct session_id from staging.observations"
            " where trace_id in (from wanted) and session_id is not null",
            traces,
        )
        about = """(subject_kind in ('trace', 'observation') and split_part(subject_id, '/', 1) in (from wanted)
                     or subject_kind = 'session' and subject_id in (select unnest(?::varchar[])))"""
        names = [session for (session,) in sessions]
        for table, column in (("scores", "score_id"), ("labels", "label_id")):
            self._add(table, f"select {column} from source.{table} where {about}", traces, names)
        owners = self._ask(f"select distinct experiment_id from source.scores where {about}", traces, names)
        evaluations = {owner: name for (owner,) in owners if (name := evaluation_of(owner))}
        self.found.owners |= evaluations.keys()
        self.found.leases |= evaluations
        calls = """select call_id from source.calls where split_part(subject_id, '/', 1) in (from wanted)
                   or subject_id in (select unnest(?::varchar[]))"""
        self._add("calls", calls, traces, names)

    # what is named

    def _traces(self, selection: Selection) -> set[str]:
        found = set(selection.traces)
        for column, names in (("session_id", selection.sessions), ("user_id", selection.users)):
            if names:
                query = f"select distinct trace_id from staging.observations where {column} in (from wanted)"
                found |= {trace for (trace,) in self._ask(query, names)}
        return found

    def _named_examples(self, selection: Selection) -> list[Key]:
        if not (selection.examples or selection.where):
            return []
        named = ["example_id in (from wanted)"] if selection.examples else []
        paths: list[object] = []
        if selection.where:
            fields = ["json_extract_string(metadata, ?) = ?" for _ in selection.where]
            named.append(f"({' and '.join(fields)})")
            paths = [text for name, value in selection.where.items() for text in (_subjects_path(name), value)]
        within = "true"
        if selection.dataset is not None:
            within = "snapshot_id in (select snapshot_id from source.dataset_versions where name = ?)"
            paths.append(selection.dataset)
        return self._ask(
            f"select snapshot_id, example_id from source.examples where ({' or '.join(named)}) and {within}",
            selection.examples,
            *paths,
        )

    def _examples_of(self, traces: Iterable[str]) -> list[Key]:
        """Return the examples that were made of traces."""
        if not (traces := sorted(traces)):
            return []
        return self._ask(
            """select snapshot_id, example_id from source.examples
               where json_extract_string(metadata, '$.trace_id') in (from wanted)
                     or list_has_any(json_extract_string(metadata, '$.trace_ids[*]'), (select list(id) from wanted))""",
            traces,
        )

    def _with_copies(self, examples: Iterable[Key]) -> list[Key]:
        """Return the examples, and those of the same id and inputs in other snapshots."""
        if not (examples := sorted(examples)):
            return []
        return self._ask(
            f"""with {_EXAMPLES} select distinct other.snapshot_id, other.example_id
                from source.examples one semi join given g using (snapshot_id, example_id)
                join source.examples other on other.example_id = one.example_id and other.inputs = one.inputs""",
            [],
            *_columns(examples),
        )

    # what belongs to it

    def _add_examples(self, examples: Sequence[Key]) -> None:
        if not examples:
            return
        found = self.found
        found.keys["examples"] = [*examples]
        found.snapshots = {snapshot for snapshot, _ in examples}
        rows = self._ask(
            "select experiment_id, run_group, repetitions, snapshot_id from source.experiments"
            " where snapshot_id in (from wanted)",
            sorted(found.snapshots),
        )
        found.experiments = {experiment for experiment, *_ in rows}
        found.leases |= {experiment: group for experiment, group, *_ in rows}
        planned = {
            derived_id(experiment, example, repetition)  # also if the file of its outputs was lost
            for experiment, _, repetitions, snapshot in rows
            for of, example in examples
            if of == snapshot
            for repetition in range(repetitions)
        }
        self._add_runs(examples, planned)
        self._add_scores()
        self._add_comparisons()
        self._add_calls()
        self._add(
            "labels",
            "select label_id from source.labels where subject_id in (from wanted) or other_run_id in (from wanted)",
            self._runs,
        )
        checks = """select check_id from source.checks where subject_kind in ('snapshot', 'experiment', 'comparison')
                    and subject_id in (from wanted)"""
        self._add("checks", checks, sorted({*found.snapshots, *found.experiments, *found.owners}))
        self._add_reasons()
        found.owners |= found.experiments

    def _add_runs(self, examples: Sequence[Key], planned: set[str]) -> None:
        rows = self._ask(
            f"""with {_EXAMPLES}, runs as (
                    select o.run_id from source.outputs o join source.experiments e using (experiment_id)
                    semi join given g on g.snapshot_id = e.snapshot_id and g.example_id = o.example_id)
                from runs union select run_id from source.outputs where reused_from in (from runs)""",
            [],
            *_columns(examples),
        )
        self._runs = sorted({*planned, *(run for (run,) in rows)})
        self.found.keys["outputs"] = [(run,) for run in self._runs]

    def _add_scores(self) -> None:
        """Add the scores of the runs, and those of whole experiments that they are in."""
        self._add(
            "scores",
            """select score_id from source.scores where run_id in (from wanted) or subject_id in (from wanted)
               or run_id is null and experiment_id in (select unnest(?::varchar[]))""",
            self._runs,
            sorted(self.found.experiments),
        )

    def _add_comparisons(self) -> None:
        query = "from source.comparisons where left_run_id in (from wanted) or right_run_id in (from wanted)"
        self._add("comparisons", f"select judgement_id {query}", self._runs)
        comparisons = {identity for (identity,) in self._ask(f"select distinct comparison_id {query}", self._runs)}
        self.found.leases |= {identity: identity for identity in comparisons}
        self.found.owners |= comparisons

    def _add_reasons(self) -> None:
        """Add the experiments and comparisons that are incomplete for a reason that quotes an error."""
        for table, owner, sources in (
            ("experiments", "experiment_id", {"outputs": "run_id", "scores": "score_id"}),
            ("comparison_sets", "comparison_id", {"comparisons": "judgement_id"}),
        ):
            for source, key in sources.items():
                self._add(
                    table,
                    f"""select distinct whole.{owner} from source.{table} whole join source.{source} one using ({owner})
                        where one.{key} in (from wanted) and one.error <> '' and contains(whole.reason, one.error)""",
                    [identity for (identity,) in self.found.keys.get(source, ())],
                )

    def _add_calls(self) -> None:
        """Add the calls for the runs, the pairs and whole experiments, and others with the same requests."""
        others = self._others()
        comparisons = sorted(self.found.owners)
        query = """with about as (
                select * from source.calls
                where subject_id in (from wanted)
                      or experiment_id in (select unnest(?::varchar[]))
                         and (subject_id is null or subject_id not in (select unnest(?::varchar[]))))
            select call_id from source.calls
            where call_id in (select call_id from about) or call_key in (select call_key from about)"""
        self._add("calls", query, self._runs, sorted({*comparisons, *self.found.experiments}), others)

    def _others(self) -> list[str]:
        """Return the subjects of calls in the same experiments and comparisons that are about other examples."""
        runs = self._ask(
            """select run_id from source.outputs
               where experiment_id in (from wanted) and run_id not in (select unnest(?::varchar[]))""",
            sorted(self.found.experiments),
            self._runs,
        )
        pairs = self._ask(
            """select left_run_id, right_run_id, shown_first from source.comparisons
               where comparison_id in (from wanted) and left_run_id not in (select unnest(?::varchar[]))
                     and right_run_id not in (select unnest(?::varchar[]))""",
            sorted(self.found.owners),
            self._runs,
            self._runs,
        )
        return [*(run for (run,) in runs), *(derived_id(*pair) for pair in pairs)]

    def _traces_of_runs(self) -> set[str]:
        query = "select distinct trace_id from source.outputs where trace_id is not null and run_id in (from wanted)"
        return {trace for (trace,) in self._ask(query, self._runs)}

    def _add_reviewers(self, names: Sequence[str]) -> None:
        columns = {"labels": "labeller", "alerts": "acknowledged_by", "baselines": "approved_by"}
        keys = {"labels": "label_id", "alerts": "event_id", "baselines": "baseline_id"}
        for table, column in columns.items() if names else ():
            query = f"select {keys[table]} from source.{table} where {column} in (from wanted)"
            self.found.written[table] = self._ask(query, names)

    def _add(self, table: str, query: str, wanted: Sequence[str], *values: object) -> None:
        known = self.found.keys.setdefault(table, [])
        known += sorted({*self._ask(query, wanted, *values)} - {*known})

    def _ask(self, query: str, wanted: Sequence[str], *values: object) -> list[Any]:
        """Return the rows of a query about what is `wanted`, a table of one column, `id`."""
        head = "with wanted as (select unnest(?::varchar[]) as id)"
        whole = f"{head}, {query.lstrip()[5:]}" if query.lstrip().startswith("with ") else f"{head} {query}"
        (rows,) = ask(self._store, (whole, [list(wanted), *values]))
        return rows


_EXAMPLES = "given as (select unnest(?::varchar[]) as snapshot_id, unnest(?::varchar[]) as example_id)"


def _columns(examples: Sequence[Key]) -> tuple[list[str], list[str]]:
    return [snapshot for snapshot, _ in examples], [example for _, example in examples]


def _subjects_path(name: str) -> str:
    """Return the path of a field of metadata; dots lead into nested ones."""
    return "$" + "".join(f'."{part}"' for part in name.split("."))


def evaluation_of(owner: str | None) -> str | None:
    """Return the trace evaluation of the owner of a day's scores, which is its lease; None for another owner."""
    return owner[: -len("-2026-11-24")] if owner and owner.startswith("eval-") else None


FIGURES = ("drawn", "unmet_requirement")
"""Fields of metadata whose texts are no one's words, and which figures need."""

QUOTED = ("observed_value", "partial_unexpected_list")
"""What the checks of Great Expectations observed that may quote values."""

Row = Mapping[str, Any]
Rule = Callable[["Eraser", Any, Row], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """One erasure: its day, and the key of its markers. `kept` are fields of examples' metadata that stay."""

    day: str
    key: bytes
    kept: tuple[str, ...] = ()

    def marker(self, value: str) -> str:
        return f"(erased {self.day} #{self.digest(value, 6)})"

    def digest(self, value: str, size: int) -> str:
        return hashlib.blake2b(value.encode(), key=self.key, digest_size=size).hexdigest()

    def pseudonym(self, name: str) -> str:
        return name if _PSEUDONYM.fullmatch(name) else f"person-{self.digest(name, 6)}"

    def strings(self, value: Any) -> Any:
        """Return a JSON value whose texts are erased; numbers and the names of fields stay."""
        if isinstance(value, str):
            return value if MARKER.fullmatch(value) else f"(erased {self.day})"
        if isinstance(value, list):
            return [self.strings(element) for element in value]
        if isinstance(value, dict):
            return {name: one if name in FIGURES else self.strings(one) for name, one in value.items()}
        return value


_PSEUDONYM = re.compile(r"person-[0-9a-f]{12}")


def _whole(eraser: Eraser, value: Json, row: Row) -> Json:
    return value if is_erased(value) else to_json({FIELD: eraser.marker(value)})


def _metadata(eraser: Eraser, value: Json, row: Row) -> Json:
    if is_erased(value):
        return value
    given = json.loads(value)
    kept = {name: given[name] for name in eraser.kept if name in given} if isinstance(given, dict) else {}
    return to_json({**kept, FIELD: eraser.marker(value)})


def _text(eraser: Eraser, value: str, row: Row) -> str:
    return value if MARKER.fullmatch(value) else f"(erased {eraser.day})"


def _strings(eraser: Eraser, value: Json, row: Row) -> Json:
    erased = eraser.strings(given := json.loads(value))
    return value if erased == given else to_json(erased)


def _quotes(eraser: Eraser, value: Json, row: Row) -> Json:
    """Return what a check observed without the values that it quotes, which may be numbers."""
    given = json.loads(value)
    if not isinstance(given, dict):
        return value
    quoted = {name: _as_texts(given[name]) for name in QUOTED if name in given}
    return to_json({**given, **erased}) if (erased := eraser.strings(quoted)) != quoted else value


def _as_texts(value: Any) -> Any:
    return [str(one) for one in value] if isinstance(value, list) else value


def _quoting(eraser: Eraser, value: str, row: Row) -> str:
    """Return the message of a check, erased if the check quotes values."""
    quotes = row["observed"] is not None and _quotes(eraser, row["observed"], row) != row["observed"]
    return _text(eraser, value, row) if quotes else value


def _nothing(eraser: Eraser, value: object, row: Row) -> None:
    return None


def _call_key(eraser: Eraser, value: str, row: Row) -> str:
    """Return another key for a call: its own is a hash of the request."""
    return value if is_erased(row["request"]) else eraser.digest(value, 32)


def _not_reusable(eraser: Eraser, value: bool, row: Row) -> bool:
    return False


def _pseudonym(eraser: Eraser, value: str, row: Row) -> str:
    return eraser.pseudonym(value)


def _of_observation(column: str) -> Rule:
    def rule(eraser: Eraser, value: Json, row: Row) -> Json | None:
        texts = (row[name] for name in ("source", "attributes", "contents", "resource", "links"))
        return _observation(eraser, *texts)[column]

    return rule


@lru_cache(maxsize=1)  # for the four columns of one row
def _observation(
    eraser: Eraser, source: Source, attributes: Json, contents: Json | None, resource: Json | None, links: Json | None
) -> Mapping[str, Json | None]:
    given = {"attributes": attributes, "contents": contents, "resource": resource, "links": links}
    return without_texts(source, given, eraser.day, eraser.marker)


_ERRORS: Mapping[str, Rule] = {"error": _text, "error_trace": _text}

OF_SUBJECTS: Mapping[str, Mapping[str, Rule]] = {
    "examples": {"inputs": _whole, "reference_outputs": _whole, "metadata": _metadata, "attachments": _whole},
    "outputs": {"outputs": _whole, "steps": _whole, **_ERRORS},
    "scores": {"comment": _text, "metadata": _strings, **_ERRORS},
    "comparisons": {"comment": _text, "metadata": _strings, **_ERRORS},
    "calls": {
        "request": _whole,
        "response": _whole,
        "error": _text,
        "call_key": _call_key,
        "reusable": _not_reusable,
    },
    "labels": {"comment": _text, "metadata": _strings},
    "experiments": {"reason": _text},  # if it quotes an error
    "comparison_sets": {"reason": _text},
    "checks": {"observed": _quotes, "message": _quoting},
    "observations": {
        "status_message": _text,
        "resource": _of_observation("resource"),
        "attributes": _of_observation("attributes"),
        "contents": _of_observation("contents"),
        "events": _nothing,
        "links": _of_observation("links"),
    },
}
"""What becomes of the columns of rows about what is erased. All others are figures, statuses, ids and versions."""

OF_PEOPLE: Mapping[str, Mapping[str, Rule]] = {
    "labels": {"labeller": _pseudonym, "comment": _text},
    "alerts": {"acknowledged_by": _pseudonym, "note": _text},
    "baselines": {"approved_by": _pseudonym, "reason": _text},
}
"""The same for rows that the erased person wrote."""

READ_TOO: Mapping[str, tuple[str, ...]] = {"observations": ("source",)}
"""Columns that the rules of a table read beside their own."""


ERASED_KEY = b"evalflows.erased"
"""The key, in a file's metadata, of the day on which texts in it were erased last."""


class FileEraser:
    """Erases the texts of a plan's rows, in one file after another."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._plan = store, plan
        self._eraser = Eraser(day=plan.day, key=plan.key, kept=tuple(plan.kept))
        self._wanted = [
            (rules[table], table, _joined_keys(keys))
            for rules, by_table in ((OF_SUBJECTS, plan.keys), (OF_PEOPLE, plan.written))
            for table, keys in by_table.items()
            if keys
        ]

    @property
    def tables(self) -> frozenset[str]:
        """The tables that have rows of the plan."""
        return frozenset(table for _, table, _ in self._wanted)

    def count(self, file: StoredFile) -> int:
        """Return how many rows of a file have texts to erase.

        Raise StorageError if it is damaged, and FileNotFoundError if it has gone.
        """
        with self._opened(file) as parquet:
            if not self._may_have(parquet, file):
                return 0
            return sum(int(changed.sum()) for _, changed in self._groups(parquet, file))

    def erase(self, file: StoredFile) -> None:
        """Write a file without the texts, if it has any. Raise the same, and StorageError if it cannot be written."""
        if not self.count(file):
            return
        layout, fs = self._store.layout, self._store.filesystem
        with self._opened(file) as parquet:
            given = parquet.metadata.metadata or {}
            metadata = {ERASED_KEY: self._plan.day.encode()}
            metadata |= {OWNERS_KEY: given[OWNERS_KEY]} if file.is_packed else {}
            groups = (rows for rows, _ in self._groups(parquet, file))
            schema = schema_of(TABLES[file.table].record)
            with storage_errors(file.path):
                write_file(
                    layout,
                    fs,
                    file.path,
                    schema,
                    groups,
                    metadata,
                    regroup=file.table != "examples",  # their readers know where the row groups begin
                    replaces=True,
                    before=partial(name_file, layout, fs),
                )

    def _groups(self, parquet: pq.ParquetFile, file: StoredFile) -> Iterator[tuple[pa.Table, np.ndarray[Any, Any]]]:
        """Yield the row groups of a file without texts, and which of their rows this changes."""
        for rows in _row_groups(parquet, file):
            changed = np.zeros(rows.num_rows, bool)
            for rules, table, keys in self._wanted:
                if table == file.table:
                    numbers = np.flatnonzero(np.asarray(pc.is_in(_keys(table, rows), value_set=keys)))
                    rows, done = self._without(table, rows, numbers, rules)
                    changed[done] = True
            yield rows, changed

    def _without(
        self, table: str, rows: pa.Table, numbers: np.ndarray[Any, Any], rules: Mapping[str, Rule]
    ) -> tuple[pa.Table, list[int]]:
        """Return rows, and the numbers of those of `numbers` that changed."""
        if not len(numbers):
            return rows, []
        read = [*rules, *(name for name in READ_TOO.get(table, ()))]
        given = rows.select(read).take(numbers).to_pylist()
        new = [
            {name: None if row[name] is None else rule(self._eraser, row[name], row) for name, rule in rules.items()}
            for row in given
        ]
        for name in rules:
            if any(row[name] != one[name] for row, one in zip(given, new, strict=True)):
                rows = _replaced(rows, name, numbers, [one[name] for one in new])
        changed = [any(row[name] != one[name] for name in rules) for row, one in zip(given, new, strict=True)]
        return rows, [int(number) for number, is_changed in zip(numbers, changed, strict=True) if is_changed]

    def _may_have(self, parquet: pq.ParquetFile, file: StoredFile) -> bool:
        """Whether a file has any row of the plan, by its keys alone."""
        rows = parquet.read(columns=list(TABLES[file.table].key))
        found = _keys(file.table, rows)
        return any(
            pc.any(pc.is_in(found, value_set=keys)).as_py() for _, table, keys in self._wanted if table == file.table
        )

    @contextmanager
    def _opened(self, file: StoredFile) -> Iterator[pq.ParquetFile]:
        layout, fs = self._store.layout, self._store.filesystem
        verify(fs, file.path, state_of(layout, fs, file.path))
        with fs.open(file.path, "rb") as opened:
            yield pq.ParquetFile(opened)


def _row_groups(parquet: pq.ParquetFile, file: StoredFile) -> Iterator[pa.Table]:
    try:
        yield from row_groups_of(parquet, file.table, columns_of(file.table))
    except (pa.ArrowException, ValueError) as error:  # a file without a checksum
        raise damaged(file.path, " ".join(str(error).split())[:120]) from error


def _replaced(rows: pa.Table, name: str, numbers: np.ndarray[Any, Any], values: Sequence[object]) -> pa.Table:
    """Return rows with other values of a column in some of them."""
    place = rows.schema.get_field_index(name)
    field, mask = rows.schema.field(place), np.zeros(rows.num_rows, bool)
    mask[numbers] = True
    column = pc.replace_with_mask(rows.column(place).combine_chunks(), pa.array(mask), pa.array(values, field.type))
    return rows.set_column(place, field, column)


def _keys(table: str, rows: pa.Table) -> pa.Array:
    """Return the keys of rows, each as one text."""
    columns = [rows.column(name).combine_chunks() for name in TABLES[table].key]
    return pc.binary_join_element_wise(*columns, _BETWEEN)


def _joined_keys(keys: Sequence[Sequence[str]]) -> pa.Array:
    return pa.array([_BETWEEN.join(key) for key in keys], pa.string())


_BETWEEN = "\x1f"


def refuse_erased(store: Store, snapshot: str) -> None:
    """Raise InputError if texts of a snapshot's examples were erased, or are at this moment.

    Of a snapshot without erased examples, only the end of its file is read.
    """
    for plan in plans(store):
        if snapshot in plan.snapshots:
            raise InputError(
                f"snapshot {snapshot}: examples of it are being erased; `evalflows forget --finish` finishes it"
            )
    if names := erased_examples(store, snapshot):
        raise refused_without_texts(f"snapshot {snapshot}", names)


def refused_without_texts(where: str, names: Sequence[str]) -> InputError:
    """Return the error for examples that were erased."""
    listed = f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
    what = "an erased example" if len(names) == 1 else f"{len(names)} erased examples"
    return InputError(f"{where}: got {what} ({listed}), wanted texts to answer or judge; leave them out of the dataset")


def erased_examples(store: Store, snapshot: str) -> list[str]:
    """Return the ids of a snapshot's erased examples. Raise StorageError if its file cannot be read."""
    path = store.layout.sealed("examples", snapshot)
    with storage_errors(path), store.filesystem.open(path, "rb") as file:
        try:
            parquet = pq.ParquetFile(file)
            if ERASED_KEY not in (parquet.metadata.metadata or {}):
                return []
            rows = parquet.read(columns=["example_id", "inputs"])
        except (pa.ArrowException, ValueError) as error:
            raise StorageError(f"{path}: {' '.join(str(error).split())[:120]}") from error
    ids, inputs = (rows.column(name).to_pylist() for name in ("example_id", "inputs"))
    return [name for name, text in zip(ids, inputs, strict=True) if is_erased(text)]
