"""Erasing the texts of examples, traces and people: where texts stand, which rows are selected, and how they change.

From an example: its copies in other snapshots, its runs, their scores, judgements, calls and labels, the trace of a
run, and what judged a whole experiment that it is in. From a trace: its observations, scores, calls and labels, and
the examples that were made of it.
"""

# The file is written anew beside the old one and renamed, so readers see the one or the other.
#
# Equal values of one erasure get equal markers, so that what compares texts (the examples that experiments share,
# changed answers, judges with people) comes to the same result as before. The key that makes them is deleted with the
# erasure's plan, so nobody can try out which text a marker stood for.
#
# The rows that named what to erase may be the first to lose their texts, so the plan has the keys of all rows.

from __future__ import annotations  # types of libraries that are imported when first used

import hashlib
import json
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import Any, Literal

from evalflows.specs import hints
from evalflows.specs.attribute_aliases import FIELDS, Alias, OfResource, Source, Within
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.arrow import np, pa, pc, pq
from evalflows.store.checksums import verify
from evalflows.store.file_states import state_of
from evalflows.store.file_systems import storage_errors
from evalflows.store.files import open_parquet, row_groups_of, write_bytes, write_file
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import name_file
from evalflows.store.packs import OWNERS_KEY
from evalflows.store.records import Json, derived_id, new_id, now, to_json
from evalflows.store.schemas import ATTRIBUTE, FIELD, MARKER, TABLES, columns_of, is_erased, schema_of
from evalflows.store.sql import ask
from evalflows.store.store import Store

FIGURES = ("drawn", "drawn_from", "unmet_requirement")
"""Fields of metadata whose texts are no one's words, and which figures need."""

QUOTED = ("observed_value", "partial_unexpected_list")
"""What the checks of Great Expectations observed that may quote values."""

ASKED_OR_ANSWERED = ("input", "output")
"""Fields of an observation that are texts."""

PERSONAL = ("user_id", "tags")
"""Fields of an observation that go without a trace: applications put people's names into both."""

_PSEUDONYM = re.compile(r"person-[0-9a-f]{12}")

Row = Mapping[str, Any]

Why = Literal["about", "written", "labelled"]
"""Why a row loses texts: it is about what is erased, an erased person wrote it, or, of a row of the one or the other,
its label is free text."""

READ_TOO: Mapping[str, tuple[str, ...]] = {"observations": ("source",)}
"""Columns that the rules of a table read beside their own."""

STAY: Mapping[str, str] = {
    "snapshots": "splits",
    "dataset_versions": "name parent_snapshot_id source description metadata",
    "attachments": "media_type content",  # removed as a whole when no example refers to it
    "examples": "split cluster",
    "experiments": "run_key name description metadata tags dataset_name target target_kind target_version target_code"
    " application_version evaluators spec git_commit git_branch evalflows_version flow_run_id",
    "outputs": "error_kind reused_from trace_id application_version",
    "judgements": "subject_id left_experiment_id right_experiment_id left_run_id right_run_id metric error_kind"
    " evaluator evaluator_version declared_version config_id judge_model prompt_hash decided_by mapper_version",
    "sentinels": "run_id metric evaluator evaluator_version snapshot_id error_kind judge_model",
    "resamples": "metric evaluator evaluator_version",
    "classified": "run_id evaluator evaluator_version",
    "comparison_sets": "run_key name description metadata tags experiments baseline_experiment_id snapshot_ids"
    " evaluators spec order_rule failed_output_policy git_commit git_branch evalflows_version flow_run_id",
    "ratings": "metric method slice settings reason",
    "estimates": "metric evaluator_version slice method reason",
    "verdicts": "metric slice candidate_experiment_id baseline_experiment_id adjustment method reason warning settings",
    "decisions": "gate candidate_experiment_id baseline_experiment_id summary reasons policy comparability flow_run_id"
    " git_commit evalflows_version",
    "baselines": "name",
    "calls": "subject_id evaluator connection base_url model answered_by system_fingerprint finish_reason error_kind"
    " provider_request_id batch_id",
    "labels": "subject_id other_run_id metric source",
    "checks": "subject_id name column_name expected flow_run_id",
    "limits": "connection process",
    "observations": "parent_id name kind scope",
    "watermarks": "name filter evaluators spec until_id resumed_from reason evalflows_version flow_run_id",
    "watched_windows": "rule kind metric slice evaluator_version size flow_run_id",
    "alerts": "name rule kind metric slice evaluator_version text flow_run_id",
    "erasures": "kind selector_hash erased_by rows snapshots owners kept",
}
"""The columns of texts that stay, besides keys and owners of tables: ids, hashes, versions, names of what is evaluated,
what its team wrote into specs, and sentences that are made of figures."""

Keys = Mapping[str, Sequence[Sequence[str]]]
"""Keys of rows, by table."""

_ABOUT_TRACES = """(subject_kind in ('trace', 'observation') and split_part(subject_id, '/', 1) in @traces
                    or subject_kind = 'session' and subject_id in @sessions)"""

_MADE_OF_TRACES = """json_extract_string(metadata, '$.trace_id') in @traces
                     or list_has_any(json_extract_string(metadata, '$.trace_ids[*]'), $traces::varchar[])"""

_QUOTES = "one.error <> '' and contains(whole.reason, one.error)"

_ROWS = {
    "judgements": f"""select judgement_id from source.judgements
        where run_id in @runs or subject_id in @runs or left_run_id in @runs or right_run_id in @runs
              or run_id is null and experiment_id in @experiments or {_ABOUT_TRACES}""",
    # those for the runs, pairs and whole experiments, and others with the same requests
    "calls": """with about as (
            select * from source.calls
            where subject_id in @runs or experiment_id in @owners and (subject_id is null or subject_id not in @others))
        select call_id from source.calls
        where call_id in (select call_id from about) or call_key in (select call_key from about)
              or split_part(subject_id, '/', 1) in @traces or subject_id in @sessions""",
    "labels": f"""select label_id from source.labels
        where subject_id in @runs or other_run_id in @runs or {_ABOUT_TRACES}""",
    "checks": """select check_id from source.checks
        where subject_kind in ('snapshot', 'experiment', 'comparison')
              and (subject_id in @owners or subject_id in @snapshots)""",
    "experiments": f"""select distinct whole.experiment_id from source.experiments whole
        join source.outputs one using (experiment_id) where one.run_id in @runs and {_QUOTES}
        union select whole.experiment_id from source.experiments whole
        join source.judgements one using (experiment_id) where one.judgement_id in @judgements and {_QUOTES}""",
    "comparison_sets": f"""select distinct whole.comparison_id from source.comparison_sets whole
        join source.judgements one on one.experiment_id = whole.comparison_id
        where one.judgement_id in @judgements and {_QUOTES}""",
    "classified": "select classified_id from source.classified where run_id in @runs",
    "observations": "select trace_id, span_id from source.observations where trace_id in @traces",
}
"""The keys of rows about the runs, traces and sessions that are erased, in an order in which each query has what it
reads: `@runs` are the ids that were found before."""

_WRITTEN = {
    "labels": "select label_id from source.labels where labeller in @people",
    "alerts": "select event_id from source.alerts where acknowledged_by in @people",
    "baselines": "select baseline_id from source.baselines where approved_by in @people",
}

_LABELS = """select 'judgements' as place, judgement_id as id, metric, label from source.judgements
             where label is not null
             union all select 'labels', label_id, metric, label from source.labels where label is not null"""

_RUNS = """with runs as (
        select o.run_id from source.outputs o join source.experiments e using (experiment_id)
        semi join (select unnest($of::varchar[]) as snapshot_id, unnest($ids::varchar[]) as example_id) example
             on example.snapshot_id = e.snapshot_id and example.example_id = o.example_id)
    from runs union select run_id from source.outputs where reused_from in (from runs)"""

_COMPARISONS = """select distinct comparison_id from staging.comparisons
    where left_run_id in @runs or right_run_id in @runs"""

_OTHER_RUNS = """select run_id from source.outputs
    where experiment_id in @experiments and run_id not in @runs"""

_OTHER_PAIRS = """select left_run_id, right_run_id, shown_first from staging.comparisons
    where comparison_id in @owners and left_run_id not in @runs and right_run_id not in @runs"""

_TRACES_OF_RUNS = "select distinct trace_id from source.outputs where trace_id is not null and run_id in @runs"

_OWNERS = f"select distinct experiment_id from source.judgements where {_ABOUT_TRACES}"

_SESSIONS = """select distinct session_id from staging.observations
    where trace_id in @traces and session_id is not null order by 1"""

FOLDER = "erasing"

ERASED_KEY = b"evalflows.erased"
"""The key, in a file's metadata, of the day on which texts in it were erased last."""

_BETWEEN = "\x1f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """One erasure: its day, the key of its markers, and the fields of examples' metadata that stay.

    The methods that take a value and its row return what becomes of a column that is not null. Done again, they change
    nothing.
    """

    day: str
    key: bytes
    kept: tuple[str, ...] = ()

    def digest(self, value: str, size: int) -> str:
        return hashlib.blake2b(value.encode(), key=self.key, digest_size=size).hexdigest()

    def marker(self, value: str) -> str:
        return f"(erased {self.day} #{self.digest(value, 6)})"

    def strings(self, value: Any) -> Any:
        """Return a JSON value whose texts are erased; numbers and the names of fields stay."""
        if isinstance(value, str):
            return value if MARKER.fullmatch(value) else f"(erased {self.day})"
        if isinstance(value, list):
            return [self.strings(element) for element in value]
        if isinstance(value, dict):
            return {name: element if name in FIGURES else self.strings(element) for name, element in value.items()}
        return value

    def text(self, value: str, row: Row) -> str:
        return value if MARKER.fullmatch(value) else f"(erased {self.day})"

    def label(self, value: str, row: Row) -> str:
        return value if MARKER.fullmatch(value) else self.marker(value)

    def name(self, value: str, row: Row) -> str:
        return value if _PSEUDONYM.fullmatch(value) else f"person-{self.digest(value, 6)}"

    def nothing(self, value: object, row: Row) -> None:
        return None

    def whole(self, value: Json, row: Row) -> Json:
        return value if is_erased(value) else to_json({FIELD: self.marker(value)})

    def texts_in(self, value: Json, row: Row) -> Json:
        erased = self.strings(given := json.loads(value))
        return value if erased == given else to_json(erased)

    def example_metadata(self, value: Json, row: Row) -> Json:
        if is_erased(value):
            return value
        given = json.loads(value)
        kept = {name: given[name] for name in self.kept if name in given} if isinstance(given, dict) else {}
        return to_json({**kept, FIELD: self.marker(value)})

    def call_key(self, value: str, row: Row) -> str:
        """Return another key for a call: its own is a hash of the request."""
        return value if is_erased(row["request"]) else self.digest(value, 32)

    def reusable(self, value: bool, row: Row) -> bool:
        return False

    def quotes(self, value: Json, row: Row) -> Json:
        """Return what a check observed without the values that it quotes, which may be numbers."""
        given = json.loads(value)
        if not isinstance(given, dict):
            return value
        if "search" in given:
            erased = self.slices(given)
            return value if erased == given else to_json(erased)
        found = {name: given[name] for name in QUOTED if name in given}
        quoted = {name: [str(item) for item in of] if isinstance(of, list) else of for name, of in found.items()}
        return to_json({**given, **erased}) if (erased := self.strings(quoted)) != quoted else value

    def slices(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a search of slices without the values of fields, which are in the names and conditions of slices."""

        def unnamed(sliced: Mapping[str, Any]) -> dict[str, Any]:
            name = sliced["slice"]
            return {**sliced, "slice": name if MARKER.fullmatch(name) else self.marker(name), "where": ""}

        search = given["search"]
        return {
            "search": {**search, "found": [*map(unnamed, search["found"])]},
            "slices": [*map(unnamed, given["slices"])],
        }

    def quoting(self, value: str, row: Row) -> str:
        """Return the message of a check, erased if the check quotes values."""
        quotes = row["observed"] is not None and self.quotes(row["observed"], row) != row["observed"]
        return self.text(value, row) if quotes else value

    def confused(self, value: Json, row: Row) -> Json:
        """Return what compared a judge with people, without the labels of its table; the counts stay."""
        given = json.loads(value)
        labels = [self.label(label, row) for label in given["confusion"]["labels"]]
        return to_json({**given, "confusion": {**given["confusion"], "labels": labels}})


@lru_cache(maxsize=1)  # for the four columns of one row
def _observation(
    eraser: Eraser, source: Source, attributes: Json, contents: Json | None, resource: Json | None, links: Json | None
) -> Mapping[str, Json | None]:
    given = {"attributes": attributes, "contents": contents, "resource": resource, "links": links}
    return without_texts(source, given, eraser.day, eraser.marker)


Rule = Callable[[Eraser, Any, Row], Any]


def _of_observation(column: str) -> Rule:
    """Return the rule for a column of an observation that has attributes."""

    def rule(eraser: Eraser, value: Json, row: Row) -> Json | None:
        texts = (row[name] for name in ("source", "attributes", "contents", "resource", "links"))
        return _observation(eraser, *texts)[column]

    return rule


_ERRORS: Mapping[str, Rule] = {"error": Eraser.text, "error_trace": Eraser.text}
ERASED: Mapping[Why, Mapping[str, Mapping[str, Rule]]] = {
    "about": {
        "examples": {
            **dict.fromkeys(("inputs", "reference_outputs", "attachments"), Eraser.whole),
            "metadata": Eraser.example_metadata,
        },
        "outputs": {"outputs": Eraser.whole, "steps": Eraser.whole, **_ERRORS},
        "judgements": {"comment": Eraser.text, "metadata": Eraser.texts_in, **_ERRORS},
        "calls": {
            "request": Eraser.whole,
            "response": Eraser.whole,
            "error": Eraser.text,
            "call_key": Eraser.call_key,
            "reusable": Eraser.reusable,
        },
        "labels": {"comment": Eraser.text, "metadata": Eraser.texts_in},
        "classified": {"expected": Eraser.label, "got": Eraser.label},
        "experiments": {"reason": Eraser.text},  # if it quotes an error
        "comparison_sets": {"reason": Eraser.text},
        "checks": {"observed": Eraser.quotes, "message": Eraser.quoting},
        "observations": {
            "status_message": Eraser.text,
            "events": Eraser.nothing,
            **{name: _of_observation(name) for name in ("resource", "attributes", "contents", "links")},
        },
    },
    "written": {
        "labels": {"labeller": Eraser.name, "comment": Eraser.text},
        "alerts": {"acknowledged_by": Eraser.name, "note": Eraser.text},
        "baselines": {"approved_by": Eraser.name, "reason": Eraser.text},
    },
    "labelled": {
        "judgements": {"label": Eraser.label},
        "labels": {"label": Eraser.label},
        "checks": {"observed": Eraser.confused},
    },
}
"""Every column in which a text of an example, a trace or a person can stand, by why and table, and what becomes of it.
All columns of texts that are not here are in STAY."""


def without_texts(
    source: Source, row: Mapping[str, Json | None], day: str, marker: Callable[[str], str]
) -> Mapping[str, Json | None]:
    """Return the columns of an observation that have attributes, without texts. Erased ones stay as they are."""
    given = _mapping(row["attributes"])
    if ATTRIBUTE in given:
        return row
    stays, kept = _staying(source), {}
    for name, value in {**given, **_mapping(row["contents"])}.items():
        if name in stays.names:
            kept[name] = value
            continue
        left: dict[str, Any] = {}
        for keys in stays.paths.get(name, ()):
            _copy_at(keys, _mapping(value), left)
        if name in stays.texts:
            mark = marker(value if isinstance(value, str) else to_json(value))
            kept[name] = {**left, FIELD: mark} if left else mark
        elif left:
            kept[name] = left
    resource, links = row["resource"], row["links"]
    if resource is not None:
        resource = to_json({name: value for name, value in _mapping(resource).items() if name in stays.resource})
    if links is not None:
        every = [link for link in json.loads(links) if isinstance(link, dict)]
        links = to_json([{name: link[name] for name in ("trace_id", "span_id") if name in link} for link in every])
    return {"resource": resource, "attributes": to_json({**kept, ATTRIBUTE: day}), "contents": None, "links": links}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staying:
    """The attributes of a source that stay; of others, the paths within that do."""

    texts: frozenset[Alias]
    names: frozenset[Alias]
    paths: Mapping[str, Sequence[tuple[str, ...]]]
    resource: frozenset[str]  # of the process


@cache
def _staying(source: Source) -> _Staying:
    every = {name: by.get(source, ()) for name, by in FIELDS.items()}
    texts = frozenset(alias for name in ASKED_OR_ANSWERED for alias in every[name])
    left = [alias for name, of in every.items() if name not in (*ASKED_OR_ANSWERED, *PERSONAL) for alias in of]
    paths = grouped((alias.attribute, alias.keys) for alias in left if isinstance(alias, Within))
    return _Staying(
        texts=texts,
        names=frozenset(alias for alias in left if isinstance(alias, str)) - texts,
        paths=paths,
        resource=frozenset(alias.attribute for of in every.values() for alias in of if isinstance(alias, OfResource)),
    )


def _copy_at(keys: tuple[str, ...], given: Any, left: dict[str, Any]) -> None:
    """Copy the value at a path, if there is one."""
    for key in keys:
        if not isinstance(given, Mapping) or key not in given:
            return
        given = given[key]
    for key in keys[:-1]:
        left = left.setdefault(key, {})
    left[keys[-1]] = given


def _mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object, given as itself or as text; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


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
            raise InputError("dataset: got no example or field of metadata, wanted one to select what to erase")
        if not self.kind:
            raise InputError("got nothing to erase, wanted an example, a trace, a session, a user or a reviewer")

    @property
    def kind(self) -> str:
        """What is named, such as `example+user`."""
        named = {"example": self.examples, "where": self.where, "trace": self.traces, "session": self.sessions}
        named |= {"user": self.users, "reviewer": self.reviewers}
        return "+".join(kind for kind, names in named.items() if names)

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
    """Return whether a hash was made of this text."""
    name, _, rest = selector_hash.partition(":")
    return name == "scrypt" and selector_hash == hashed(text, bytes.fromhex(rest.partition(":")[0]))


@dataclass(slots=True, kw_only=True)
class Subjects:
    """The rows that lose texts, and what they belong to."""

    keys: dict[Why, Keys] = field(default_factory=dict)
    snapshots: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # experiments, comparisons and trace evaluations with such rows
    leases: dict[str, str] = field(default_factory=dict)  # which whoever works on these owners holds


def subjects_of(store: Store, selection: Selection) -> Subjects:
    """Return what a selection names, from one consistent state of the store."""
    return store.steady(lambda: _Finder(store).named(selection))


def trace_rows(store: Store, traces: Iterable[str]) -> Subjects:
    """Return the rows about traces, without the examples that were made of them."""
    return _Finder(store, traces=sorted(traces)).found()


_LABELLED = f"""
    with every as ({_LABELS}),
    ours as (from every where place = 'judgements' and id in @judgements or place = 'labels' and id in @labels),
    free as (
        from ours anti join (from every anti join ours using (place, id)) others using (metric, label)
        where not exists (
            from source.experiments where experiment_id in @experiments and contains(spec, to_json(label)::varchar)))
    select place, id from free where not starts_with(label, '(erased ')
    union select 'checks', check_id from source.checks where subject_kind = 'judge' and list_has_any(
        json_extract_string(observed, '$.confusion.labels[*]'), (select coalesce(list(label), []) from free))"""
"""The rows whose label is free text: no spec of theirs has it, nor a row of the metric that is about something else.
Then the tables of judges and people that show it."""


class _Finder:
    """Follows texts from table to table. `known` are lists of ids by what they are of."""

    def __init__(self, store: Store, **known: Sequence[str]) -> None:
        self._store = store
        self._known: defaultdict[str, Sequence[str]] = defaultdict(list, known)
        self._examples: Sequence[Sequence[str]] = []
        self._leases: dict[str, str] = {}

    def named(self, selection: Selection) -> Subjects:
        known = self._known
        known["people"] = [*selection.reviewers, *selection.users]  # whose feedback has their id
        known["traces"] = self._traces_of(selection)
        if selection.examples or selection.where or known["traces"]:
            self._follow_examples(selection)
        found = self.found()
        rows = self._ask(_LABELLED) if known["judgements"] or known["labels"] else []
        found.keys["labelled"] = {table: [(key,) for of, key in rows if of == table] for table, _ in rows}
        return found

    def found(self) -> Subjects:
        """Return the rows about the known runs and traces, and those that the known people wrote."""
        known = self._known
        known["traces"] = sorted({*known["traces"], *self._ids(_TRACES_OF_RUNS)}) if known["runs"] else known["traces"]
        known["sessions"] = self._ids(_SESSIONS) if known["traces"] else []
        about: dict[str, Sequence[Sequence[str]]] = {"examples": self._examples}
        about["outputs"] = [(run,) for run in known["runs"]]
        for table, query in _ROWS.items() if known["runs"] or known["traces"] or known["snapshots"] else ():
            about[table] = sorted({*self._ask(query)})
            known.setdefault(table, [key[0] for key in about[table]])
        written = {table: self._ask(query) for table, query in _WRITTEN.items() if known["people"]}
        known["labels"] = [key for (key, *_) in (*about.get("labels", ()), *written.get("labels", ()))]
        owners = self._ids(_OWNERS) if known["traces"] else []
        self._leases |= {owner: name for owner in owners if (name := evaluation_of(owner))}
        return Subjects(
            keys={"about": about, "written": written},
            snapshots=[*known["snapshots"]],
            owners=sorted({*known["owners"], *self._leases}),
            leases=self._leases,
        )

    def _traces_of(self, selection: Selection) -> list[str]:
        found = {*selection.traces}
        for column, names in (("session_id", selection.sessions), ("user_id", selection.users)):
            if names:
                query = f"select distinct trace_id from staging.observations where {column} in @names"
                found |= {*self._ids(query, names=names)}
        return sorted(found)

    def _follow_examples(self, selection: Selection) -> None:
        """Find the examples, their experiments and comparisons, and what is called for others in these."""
        known, fields = self._known, [*selection.where.items()]
        paths = {f"path{n}": _path_of(name) for n, (name, _) in enumerate(fields)}
        values = {f"value{n}": value for n, (_, value) in enumerate(fields)}
        equal = " and ".join(f"json_extract_string(metadata, $path{n}) = $value{n}" for n, _ in enumerate(fields))
        named = f"({' or '.join(filter(None, ['example_id in @examples', equal and f'({equal})']))})"
        if selection.dataset is not None:
            named += " and snapshot_id in (select snapshot_id from source.dataset_versions where name = $dataset)"
        if known["traces"]:
            named += f" or {_MADE_OF_TRACES}"
        of = {"examples": selection.examples, "dataset": selection.dataset, **paths, **values}
        self._examples = self._ask(  # with copies: the same id and inputs in other snapshots
            f"""select distinct other.snapshot_id, other.example_id from source.examples other
                semi join (from source.examples where {named}) one using (example_id, inputs) order by all""",
            **of,
        )
        known["snapshots"] = sorted({snapshot for snapshot, _ in self._examples})
        known["of"], known["ids"] = ([key[n] for key in self._examples] for n in (0, 1))
        rows = self._ask(
            """select experiment_id, run_group, repetitions, snapshot_id from source.experiments
               where snapshot_id in @snapshots"""
        )
        known["experiments"] = sorted(experiment for experiment, *_ in rows)
        self._leases |= {experiment: group for experiment, group, *_ in rows}
        ids = {snapshot: [e for of, e in self._examples if of == snapshot] for snapshot in known["snapshots"]}
        planned = {  # also if the file of its outputs was lost
            derived_id(experiment, example, repetition)
            for experiment, _, repetitions, snapshot in rows
            for example in ids[snapshot]
            for repetition in range(repetitions)
        }
        known["runs"] = sorted({*planned, *self._ids(_RUNS)})
        comparisons = self._ids(_COMPARISONS)
        self._leases |= {comparison: comparison for comparison in comparisons}
        known["owners"] = sorted({*known["experiments"], *comparisons})
        pairs = self._ask(_OTHER_PAIRS)
        known["others"] = [*self._ids(_OTHER_RUNS), *(derived_id(*pair) for pair in pairs)]

    def _ids(self, query: str, **values: object) -> list[str]:
        return [row[0] for row in self._ask(query, **values)]

    def _ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query, in which `@runs` and `$runs` are the known runs."""
        sql = re.sub(r"@(\w+)", r"(select unnest($\1::varchar[]))", query)
        names = {*re.findall(r"\$([a-z]\w*)", sql)}
        (rows,) = ask(self._store, (sql, {name: values.get(name, self._known[name]) for name in names}))
        return rows


def _path_of(name: str) -> str:
    """Return the path of a field of metadata; dots lead into nested ones."""
    return "$" + "".join(f'."{key}"' for key in name.split("."))


def evaluation_of(owner: str | None) -> str | None:
    """Return the trace evaluation of the owner of a day's scores, which is its lease; None for another owner."""
    return owner[: -len("-2026-11-24")] if owner and owner.startswith("eval-") else None


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
    keys: Mapping[Why, Keys] = field(default_factory=dict)
    snapshots: Sequence[str] = ()
    owners: Sequence[str] = ()
    leases: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def recorded_at(self) -> datetime:
        return datetime.fromisoformat(self.at)


def new_plan(
    kind: str, selector_hash: str, erased_by: str | None, subjects: Subjects, kept: Sequence[str] = ()
) -> Plan:
    """Return a plan with a new id and key."""
    at = now()
    return Plan(
        erasure_id=new_id("erasure", at),
        at=at.astimezone(UTC).isoformat(),
        secret=secrets.token_hex(32),
        kind=kind,
        selector_hash=selector_hash,
        erased_by=erased_by,
        kept=[*kept],
        **asdict(subjects),
    )


def keep_plan(store: Store, plan: Plan) -> None:
    """Write a plan; in a folder, it is on disk when this returns. Raise StorageError if that fails."""
    write_bytes(store.layout, store.filesystem, _path(store.layout, plan), json.dumps(asdict(plan)).encode())


def remove_plan(store: Store, plan: Plan) -> None:
    """Remove a plan, and with it the key of its markers."""
    path = _path(store.layout, plan)
    with storage_errors(path):
        store.filesystem.rm_file(path)


def plans(store: Store) -> list[Plan]:
    """Return the plans of erasures that have not ended, the oldest first. Raise StorageError for a damaged one."""
    fs = store.filesystem
    found = []
    for path in sorted(fs.glob(f"{store.layout.root}/{FOLDER}/*.json")):
        try:
            found.append(Plan(**json.loads(fs.cat_file(path))))
        except FileNotFoundError:  # the erasure has just ended
            continue
        except (ValueError, TypeError) as error:
            raise StorageError(f"{path}: cannot be read; delete it and erase again") from error
    return found


def _path(layout: Layout, plan: Plan) -> str:
    return f"{layout.root}/{FOLDER}/{plan.erasure_id}.json"


class FileEraser:
    """Erases the texts of a plan's rows, in one file after another."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store = store
        self._eraser = Eraser(day=plan.at[:10], key=bytes.fromhex(plan.secret), kept=tuple(plan.kept))
        self._wanted: defaultdict[str, list[tuple[Mapping[str, Rule], pa.Array]]] = defaultdict(list)
        for why, rules in ERASED.items():
            for table, keys in plan.keys.get(why, {}).items():
                if keys:
                    joined = pa.array([_BETWEEN.join(key) for key in keys], pa.string())
                    self._wanted[table].append((rules[table], joined))

    @property
    def tables(self) -> frozenset[str]:
        """The tables that have rows of the plan."""
        return frozenset(self._wanted)

    def erase(self, file: StoredFile, *, write: bool = True) -> int:
        """Return how many rows of a file have texts to erase, and, if any and `write`, write it without them.

        Raise StorageError if it is damaged or cannot be written, and FileNotFoundError if it has gone.
        """

        layout, fs, eraser = self._store.layout, self._store.filesystem, self._eraser
        with self._opened(file) as parquet:
            keys = _joined(file.table, parquet.read(columns=[*TABLES[file.table].key]))
            if not any(pc.any(pc.is_in(keys, value_set=wanted)).as_py() for _, wanted in self._wanted[file.table]):
                return 0
            count = sum(n for _, n in self._groups(parquet, file))
            if count and write:
                metadata = {ERASED_KEY: eraser.day.encode()}
                if file.is_packed:
                    metadata[OWNERS_KEY] = parquet.metadata.metadata[OWNERS_KEY]
                with storage_errors(file.path):
                    write_file(
                        layout,
                        fs,
                        file.path,
                        schema_of(TABLES[file.table].record),
                        (rows for rows, _ in self._groups(parquet, file)),
                        metadata,
                        regroup=file.table != "examples",  # their readers know where the row groups begin
                        replaces=True,
                        before=partial(name_file, layout, fs),
                    )
            return count

    def _groups(self, parquet: pq.ParquetFile, file: StoredFile) -> Iterator[tuple[pa.Table, int]]:
        """Yield the row groups of a file without texts, and how many of their rows this changes."""

        for rows in row_groups_of(parquet, file.table, columns_of(file.table)):
            changed = np.zeros(rows.num_rows, bool)
            for rules, wanted in self._wanted[file.table]:
                is_wanted = np.asarray(pc.is_in(_joined(file.table, rows), value_set=wanted))
                rows = self._without(rows, np.flatnonzero(is_wanted), rules, READ_TOO.get(file.table, ()), changed)
            yield rows, int(changed.sum())

    def _without(
        self,
        rows: pa.Table,
        numbers: np.ndarray[Any, Any],
        rules: Mapping[str, Rule],
        read_too: Sequence[str],
        changed: np.ndarray[Any, Any],
    ) -> pa.Table:
        """Return rows without the texts of those with these numbers, and note in `changed` which had any."""

        given = rows.select([*rules, *read_too]).take(numbers).to_pylist()
        for name, rule in rules.items():
            new = [None if row[name] is None else rule(self._eraser, row[name], row) for row in given]
            is_new = [row[name] != value for row, value in zip(given, new, strict=True)]
            if any(is_new):
                index, mask = rows.schema.get_field_index(name), np.zeros(rows.num_rows, bool)
                kind, mask[numbers] = rows.schema.field(index), True
                column = rows.column(index).combine_chunks()
                column = pc.replace_with_mask(column, pa.array(mask), pa.array(new, kind.type))
                rows = rows.set_column(index, kind, column)
                changed[numbers[is_new]] = True
        return rows

    @contextmanager
    def _opened(self, file: StoredFile) -> Iterator[pq.ParquetFile]:
        layout, fs = self._store.layout, self._store.filesystem
        verify(fs, file.path, state_of(layout, fs, file.path))
        with fs.open(file.path, "rb") as opened:
            yield pq.ParquetFile(opened, page_checksum_verification=True)


def _joined(table: str, rows: pa.Table) -> pa.Array:
    """Return the keys of rows, each as one text."""

    return pc.binary_join_element_wise(*(rows.column(name).combine_chunks() for name in TABLES[table].key), _BETWEEN)


def refuse_erased(store: Store, snapshot: str) -> None:
    """Raise InputError if texts of a snapshot's examples were erased, or are at this moment.

    Of a snapshot without erased examples, only the end of its file is read.
    """
    if any(snapshot in plan.snapshots for plan in plans(store)):
        raise InputError(
            f"snapshot {snapshot}: examples of it are being erased; {hints.finish_erasure().code} finishes it"
        )
    if names := erased_examples(store, snapshot):
        raise erased_error(f"snapshot {snapshot}", names)


def erased_error(where: str, names: Sequence[str]) -> InputError:
    """Return the error for examples that were erased."""
    listed = f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
    what = "an erased example" if len(names) == 1 else f"{len(names)} erased examples"
    return InputError(f"{where}: got {what} ({listed}), wanted texts to answer or judge; leave them out of the dataset")


def erased_examples(store: Store, snapshot: str) -> list[str]:
    """Return the ids of a snapshot's erased examples. Raise StorageError if its file cannot be read."""
    path = store.layout.sealed("examples", snapshot)
    with open_parquet(store.filesystem, path) as parquet:
        if ERASED_KEY not in (parquet.metadata.metadata or {}):
            return []
        rows = parquet.read(columns=["example_id", "inputs"]).to_pylist()
    return [row["example_id"] for row in rows if is_erased(row["inputs"])]
