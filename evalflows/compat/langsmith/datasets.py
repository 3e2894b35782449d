"""LangSmith's datasets, examples, runs and feedback as its client's methods: a dataset is a name whose versions are
snapshots; each change is a new one, and experiments keep theirs.
"""

import base64
import io
import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalflows.compat.langsmith.run_filters import matches, names_children, parse
from evalflows.compat.langsmith.schemas import (
    Dataset,
    DatasetDiffInfo,
    DatasetVersion,
    EvaluationResult,
    Example,
    ExampleUpdate,
    ExampleWithRuns,
    Feedback,
    Fields,
    Identity,
    Run,
    TracerSession,
)
from evalflows.compat.refusal import refusing, refusing_unknown
from evalflows.evaluators.score import ExampleView, RunView
from evalflows.llm.faults import MIN_PROVIDER_KEY_CHARS, without_keys
from evalflows.llm.ledger import Recorder, recording
from evalflows.llm.wrapped import plain
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, describe, short
from evalflows.specs.values import stored_row
from evalflows.store.file_formats import read_rows, rows_of, stem
from evalflows.store.ingest import compare_examples, merge_examples
from evalflows.store.labels import MACHINE, later_labels
from evalflows.store.queries.lookup import find_experiments, unique_name
from evalflows.store.records import (
    CallRow,
    DataType,
    ExampleRow,
    ExperimentRow,
    JudgementRow,
    LabelRow,
    OutputRow,
    derived_id,
    from_json,
    new_id,
    to_json,
)
from evalflows.store.snapshots import KNOWN, current_snapshot, freeze, load_snapshot, to_examples
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd


_STORED = {"mime_type", "base64"}


class AttachmentReader(BytesIO):
    """The bytes of an attachment. Two readers are equal if their contents are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttachmentReader) and self.getvalue() == other.getvalue()

    __hash__ = None  # type: ignore[assignment]


def to_stored(attachments: Mapping[str, Any], where: str, *, may_read_files: bool = False) -> Fields:
    """Return attachments as JSON values: `{"mime_type", "base64"}` for bytes; any other JSON value unchanged.

    Bytes come as (MIME type, bytes), as {"mime_type", "data"}, or as a listed example has them. Raises InputError for
    anything else in their place, and for a path unless `may_read_files`.
    """
    return {
        str(name): _to_stored(attachment, f"{where}: attachment {str(name)!r}", may_read_files)
        for name, attachment in attachments.items()
    }


def opened(attachments: Mapping[str, Any] | None) -> Fields | None:
    """Return attachments as evaluators and targets get them: {"presigned_url", "reader", "mime_type"}.

    The URL is a data URL. Each call makes new readers. Values that are not stored bytes are unchanged.
    """
    if attachments is None:
        return None
    return {name: _opened(attachment) for name, attachment in attachments.items()}


def _to_stored(attachment: Any, where: str, may_read_files: bool) -> Any:
    if isinstance(attachment, tuple) and len(attachment) == 2:
        mime_type, content = attachment
    elif isinstance(attachment, Mapping) and "data" in attachment:
        mime_type, content = attachment.get("mime_type"), attachment["data"]
    elif isinstance(attachment, Mapping) and "reader" in attachment:
        mime_type, content = attachment.get("mime_type"), _whole(attachment["reader"])
    elif isinstance(attachment, tuple | bytes):
        raise InputError(f"{where}: got {short(attachment)}, wanted (MIME type, bytes)")
    else:
        return attachment
    if isinstance(content, Path):
        content = _read(content, where, may_read_files)
    if not isinstance(content, bytes):
        raise InputError(f"{where}: got {type(content).__name__}, wanted bytes")
    return {"mime_type": mime_type, "base64": base64.b64encode(content).decode("ascii")}


def _read(path: Path, where: str, may_read_files: bool) -> bytes:
    if not may_read_files:
        raise InputError(f"{where}: got a path, wanted bytes, or dangerously_allow_filesystem=True")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: {path}: cannot be read: {error.strerror or error}") from error


def _whole(reader: Any) -> Any:
    """Return all bytes of a reader, whatever was read of it before."""
    reader.seek(0)
    return reader.read()


def _opened(attachment: Any) -> Any:
    if not isinstance(attachment, Mapping) or attachment.keys() != _STORED:
        return attachment
    mime_type, text = attachment["mime_type"], attachment["base64"]
    return {
        "presigned_url": f"data:{mime_type or ''};base64,{text}",
        "reader": AttachmentReader(base64.b64decode(text)),
        "mime_type": mime_type,
    }


PASS = "pass"
"""The metric of whether a test passed."""
EXPECTATION = "expectation"
"""The metric of whether all expectations of a test held."""


@dataclass(slots=True, kw_only=True)
class Note:
    """A logged judgement, and the model calls that it took."""

    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    metadata: Fields | None = None
    higher_is_better: bool = True
    range: tuple[float, float] | None = None
    calls: list[CallRow] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Case:
    """A test that runs, or has run: an example, its answer and its judgements."""

    id: str
    name: str
    suite: str
    version: str = ""  # of the test's code
    inputs: Fields = field(default_factory=dict)
    outputs: Fields = field(default_factory=dict)
    reference_outputs: Fields = field(default_factory=dict)
    metadata: Fields = field(default_factory=dict)
    experiment_metadata: Fields = field(default_factory=dict)
    split: str | None = None
    notes: dict[str, Note] = field(default_factory=dict)
    calls: list[CallRow] = field(default_factory=list)
    steps: list[Fields] = field(default_factory=list)
    latency_s: float = 0.0
    aside: list[CallRow] | None = None  # of a block of judging that is open

    def log(self, key: str, note: Note) -> None:
        """Log a judgement. Raises InputError if the test has one of that key already."""
        if key == PASS:
            raise InputError(f"log_feedback: key: got {PASS!r}, wanted another: the test's own result has it")
        if key in self.notes:
            raise InputError(f"log_feedback: key {key!r}: logged twice in one test, wanted one score for each key")
        self.notes[key] = note
        if self.aside is not None:
            note.calls, self.aside[:] = list(self.aside), []

    def expect(self, held: bool, comment: str) -> None:
        """Log whether an expectation held; the score is that of the first that did not, else 1."""
        before = self.notes.get(EXPECTATION)
        if before is None or before.score:
            comments = [before.comment, comment] if before and held and before.comment else [comment]
            self.notes[EXPECTATION] = Note(score=held, comment="; ".join(comments))

    def finish(self, error: BaseException | None) -> None:
        """Note whether the test passed, and remove keys of providers from what it logged."""
        self.notes = {PASS: Note(score=error is None, comment=None if error is None else describe(error)), **self.notes}
        for name in ("inputs", "outputs", "reference_outputs", "steps"):
            text = to_json(plain(getattr(self, name)), mend=True)
            setattr(self, name, json.loads(without_keys(text, MIN_PROVIDER_KEY_CHARS)))


_running: list[Case] = []
"""The last is the current one: a test may run pytest itself. Not a context variable: async tests have contexts of their
own."""


def current_case(where: str) -> Case:
    """Return the running test's case. Raises InputError outside of marked tests."""
    if not _running:
        raise InputError(f"{where}: called outside of a test, wanted it in one marked @pytest.mark.langsmith")
    return _running[-1]


def case_or_none() -> Case | None:
    return _running[-1] if _running else None


@contextmanager
def running(case: Case) -> Iterator[Case]:
    """Run the block as this case: its model calls and steps are recorded."""
    recorder = Recorder(keep=case.calls.append, steps=case.steps)
    _running.append(case)
    began = time.perf_counter()
    try:
        with recording(recorder):
            yield case
    finally:
        case.latency_s = time.perf_counter() - began
        _running.remove(case)


@contextmanager
def judging(case: Case) -> Iterator[None]:
    """Run the block apart from the answer: its calls belong to the judgements that it logs."""
    outer, case.aside = case.aside, []
    try:
        with recording(Recorder(keep=case.aside.append)):
            yield
    finally:
        case.calls.extend(case.aside)  # those of no judgement
        case.aside = outer


def given(arguments: Mapping[str, Any]) -> Fields:
    """Return those arguments of a test that JSON can hold, such as parameters; others are objects of its fixtures."""
    return {name: value for name, value in arguments.items() if _is_json(value)}


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except (TypeError, ValueError):
        return False
    return True


Step = Mapping[str, Any]


def dataset_id(name: str | None) -> str | None:
    """Return a dataset's id, derived from its name, so that every process gets the same id."""
    return None if name is None else str(uuid.uuid5(uuid.NAMESPACE_URL, f"evalflows:dataset/{name}"))


def run_key(identity: Identity) -> str:
    """Return a run's id as in the store, also if it was converted to a UUID."""
    return str(identity).replace("-", "")


def example_of(row: ExampleRow, dataset: str | None) -> Example:
    return Example(
        id=row.example_id,
        inputs=json.loads(row.inputs),
        outputs=from_json(row.reference_outputs),
        metadata=from_json(row.metadata),
        dataset_id=dataset,
        created_at=row.recorded_at,
        attachments=opened(from_json(row.attachments)),
        split=row.split,
        cluster=row.cluster,
    )


def run_of(row: OutputRow, inputs: Fields) -> Run:
    return Run(
        id=row.run_id,
        inputs=inputs,
        outputs=from_json(row.outputs),
        error=None if row.status == "ok" else row.error or row.status,
        start_time=row.started_at,
        end_time=_end(row.started_at, row.latency_s),
        reference_example_id=row.example_id,
        session_id=row.experiment_id,
        trace_id=row.run_id,
        child_runs=_children(from_json(row.steps) or [], row.run_id),
        prompt_tokens=row.tokens_in,
        completion_tokens=row.tokens_out,
        total_cost=row.cost_usd,
    )


def run_of_view(view: RunView) -> Run:
    return Run(
        id=view.id,
        inputs=view.inputs,
        outputs=view.outputs,
        error=view.error,
        start_time=view.started_at,
        end_time=_end(view.started_at, view.latency_s),
        trace_id=view.id,
        child_runs=_children(view.steps, view.id),
        prompt_tokens=view.tokens_in,
        completion_tokens=view.tokens_out,
        total_cost=view.cost_usd,
    )


def example_of_view(view: ExampleView) -> Example:
    return Example(
        id=view.id,
        inputs=view.inputs,
        outputs=view.reference_outputs,
        metadata=view.metadata,
        attachments=opened(view.attachments),
        split=view.split,
        cluster=view.cluster,
    )


def result_of(row: JudgementRow) -> EvaluationResult:
    missing = row.status in ("failed", "not_attempted")
    return EvaluationResult(
        key=row.metric,
        score=score_of(row.value, row.data_type),
        value=row.label,
        comment=row.error or row.status if missing else row.comment,
        metadata=from_json(row.metadata),
        extra={"error": True} if missing else None,
    )


def score_of(value: float | None, data_type: str | None) -> float | bool | None:
    return bool(value) if value is not None and data_type == "BOOLEAN" else value


def _children(steps: Sequence[Step], root: str) -> list[Run]:
    """Return a run's steps as a tree. A step whose parent is unknown becomes a child of the run itself."""
    known = {step.get("id") for step in steps} - {None}
    by_parent: defaultdict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_parent[step["parent"] if step.get("parent") in known else root].append(step)
    return [_child(step, root, root, by_parent) for step in by_parent[root]]


def _child(step: Step, parent: str, root: str, by_parent: Mapping[str, Sequence[Step]]) -> Run:
    started_at, identity = step.get("started_at"), str(step.get("id") or "")
    start = None if started_at is None else datetime.fromisoformat(started_at)
    return Run(
        id=identity,
        name=str(step.get("name") or ""),
        run_type=str(step.get("kind") or "chain"),
        inputs=_fields(step.get("inputs"), "input") or {},
        outputs=_fields(step.get("outputs"), "output"),
        error=step.get("error"),
        start_time=start,
        end_time=_end(start, step.get("latency_s")),
        trace_id=root,
        parent_run_id=parent,
        child_runs=[_child(child, identity, root, by_parent) for child in by_parent.get(identity, ())],
        prompt_tokens=step.get("tokens_in"),
        completion_tokens=step.get("tokens_out"),
        metadata=step.get("metadata") or {},
        tags=step.get("tags") or [],
    )


def _fields(value: Any, name: str) -> Fields | None:
    return value if value is None or isinstance(value, dict) else {name: value}


def _end(start: datetime | None, latency_s: float | None) -> datetime | None:
    return None if start is None or latency_s is None else start + timedelta(seconds=latency_s)


SOURCE = "evalflows.compat.langsmith"
NEW_COLUMNS = {
    "inputs": "inputs",
    "outputs": "outputs",
    "reference_outputs": "reference_outputs",
    "metadata": "metadata",
    "splits": "split",
    "ids": "id",
    "attachments": "attachments",
    "source_run_ids": "source_run_id",
}
"""The lists that `create_examples` takes, and the field of an example that each fills."""

_DATASETS = """
select v.name, arg_max(v.description, v.recorded_at) as description, min(v.recorded_at) as created_at,
       max(v.recorded_at) as modified_at, arg_max(s.n_examples, v.recorded_at) as example_count,
       arg_max(v.metadata, v.recorded_at) as metadata
from source.dataset_versions v join source.snapshots s using (snapshot_id)
group by v.name order by created_at desc
"""


def all_datasets(store: Store) -> list[Dataset]:
    """Return every named dataset, newest first."""
    names = ("name", "description", "created_at", "modified_at", "example_count")
    rows = store.query(_DATASETS)
    known = {row[0] for row in rows}
    return [
        Dataset(id=dataset_id(row[0]) or "", metadata=from_json(row[5]), **dict(zip(names, row[:5], strict=True)))
        for row in rows
        if row[0].rpartition("@")[0] not in known  # the tag of a version is no dataset of LangSmith's
    ]


def find_dataset(store: Store, name: str | None, identity: Identity | None) -> Dataset:
    """Return the dataset with this name or id. Raises InputError if it does not exist, or both or none are given."""
    if (name is None) == (identity is None):
        raise InputError("dataset: wanted exactly one of dataset_name and dataset_id")
    datasets = all_datasets(store)
    for dataset in datasets:
        if dataset.name == name or (identity is not None and dataset.id == str(identity)):
            return dataset
    known = ", ".join(dataset.name for dataset in datasets) or "none yet"
    raise InputError(f"dataset {name or str(identity)!r}: not in the store, wanted one of: {known}")


def create(
    store: Store,
    name: str,
    description: str | None,
    metadata: Mapping[str, Any] | None = None,
    rows: Sequence[Fields] | None = None,
) -> Dataset:
    """Create a dataset, empty or with these examples, as one version.

    Raises InputError, and creates none, if the name is taken, a row is invalid, or there are no rows in `rows`.
    """
    if current_snapshot(store, name) is not None:
        raise InputError(f"dataset {name!r}: already in the store, wanted another name, or create_examples")
    examples = [] if rows is None else _with_own_ids(name, rows, f"example of dataset {name!r}")
    freeze(store, examples, name=name, source=SOURCE, description=description, metadata=metadata)
    return find_dataset(store, name, None)


def _with_own_ids(dataset: str, rows: Sequence[Fields], where: str) -> Sequence[ExampleRow]:
    """Return rows as examples. The id of one that names none is of its content in this dataset: no other has it."""
    examples = to_examples(enumerate(rows, start=1), where) if rows else []
    own = [
        row if "id" in row else {**row, "id": derived_id(dataset, example.example_id)}
        for row, example in zip(rows, examples, strict=True)
    ]
    return to_examples(enumerate(own, start=1), where) if rows else []


def add(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> list[str]:
    """Add rows to a dataset, except examples that it already has. Return the rows' ids.

    Raises InputError if a row is not an example, or has the id of an existing example with other content.
    """
    where = f"example of dataset {dataset.name!r}"
    new = _with_own_ids(dataset.name, rows, where)
    old = _current(store, dataset)
    merged = merge_examples(old, new, where)
    if len(merged) > len(old):
        _freeze(store, dataset, merged)
    return [example.example_id for example in new]


def examples_of(store: Store, dataset: Dataset, snapshot: str | None = None) -> list[Example]:
    """Return the examples of a dataset, in order; by default of its current snapshot."""
    rows = load_snapshot(store, snapshot or current_snapshot(store, dataset.name) or "")
    return [example_of(row, dataset.id) for row in rows]


def as_row(example: object, *, may_read_files: bool = False) -> Fields:
    """Convert an example in any of LangSmith's shapes to a row. Raises InputError for anything else."""
    if isinstance(example, Mapping):
        row = {str(key): value for key, value in example.items() if value is not None}
    else:
        row = {key: value for key in KNOWN if (value := getattr(example, key, None)) is not None}
        if "inputs" not in row:
            raise InputError(f"example: got {type(example).__name__}, wanted an object with inputs and outputs")
    if attachments := row.pop("attachments", None):
        row["attachments"] = to_stored(attachments, "example", may_read_files=may_read_files)
    splits = row.get("split")
    if isinstance(splits, list | tuple):
        if len(splits) > 1:
            raise InputError(f"example: split: got {splits!r}, wanted at most one")
        row["split"] = next(iter(splits), None)
    return row


def _rows_of(
    where: str,
    whole: str,
    given: Iterable[Any] | None,
    first: str,
    fields: Mapping[str, str],
    lists: Mapping[str, Sequence[Any]],
) -> Iterable[Any]:
    """Return what is given whole, or the rows of parallel lists, as many as those of the first list.

    `fields` has the field of each list. Raises InputError for other lists, without any, and for unequal lengths.
    """
    if unknown := lists.keys() - fields.keys():
        raise InputError(f"{where}got {min(unknown)!r}, wanted only {whole} or {', '.join(fields)}")
    if given is not None:
        return given
    if first not in lists:
        raise InputError(f"{where}got neither {whole} nor {first}, wanted one of them")
    for name, values in lists.items():
        if len(values) != (wanted := len(lists[first])):
            raise InputError(f"{where}{name}: got {len(values)}, wanted {wanted}, as many as {first}")
    names = [fields[name] for name in lists]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def as_data(store: Store, data: Any) -> DatasetSpec:
    """Convert the `data` of `evaluate` (a dataset, its name or id, or examples) to a spec. Raises InputError."""
    if data is None:
        raise InputError("evaluate: data: got None, wanted a dataset, its name or id, or examples")
    if isinstance(data, str | uuid.UUID | Dataset):
        return _whole_dataset(store, data.name if isinstance(data, Dataset) else data)
    examples = list(data)
    origins = {getattr(example, "dataset_id", None) for example in examples}
    for dataset in all_datasets(store) if len(origins) == 1 and None not in origins else ():
        if dataset.id in origins and examples == examples_of(store, dataset):
            return DatasetSpec(name=dataset.name)  # the whole dataset: the experiment refers to it by name
    if not examples:
        raise InputError("evaluate: data: got no examples, wanted at least one")
    return DatasetSpec(rows=[as_row(example) for example in examples])


def _whole_dataset(store: Store, reference: Identity) -> DatasetSpec:
    named = next((d for d in all_datasets(store) if str(reference) in (d.name, d.id)), None)
    dataset = named or find_dataset(store, str(reference), None)
    if not dataset.example_count:
        raise InputError(f"dataset {dataset.name!r}: has no examples yet, wanted some from create_examples")
    return DatasetSpec(name=dataset.name)


_HOLDING = """
select v.name from (
    select name, arg_max(snapshot_id, recorded_at) as snapshot_id, max(recorded_at) as recorded_at
    from source.dataset_versions group by name
) v join source.examples e using (snapshot_id) where e.example_id = ? order by v.recorded_at desc
"""
_VERSIONS = "select recorded_at, snapshot_id from source.dataset_versions where name = ? order by recorded_at desc"
_UPDATED = {field.name for field in fields(ExampleUpdate)}


def holding(store: Store, example: Identity) -> list[Dataset]:
    """Return the datasets that have this example now, the last changed first. Raises InputError if none has."""
    known = {dataset.name: dataset for dataset in all_datasets(store)}  # without tags of versions
    found = [known[name] for (name, *_) in store.query(_HOLDING, [str(example)]) if name in known]
    if not found:
        raise InputError(f"example {str(example)!r}: in no dataset's current version")
    return found


def only_holding(store: Store, example: Identity) -> Dataset:
    """Return the dataset that has this example. Raises InputError if none has, or several do."""
    datasets = holding(store, example)
    if len(datasets) > 1:
        names = ", ".join(dataset.name for dataset in datasets)
        raise InputError(f"example {str(example)!r}: in the datasets {names}, wanted the dataset_id of one")
    return datasets[0]


def versions_of(store: Store, dataset: Dataset) -> list[DatasetVersion]:
    """Return the versions of a dataset, newest first."""
    return [
        DatasetVersion(as_of=moment, snapshot_id=snapshot)
        for moment, snapshot in store.query(_VERSIONS, [dataset.name])
    ]


def tag_of(dataset: str, tag: str) -> str:
    """Return the dataset that holds the version with a tag, under a name of its own."""
    return f"{dataset}@{tag}"


def version_at(store: Store, dataset: Dataset, as_of: datetime | str | None) -> DatasetVersion:
    """Return the version that was current at a time, in UTC if it names no zone; None and "latest" mean now.

    A text is a tag, or a time in ISO 8601. Raises InputError for a time before the first version, and an unknown tag.
    """
    versions = versions_of(store, dataset)
    if as_of is None or as_of == "latest":
        return versions[0]
    if isinstance(as_of, str):
        tagged = current_snapshot(store, tag_of(dataset.name, as_of))
        if found := next((version for version in versions if version.snapshot_id == tagged), None):
            return replace(found, tags=[as_of])
        try:
            as_of = datetime.fromisoformat(as_of)
        except ValueError:
            raise InputError(f"as_of: got {short(as_of)}, wanted a time, 'latest', or a tag of a version") from None
    moment = as_of if as_of.tzinfo is not None else as_of.replace(tzinfo=UTC)
    version = next((version for version in versions if version.as_of <= moment), None)
    if version is None:
        raise InputError(f"as_of: got {moment}, wanted a time after {versions[-1].as_of}, when {dataset.name!r} began")
    return version


def put(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> None:
    """Add rows, which have ids, to a dataset; one with the id of an existing example replaces it.

    Raises InputError if a row is not an example.
    """
    new = {str(row["id"]): row for row in rows}
    old = [as_fields(row) for row in _current(store, dataset)]
    known = {row["id"] for row in old}
    _freeze_rows(
        store, dataset, [*(new.get(row["id"], row) for row in old), *(new[key] for key in new if key not in known)]
    )


def as_update(changes: object) -> Fields:
    """Convert an update in any of LangSmith's shapes to its fields that are not None. Raises InputError."""
    if isinstance(changes, Mapping):
        given = dict(changes)
    elif is_dataclass(changes) or hasattr(changes, "id"):
        given = {name: getattr(changes, name, None) for name in _UPDATED}
    else:
        raise InputError(f"update: got {type(changes).__name__}, wanted an ExampleUpdate")
    if unknown := given.keys() - _UPDATED:
        raise InputError(f"update: got the field {min(unknown)!r}, wanted only {', '.join(sorted(_UPDATED))}")
    return {name: value for name, value in given.items() if value is not None}


def as_fields(row: ExampleRow) -> Fields:
    """Return a stored example as a row of its fields, with its id."""
    stored = {
        "id": row.example_id,
        "inputs": from_json(row.inputs),
        "outputs": from_json(row.reference_outputs),
        "metadata": from_json(row.metadata),
        "split": row.split,
        "cluster": row.cluster,
        "attachments": from_json(row.attachments),
    }
    return {name: value for name, value in stored.items() if value is not None}


def _updated(old: Fields, changes: Fields, may_read_files: bool) -> Fields:
    own: Fields = {name: changes[name] for name in ("inputs", "outputs", "metadata", "split") if name in changes}
    attachments = _kept(old.get("attachments") or {}, changes.get("attachments_operations"))
    attachments |= to_stored(changes.get("attachments") or {}, f"example {old['id']!r}", may_read_files=may_read_files)
    changed: Fields = {**old, **own, "attachments": attachments}
    return as_row(changed)


def _kept(attachments: Fields, operations: Any) -> Fields:
    """Return the attachments that an update keeps: without operations all, else those retained or renamed."""
    if operations is None:
        return dict(attachments)
    rename, retain = (
        operations.get(name) if isinstance(operations, Mapping) else getattr(operations, name)
        for name in ("rename", "retain")
    )
    kept: dict[str, str] = {**(rename or {}), **{name: name for name in retain or ()}}
    if unknown := kept.keys() - attachments.keys():
        raise InputError(
            f"attachments_operations: got {min(unknown)!r}, wanted one of: {', '.join(attachments) or 'none'}"
        )
    return {new: attachments[name] for name, new in kept.items()}


def _current(store: Store, dataset: Dataset) -> Sequence[ExampleRow]:
    return load_snapshot(store, current_snapshot(store, dataset.name) or "")


def _freeze_rows(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> None:
    where = f"example of dataset {dataset.name!r}"
    _freeze(store, dataset, to_examples(enumerate(rows, start=1), where) if rows else [])


def _freeze(store: Store, dataset: Dataset, examples: Sequence[ExampleRow]) -> None:
    description, metadata = dataset.description, dataset.metadata
    freeze(store, examples, name=dataset.name, source=SOURCE, description=description, metadata=metadata)


_NO_RUNS = "create examples from inputs and outputs, not from runs"
_NO_SCHEMA = "check a dataset with expectations: docs/reference/specs.md"


@refusing_unknown
class DatasetMethods:
    """A dataset is a name for a snapshot, its current version."""

    @refusing(
        data_type="examples are key-value mappings",
        inputs_schema=_NO_SCHEMA,
        outputs_schema=_NO_SCHEMA,
        transformations="examples are stored unchanged",
    )
    def create_dataset(
        self,
        dataset_name: str,
        *,
        description: str | None = None,
        data_type: str = "kv",
        inputs_schema: Fields | None = None,
        outputs_schema: Fields | None = None,
        transformations: Sequence[Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Create a dataset without examples. Raises InputError if the name is taken."""
        return create(Store(), dataset_name, description, metadata)

    def has_dataset(self, *, dataset_name: str | None = None, dataset_id: Identity | None = None) -> bool:
        if (dataset_name is None) == (dataset_id is None):
            raise InputError("has_dataset: wanted exactly one of dataset_name and dataset_id")
        return any(d.name == dataset_name or d.id == str(dataset_id) for d in all_datasets(Store()))

    def read_dataset(self, *, dataset_name: str | None = None, dataset_id: Identity | None = None) -> Dataset:
        """Return a dataset. Raises InputError if it does not exist."""
        return find_dataset(Store(), dataset_name, dataset_id)

    def list_datasets(
        self,
        *,
        dataset_ids: Sequence[Identity] | None = None,
        data_type: str | None = None,
        dataset_name: str | None = None,
        dataset_name_contains: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[Dataset]:
        """Yield the datasets that match every given filter, newest first."""
        ids = None if dataset_ids is None else {str(identity) for identity in dataset_ids}
        matching = (
            dataset
            for dataset in all_datasets(Store())
            if (ids is None or dataset.id in ids)
            and data_type in (None, dataset.data_type)
            and dataset_name in (None, dataset.name)
            and (dataset_name_contains or "") in dataset.name
            and _has(dataset.metadata, metadata)
        )
        return islice(matching, limit)

    def delete_dataset(self, *, dataset_id: Identity | None = None, dataset_name: str | None = None) -> None:
        """Raise InputError: datasets, which experiments depend on, are never removed."""
        name = self.read_dataset(dataset_id=dataset_id, dataset_name=dataset_name).name
        raise InputError(
            f"delete_dataset: dataset {name!r}: cannot be deleted, wanted a new dataset under another name"
        )

    @refusing(
        created_at="an example's time is when it is added",
        source_run_id=_NO_RUNS,
        use_source_run_io=_NO_RUNS,
        use_source_run_attachments=_NO_RUNS,
    )
    def create_example(
        self,
        inputs: Mapping[str, Any] | None = None,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        created_at: datetime | None = None,
        reference_outputs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        split: str | Sequence[str] | None = None,
        example_id: Identity | None = None,
        source_run_id: Identity | None = None,
        use_source_run_io: bool = False,
        use_source_run_attachments: Sequence[str] | None = None,
        attachments: Mapping[str, Any] | None = None,
        *,
        outputs: Mapping[str, Any] | None = None,
    ) -> Example:
        """Add one example to a dataset; `create_examples` is faster for many. Raises InputError as it does."""
        fields = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "metadata": metadata}
        row = as_row({**fields, "split": split, "id": example_id, "attachments": attachments})
        dataset = self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        (identity,) = add(Store(), dataset, [row])
        return next(example for example in examples_of(Store(), dataset) if example.id == identity)

    def create_examples(
        self,
        *,
        dataset_name: str | None = None,
        dataset_id: Identity | None = None,
        examples: Iterable[Any] | None = None,
        dangerously_allow_filesystem: bool = False,
        max_concurrency: int = 1,
        **kwargs: Sequence[Any] | None,
    ) -> Fields:
        """Add examples to a dataset: `examples`, or the lists inputs, outputs, metadata, splits, ids and attachments.

        With `dangerously_allow_filesystem`, attachments may be paths, which are read. `max_concurrency` has no effect:
        all are written at once.

        Returns their count and ids. Existing examples are not added again. Raises InputError, and adds none, if an
        example is invalid or has the id of an existing example with other content.
        """
        dataset = self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        lists = {name: values for name, values in kwargs.items() if values is not None}
        given = _rows_of("create_examples: ", "examples", examples, "inputs", NEW_COLUMNS, lists)
        if examples is not None and lists:
            raise InputError(f"create_examples: got both examples and {min(lists)}, wanted one of them")
        rows = [as_row(row, may_read_files=dangerously_allow_filesystem) for row in given]
        identities = add(Store(), dataset, rows)
        return {"example_ids": identities, "count": len(identities)}

    @refusing(filter="filter the returned examples, or query the store with SQL")
    def list_examples(
        self,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        example_ids: Sequence[Identity] | None = None,
        as_of: datetime | str | None = None,
        splits: Sequence[str] | None = None,
        inline_s3_urls: bool = True,
        *,
        offset: int = 0,
        limit: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        filter: str | None = None,  # noqa: A002
        include_attachments: bool = False,
    ) -> Iterator[Example]:
        """Yield a dataset's examples that match every given filter, in order; `as_of` a time, those of that version.

        Attachments are always included.
        """
        store, dataset = Store(), self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        snapshot = version_at(store, dataset, as_of).snapshot_id
        ids = None if example_ids is None else {str(identity) for identity in example_ids}
        matching = (
            example
            for example in examples_of(store, dataset, snapshot)
            if (ids is None or example.id in ids)
            and (splits is None or example.split in splits)
            and _has(example.metadata, metadata)
        )
        return islice(matching, offset, None if limit is None else offset + limit)


def _has(metadata: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> bool:
    return (wanted or {}).items() <= (metadata or {}).items()


_ONLY_KV = "examples are key-value mappings"
EXAMPLE_COLUMNS = {
    "example_ids": "id",
    "inputs": "inputs",
    "outputs": "outputs",
    "metadata": "metadata",
    "splits": "split",
    "attachments_operations": "attachments_operations",
    "attachments": "attachments",
}
"""The lists that `update_examples` takes, and the field of an update that each fills."""


@refusing_unknown
class ExampleMethods:
    """A change makes a new version of a dataset; experiments keep the version that they ran on."""

    def read_example(self, example_id: Identity, *, as_of: datetime | None = None) -> Example:
        """Return an example, by default as it is now. Raises InputError if no dataset has it."""
        store = Store()
        dataset = holding(store, example_id)[0]
        snapshot = version_at(store, dataset, as_of).snapshot_id
        found = next((row for row in load_snapshot(store, snapshot) if row.example_id == str(example_id)), None)
        if found is None:
            raise InputError(f"example {str(example_id)!r}: not in the dataset {dataset.name!r} at {as_of}")
        return example_of(found, dataset.id)

    def update_example(
        self,
        example_id: Identity,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        split: str | Sequence[str] | None = None,
        dataset_id: Identity | None = None,
        attachments_operations: Any = None,
        attachments: Mapping[str, Any] | None = None,
    ) -> Fields:
        """Replace the given fields of an example, which keeps its id. Raises InputError as `update_examples`."""
        update = {
            "id": example_id,
            "inputs": inputs,
            "outputs": outputs,
            "metadata": metadata,
            "split": split,
            "attachments_operations": attachments_operations,
            "attachments": attachments,
        }
        return self.update_examples(dataset_id=dataset_id, updates=[update])

    def update_examples(
        self,
        *,
        dataset_name: str | None = None,
        dataset_id: Identity | None = None,
        updates: Sequence[Any] | None = None,
        dangerously_allow_filesystem: bool = False,
        **kwargs: Any,
    ) -> Fields:
        """Change examples: by `updates`, or by the lists example_ids, inputs, outputs, metadata, splits and so on.

        Returns their count and ids. Raises InputError, and changes none, if an example does not exist or an update is
        invalid; also if the examples are of several datasets.
        """
        lists = {name: values for name, values in kwargs.items() if values is not None}
        given = _rows_of("update_examples: ", "updates", updates, "example_ids", EXAMPLE_COLUMNS, lists)
        store, changes = Store(), [as_update(update) for update in given]
        dataset = _dataset_of(store, dataset_name, dataset_id, changes)
        old = {row.example_id: as_fields(row) for row in _current(store, dataset)}
        rows = []
        for number, changed in enumerate(changes, start=1):
            identity = str(changed.get("id"))
            if identity not in old:
                raise InputError(f"update {number}: example {identity!r}: not in the dataset {dataset.name!r}")
            rows.append(_updated(old[identity], changed, dangerously_allow_filesystem))
        put(store, dataset, rows)
        ids = [row["id"] for row in rows]
        return {"message": f"{len(ids)} examples updated", "count": len(ids), "example_ids": ids}

    def delete_example(self, example_id: Identity) -> None:
        """Leave an example out of the dataset's next version. Raises InputError if no dataset, or several, have it."""
        self.delete_examples([example_id])

    @refusing(hard_delete="earlier versions, on which experiments ran, keep the example")
    def delete_examples(self, example_ids: Sequence[Identity], *, hard_delete: bool = False) -> None:
        """Leave examples out of the dataset's next version. Raises InputError as `delete_example`."""
        store = Store()
        of_dataset: dict[str, set[str]] = {}
        for example in example_ids:
            of_dataset.setdefault(only_holding(store, example).name, set()).add(str(example))
        for name, removed in of_dataset.items():
            dataset = find_dataset(store, name, None)
            rows = [as_fields(row) for row in _current(store, dataset) if row.example_id not in removed]
            _freeze_rows(store, dataset, rows)

    def list_dataset_splits(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: str | datetime | None = None,
    ) -> list[str]:
        """Return the names of a dataset's splits."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        examples = load_snapshot(store, version_at(store, dataset, as_of).snapshot_id)
        return sorted({example.split for example in examples if example.split is not None})

    def update_dataset_splits(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        split_name: str,
        example_ids: Sequence[Identity],
        remove: bool = False,
    ) -> None:
        """Put examples into a split, which they leave their earlier one for; with `remove`, take them out of it."""
        store, wanted = Store(), {str(example) for example in example_ids}
        dataset = find_dataset(store, dataset_name, dataset_id)
        snapshot = version_at(store, dataset, None).snapshot_id
        rows = [as_fields(row) for row in load_snapshot(store, snapshot) if row.example_id in wanted]
        if unknown := wanted - {row["id"] for row in rows}:
            raise InputError(f"example {min(unknown)!r}: not in the dataset {dataset.name!r}")
        changed = [row for row in rows if not remove or row.get("split") == split_name]
        put(store, dataset, [{**row, "split": None if remove else split_name} for row in changed])

    def list_dataset_versions(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        limit: int | None = None,
    ) -> Iterator[DatasetVersion]:
        """Yield the versions of a dataset, newest first."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        return islice(versions_of(store, dataset), limit)

    def update_dataset_tag(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: datetime | str,
        tag: str,
    ) -> None:
        """Give the version of a time a tag, which an earlier one loses: a dataset `NAME@TAG` of its own, here."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        rows = load_snapshot(store, version_at(store, dataset, as_of).snapshot_id)
        freeze(store, rows, name=tag_of(dataset.name, tag), source=SOURCE, description=dataset.description)

    def read_dataset_version(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: datetime | None = None,
        tag: str | None = None,
    ) -> DatasetVersion:
        """Return the version that was current at a time, or has a tag; by default the newest.

        Raises InputError if there is none.
        """
        store = Store()
        return version_at(store, find_dataset(store, dataset_name, dataset_id), tag or as_of)

    def diff_dataset_versions(
        self,
        dataset_id: Identity | None = None,
        *,
        dataset_name: str | None = None,
        from_version: str | datetime,
        to_version: str | datetime,
    ) -> DatasetDiffInfo:
        """Return which examples were added, removed and changed between two times."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        versions = (version_at(store, dataset, as_of) for as_of in (from_version, to_version))
        old, new = (load_snapshot(store, version.snapshot_id) for version in versions)
        found = compare_examples(old, new)
        return DatasetDiffInfo(
            examples_modified=found.changed, examples_added=found.added, examples_removed=found.removed
        )

    @refusing(data_type=_ONLY_KV)
    def upload_csv(
        self,
        csv_file: str | tuple[str, io.BytesIO] | tuple[str, io.BytesIO, str],
        input_keys: Sequence[str],
        output_keys: Sequence[str],
        *,
        name: str | None = None,
        description: str | None = None,
        data_type: str | None = "kv",
    ) -> Dataset:
        """Make a dataset of a CSV file: a path, or a name and an open file. Cells are texts; an empty one is left out.

        The dataset's name is by default the file's. Raises InputError, and makes none, if the file cannot be read or
        lacks a column.
        """
        if isinstance(csv_file, str | Path):
            where, rows = str(csv_file), [row for _, row in read_rows(csv_file)]
        else:
            where, rows = csv_file[0], [row for _, row in rows_of(csv_file[1], ".csv", csv_file[0])]
        return _made_of(name or stem(where), where, rows, input_keys, output_keys, description)

    @refusing(data_type=_ONLY_KV)
    def upload_dataframe(
        self,
        df: "pd.DataFrame",
        name: str,
        input_keys: Sequence[str],
        output_keys: Sequence[str],
        *,
        description: str | None = None,
        data_type: str | None = "kv",
    ) -> Dataset:
        """Make a dataset of a DataFrame, whose values keep their types. Raises InputError as `upload_csv`."""
        rows = [stored_row(row, f"row {number}") for number, row in enumerate(df.to_dict(orient="records"), start=1)]
        return _made_of(name, "data frame", rows, input_keys, output_keys, description)


def _dataset_of(store: Store, name: str | None, identity: Identity | None, updates: Sequence[Fields]) -> Dataset:
    if name is not None or identity is not None:
        return find_dataset(store, name, identity)
    if not updates:
        raise InputError("update_examples: got no updates, wanted at least one")
    found = {
        (find_dataset(store, None, of) if (of := update.get("dataset_id")) else _holding(store, update)).name
        for update in updates
    }
    if len(found) > 1:
        raise InputError(
            f"update_examples: got examples of the datasets {', '.join(sorted(found))}, wanted one dataset"
        )
    return find_dataset(store, found.pop(), None)


def _holding(store: Store, update: Fields) -> Dataset:
    if "id" not in update:
        raise InputError(f"update: got {short(update)}, wanted the id of an example")
    return only_holding(store, update["id"])


def _made_of(
    name: str,
    where: str,
    rows: Sequence[Fields],
    input_keys: Sequence[str],
    output_keys: Sequence[str],
    description: str | None,
) -> Dataset:
    columns = dict.fromkeys(key for row in rows for key in row)
    if missing := [key for key in (*input_keys, *output_keys) if key not in columns]:
        raise InputError(f"{where}: no column {missing[0]!r}, wanted one of: {', '.join(columns) or 'none'}")
    examples = [
        {
            "inputs": {key: row[key] for key in input_keys if row.get(key) is not None},
            "outputs": {key: row[key] for key in output_keys if row.get(key) is not None},
        }
        for row in rows
    ]
    return create(Store(), name, description, rows=examples)


_FEEDBACK = """
select * from (
    select score_id as id, run_id, metric as key, value, label, data_type, coalesce(error, comment) as comment,
           status, experiment_id, recorded_at, null as comparison_id
    from staging.scores where subject_kind = 'run' and turn is null and status <> 'sampled_out'
    union all
    select label_id, subject_id, metric, value, label, data_type, comment, 'scored', experiment_id, recorded_at, null
    from source.labels where subject_kind = 'run'
    union all
    select judgement_id || '-left', left_run_id, metric,
           coalesce(left_score, case winner when 'left' then 1 when 'right' then 0 when 'tie' then 0.5 end),
           null, 'NUMERIC', coalesce(error, comment), status, left_experiment_id, recorded_at, comparison_id
    from staging.comparisons
    union all
    select judgement_id || '-right', right_run_id, metric,
           coalesce(right_score, case winner when 'right' then 1 when 'left' then 0 when 'tie' then 0.5 end),
           null, 'NUMERIC', coalesce(error, comment), status, right_experiment_id, recorded_at, comparison_id
    from staging.comparisons
)
where ($1::varchar[] is null or list_contains($1::varchar[], run_id))
  and ($2::varchar[] is null or list_contains($2::varchar[], key))
order by recorded_at, id
"""

_OUTPUTS = """
select count(*), avg((status <> 'ok')::int), quantile_cont(latency_s, 0.5), quantile_cont(latency_s, 0.99),
       sum(tokens_in)::bigint, sum(tokens_out)::bigint,
       case when count(cost_usd) = count(*) then sum(cost_usd) end
from source.outputs where experiment_id = ?
"""

_SCORES = """
select subject_kind, metric, count(*) filter (status = 'scored'), avg(value),
       count(*) filter (status in ('failed', 'not_attempted'))
from staging.scores where experiment_id = ? and turn is null group by all order by metric
"""


def experiments_of(store: Store, projects: Iterable[Identity], runs: Iterable[str], example: str | None) -> list[str]:
    """Return the experiments named by `projects`, or else those that contain the runs or the example.

    Raises InputError for an unknown project, and if nothing identifies the experiments.
    """
    if experiments := [find_experiments(store, str(project), just_one=True)[0] for project in projects]:
        return experiments
    if not (runs := list(runs)) and example is None:
        raise InputError("list_runs: wanted project_name or project_id, run_ids, or reference_example_id")
    query = "select distinct experiment_id from source.outputs where list_contains($1, run_id) or example_id = $2"
    return [row[0] for row in store.query(query, [runs, example])]


def runs_of(store: Store, experiments: Iterable[str]) -> list[Run]:
    """Return every run of the experiments, newest first."""
    runs = []
    for identity in experiments:
        (row,) = store.read("experiments", identity)
        inputs = {example.example_id: example.inputs for example in load_snapshot(store, row.snapshot_id)}
        runs += [run_of(output, json.loads(inputs[output.example_id])) for output in store.read("outputs", identity)]
    return sorted(runs, key=lambda run: (run.start_time is not None, run.start_time), reverse=True)


def feedback_of(store: Store, runs: Sequence[Identity] | None, keys: str | Sequence[str] | None) -> list[Feedback]:
    """Return the judgements and human labels of some runs, or of all, oldest first."""
    identities = None if runs is None else [run_key(run) for run in runs]
    metrics = [keys] if isinstance(keys, str) else None if keys is None else list(keys)
    return [_feedback(row) for row in store.query(_FEEDBACK, [identities, metrics])]


def _feedback(row: tuple[Any, ...]) -> Feedback:
    identity, run, key, value, label, data_type, comment, status, experiment, recorded_at, comparison = row
    missing = status in ("failed", "not_attempted")
    return Feedback(
        id=identity,
        run_id=run,
        key=key,
        score=score_of(value, data_type),
        value=label,
        comment=comment or (status if missing else None),
        created_at=recorded_at,
        session_id=experiment,
        extra={"error": True} if missing else None,
        comparative_experiment_id=comparison,
    )


def page_of(store: Store, experiment: str) -> str | None:
    """Return the address of an experiment's page, if a dashboard runs here or EVALFLOWS_DASHBOARD_URL names one."""
    from evalflows.api.results import page_of_experiment  # late: results load more than a client needs

    return page_of_experiment(store, experiment)


def with_feedback(store: Store, runs: Iterable[Run]) -> Iterator[Run]:
    """Yield runs with the statistics of their feedback, and the addresses of their pages."""
    runs = list(runs)
    scores: defaultdict[str, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for one in feedback_of(store, [run.id for run in runs], None) if runs else ():
        scores[one.run_id][one.key].append(one.score)
    pages = {session: page_of(store, session) for run in runs if (session := run.session_id) is not None}
    for run in runs:
        yield replace(
            run,
            feedback_stats={key: _stats(values) for key, values in scores[run.id].items()},
            url=pages.get(run.session_id or ""),
        )


def _stats(values: Sequence[Any]) -> Fields:
    known = [float(value) for value in values if value is not None]
    return {"n": len(known), "avg": sum(known) / len(known) if known else None}


def with_descendants(run: Run) -> Iterator[Run]:
    """Yield a run and all its child runs, each before its children."""
    yield run
    for child in run.child_runs:
        yield from with_descendants(replace(child, session_id=run.session_id))


def all_projects(store: Store, *, include_stats: bool = False) -> Iterator[TracerSession]:
    """Yield all experiments, newest first."""
    newest_first = "select experiment_id from source.experiments order by started_at desc, experiment_id desc"
    for (identity,) in store.query(newest_first):
        yield _project(store, identity, include_stats=include_stats)


def _project(store: Store, identity: str, *, include_stats: bool) -> TracerSession:
    row: ExperimentRow = store.read("experiments", identity)[0]
    return TracerSession(
        id=identity,
        name=unique_name(row.name, identity),
        description=row.description,
        start_time=row.started_at,
        end_time=row.ended_at,
        metadata=json.loads(row.metadata or "{}"),
        reference_dataset_id=dataset_id(row.dataset_name),
        url=page_of(store, identity),
        **(_statistics(store, identity) if include_stats else {}),
    )


def _statistics(store: Store, experiment: str) -> Fields:
    """Return statistics of the runs and, per metric, of the judgements: `n` were scored, `missing` were not."""
    count, error_rate, p50, p99, tokens_in, tokens_out, cost = store.query(_OUTPUTS, [experiment])[0]
    scores = store.query(_SCORES, [experiment])

    def by_metric(subject: str) -> Fields:
        return {
            metric: {"n": n, "avg": mean, "missing": missing}
            for kind, metric, n, mean, missing in scores
            if kind == subject
        }

    return {
        "run_count": count,
        "error_rate": error_rate,
        "latency_p50": None if p50 is None else timedelta(seconds=p50),
        "latency_p99": None if p99 is None else timedelta(seconds=p99),
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_cost": cost,
        "feedback_stats": by_metric("run"),
        "session_feedback_stats": by_metric("experiment"),
    }


def _examples_with_runs(store: Store, experiment: str) -> Iterator[ExampleWithRuns]:
    """Yield the examples of an experiment in the dataset's order, each with its runs."""
    (row,) = store.read("experiments", experiment)
    runs: defaultdict[str | None, list[Run]] = defaultdict(list)
    for run in with_feedback(store, reversed(runs_of(store, [experiment]))):
        runs[run.reference_example_id].append(run)
    for example in load_snapshot(store, row.snapshot_id):
        one = example_of(example, dataset_id(row.dataset_name))
        yield ExampleWithRuns(
            **{each.name: getattr(one, each.name) for each in fields(Example)}, runs=runs[example.example_id]
        )


def _row_of(example: ExampleWithRuns, run: Run) -> Fields:
    columns: Fields = {f"input.{name}": value for name, value in example.inputs.items()}
    columns |= {f"outputs.{name}": value for name, value in (run.outputs or {}).items()}
    columns |= {"execution_time": run.latency, "error": run.error, "id": run.id, "example_id": example.id}
    columns |= {f"reference.{name}": value for name, value in (example.outputs or {}).items()}
    return columns | {f"feedback.{key}": stats["avg"] for key, stats in (run.feedback_stats or {}).items()}


_NO_LANGUAGE = "filter the returned runs, or query the store with SQL: store.connect()"


@refusing_unknown
class RunMethods:
    """A project is an experiment; a run is one answer of its target to one example."""

    @refusing(query=_NO_LANGUAGE, trace_filter=_NO_LANGUAGE, tree_filter=_NO_LANGUAGE)
    def list_runs(
        self,
        *,
        project_id: Identity | Sequence[Identity] | None = None,
        project_name: str | Sequence[str] | None = None,
        run_type: str | None = None,
        trace_id: Identity | None = None,
        reference_example_id: Identity | None = None,
        query: str | None = None,
        filter: str | None = None,  # noqa: A002
        trace_filter: str | None = None,
        tree_filter: str | None = None,
        is_root: bool | None = None,
        parent_run_id: Identity | None = None,
        start_time: datetime | None = None,
        error: bool | None = None,
        run_ids: Sequence[Identity] | None = None,
        select: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Run]:
        """Yield the root runs of experiments, newest first; a name means the newest experiment of that name.

        With `run_type`, `trace_id`, `parent_run_id`, `is_root=False` or a filter that names a run's type, place or
        root, child runs too. Runs are always whole, whatever `select` names. Raises InputError if nothing identifies
        the experiments, and for unsupported filters.
        """
        store, given = Store(), None if filter is None else parse(filter)
        example = None if reference_example_id is None else str(reference_example_id)
        ids = None if run_ids is None else {run_key(identity) for identity in run_ids}
        trace, parent = (None if one is None else run_key(one) for one in (trace_id, parent_run_id))
        of_trace = {*(ids or ()), *([trace] if trace else ())}
        experiments = experiments_of(store, _flattened(project_id, project_name), of_trace, example)
        runs: Iterable[Run] = with_feedback(store, runs_of(store, experiments))
        asks_for_children = any((run_type, trace, parent, is_root is False, given and names_children(given)))
        if asks_for_children and is_root is not True:
            runs = (one for run in runs for one in with_descendants(run))
        matching = (
            run
            for run in runs
            if (ids is None or run.id in ids)
            and run_type in (None, run.run_type)
            and trace in (None, run.trace_id)
            and parent in (None, run.parent_run_id)
            and is_root in (None, run.parent_run_id is None)
            and (given is None or matches(given, run))
            and example in (None, run.reference_example_id)
            and error in (None, run.error is not None)
            and (start_time is None or (run.start_time is not None and run.start_time >= start_time))
        )
        return islice(matching, limit)

    @refusing(start_time="a run is found by its id alone")
    def read_run(
        self,
        run_id: Identity,
        load_child_runs: bool = False,
        *,
        project_id: Identity | None = None,
        start_time: datetime | None = None,
    ) -> Run:
        """Return a run, always with its child runs. Raises InputError if it does not exist."""
        run = next(self.list_runs(run_ids=[run_id], project_id=project_id), None)
        if run is None:
            raise InputError(f"run {str(run_id)!r}: not in the store")
        return run

    @refusing(feedback_source_type="filter the returned feedback")
    def list_feedback(
        self,
        *,
        run_ids: Sequence[Identity] | None = None,
        feedback_key: str | Sequence[str] | None = None,
        feedback_source_type: Any = None,
        limit: int | None = None,
    ) -> Iterator[Feedback]:
        """Yield the judgements of runs, oldest first; a failed one has no score, and its error as the comment."""
        return islice(feedback_of(Store(), run_ids, feedback_key), limit)

    @refusing(correction="put it in the comment, or add it as an example to a dataset")
    def create_feedback(
        self,
        run_id: Identity | None = None,
        key: str = "unnamed",
        *,
        score: float | None = None,
        value: str | float | None = None,
        trace_id: Identity | None = None,
        correction: Fields | None = None,
        comment: str | None = None,
        source_info: Mapping[str, Any] | None = None,
        feedback_source_type: str = "api",
    ) -> Feedback:
        """Store feedback on a run as a row of `labels`, a person's unless `feedback_source_type` is model. Raises
        InputError if the run does not exist."""
        given = run_id if run_id is not None else trace_id
        if given is None:
            raise InputError("create_feedback: run_id: got None, wanted the id of a run")
        store, run, batch = Store(), run_key(given), new_id("batch")
        outputs = store.query("select experiment_id, example_id from source.outputs where run_id = ?", [run])
        if not outputs:
            raise InputError(f"create_feedback: run {str(given)!r}: not in the store")
        label, number = (value, score) if isinstance(value, str) else (None, value if score is None else score)
        kind: DataType = "BOOLEAN" if isinstance(number, bool) else "NUMERIC" if number is not None else "CATEGORICAL"
        row = LabelRow(
            label_id=derived_id(batch, run, key),
            batch_id=batch,
            subject_kind="run",
            subject_id=run,
            experiment_id=outputs[0][0],
            example_id=outputs[0][1],
            metric=key,
            value=None if number is None else float(number),
            label=label,
            data_type=None if number is None and label is None else kind,
            comment=comment,
            source=MACHINE if feedback_source_type == "model" else SOURCE,
            metadata=None if source_info is None else to_json(dict(source_info)),
        )
        store.publish("labels", batch, later_labels(store, [row]))
        return next(feedback for feedback in feedback_of(store, [run], key) if feedback.id == row.label_id)

    def read_project(
        self, *, project_id: Identity | None = None, project_name: str | None = None, include_stats: bool = False
    ) -> TracerSession:
        """Return an experiment. Raises InputError if it does not exist."""
        references = _flattened(project_id, project_name)
        if len(references) != 1:
            raise InputError("read_project: wanted exactly one of project_name and project_id")
        (identity,) = find_experiments(Store(), str(references[0]), just_one=True)
        return _project(Store(), identity, include_stats=include_stats)

    def get_test_results(
        self, *, project_id: Identity | None = None, project_name: str | None = None
    ) -> "pd.DataFrame":
        """Return one row per run of an experiment: input.*, outputs.*, reference.*, feedback.*, execution_time, error
        and id, by example.
        """
        import pandas as pd

        project = self.read_project(project_id=project_id, project_name=project_name)
        rows = [_row_of(one, run) for one in _examples_with_runs(Store(), project.id) for run in one.runs]
        return pd.DataFrame(rows)

    @refusing(
        comparative_experiment_id="use what evaluate_comparative returned, or SQL: the view comparisons",
        filters="filter the returned examples",
    )
    def get_experiment_results(
        self,
        name: str | None = None,
        project_id: Identity | None = None,
        preview: bool = False,
        comparative_experiment_id: Identity | None = None,
        filters: Mapping[Any, Any] | None = None,
        limit: int | None = None,
    ) -> Fields:
        """Return an experiment's `feedback_stats`, `run_stats` and `examples_with_runs`, always whole."""
        project = self.read_project(project_id=project_id, project_name=name, include_stats=True)
        names = ("run_count", "error_rate", "latency_p50", "latency_p99", "prompt_tokens", "completion_tokens")
        return {
            "feedback_stats": {**(project.feedback_stats or {}), **(project.session_feedback_stats or {})},
            "run_stats": {one: getattr(project, one) for one in (*names, "total_tokens", "total_cost")},
            "examples_with_runs": islice(_examples_with_runs(Store(), project.id), limit),
        }

    def has_project(self, project_name: str, *, project_id: str | None = None) -> bool:
        """Whether there is an experiment of this name."""
        return any(row.name == project_name for row in all_projects(Store()))

    @refusing(dataset_version="filter the returned experiments by start_time")
    def list_projects(
        self,
        project_ids: Sequence[Identity] | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        reference_dataset_id: Identity | None = None,
        reference_dataset_name: str | None = None,
        reference_free: bool | None = None,
        include_stats: bool | None = None,
        dataset_version: str | None = None,
        limit: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Iterator[TracerSession]:
        """Yield the experiments that match every given filter, newest first. None of them is free of a dataset."""
        ids = None if project_ids is None else {str(identity) for identity in project_ids}
        dataset = dataset_id(reference_dataset_name) if reference_dataset_id is None else str(reference_dataset_id)
        matching = (
            project
            for project in all_projects(Store(), include_stats=bool(include_stats))
            if (ids is None or project.id in ids)
            and name in (None, project.name)
            and (name_contains or "") in project.name
            and dataset in (None, project.reference_dataset_id)
            and not reference_free
            and (metadata or {}).items() <= project.metadata.items()
        )
        return islice(matching, limit)


def _flattened(*arguments: Identity | Sequence[Identity] | None) -> list[Identity]:
    """Return the ids of all arguments, each of which is None, one id or several."""
    return [
        identity
        for argument in arguments
        if argument is not None
        for identity in (argument if isinstance(argument, Sequence) and not isinstance(argument, str) else [argument])
    ]
