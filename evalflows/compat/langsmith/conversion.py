"""The store's examples, with their attachments, runs and scores as LangSmith's objects."""

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from evalflows.compat.langsmith.schemas import EvaluationResult, Example, Fields, Identity, Run
from evalflows.engine.views import run_view
from evalflows.evaluators.views import ExampleView, RunView, with_attributes
from evalflows.specs.attachments import readable_content
from evalflows.specs.errors import InputError, short
from evalflows.specs.grouping import grouped
from evalflows.store.attachments import opened_row
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExampleRow, ExperimentRow, JudgementRow, OutputRow, from_json, to_json
from evalflows.store.store import Store

Step = Mapping[str, Any]

_STORED = {"mime_type", "base64"}


def given(arguments: Mapping[str, Any]) -> Fields:
    """Return those arguments of a test that JSON can hold, such as parameters; others are objects of its fixtures."""
    return {name: value for name, value in arguments.items() if _is_json(value)}


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except (TypeError, ValueError):
        return False
    return True


def dataset_id(name: str | None) -> str | None:
    """Return a dataset's id, derived from its name, so that every process gets the same id."""
    return None if name is None else str(uuid.uuid5(uuid.NAMESPACE_URL, f"evalflows:dataset/{name}"))


def run_key(identity: Identity) -> str:
    """Return a run's id as in the store, also if it was converted to a UUID."""
    return str(identity).replace("-", "")


def example_of(row: ExampleRow, dataset: str | None) -> Example:
    row = opened_row(Store(), row)
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
    return replace(
        run_of_view(run_view(row, inputs)),
        error=None if row.status == "ok" else row.error or row.status,
        reference_example_id=row.example_id,
        session_id=row.experiment_id,
    )


def run_of_view(view: RunView) -> Run:
    return Run(
        id=view.id,
        inputs=with_attributes(view.inputs),
        outputs=with_attributes(view.outputs),
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
        inputs=with_attributes(view.inputs),
        outputs=with_attributes(view.reference_outputs),
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


def results_of_judgement(row: JudgementRow, keys: Mapping[str, Sequence[str]]) -> list[EvaluationResult]:
    """Return a score as results; of an evaluator that failed, one under each of its `keys`, by its name."""
    result = result_of(row)
    if result.extra and row.metric == row.evaluator and (named := keys.get(row.evaluator)):
        return [replace(result, key=key) for key in named]
    return [result]


def score_of(value: float | None, data_type: str | None) -> float | bool | None:
    return bool(value) if value is not None and data_type == "BOOLEAN" else value


def _children(steps: Sequence[Step], root: str) -> list[Run]:
    """Return a run's steps as a tree. A step whose parent is unknown becomes a child of the run itself."""
    known = {step.get("id") for step in steps} - {None}
    by_parent = grouped((step["parent"] if step.get("parent") in known else root, step) for step in steps)
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


def experiment_of(store: Store, experiment: Any, where: str = "evaluate_comparative: experiments") -> ExperimentRow:
    """Find an experiment by name, id, or an object with an id. Raise InputError if it does not exist."""
    reference = getattr(experiment, "experiment_id", None) or getattr(experiment, "id", None) or experiment
    if not isinstance(reference, Identity):
        wanted = "an experiment's name or id, or a result of evaluate"
        raise InputError(f"{where}: got {type(experiment).__name__}, wanted {wanted}")
    (identity,) = find_experiments(store, str(reference), just_one=True)
    row: ExperimentRow = store.read("experiments", identity)[0]
    return row


class AttachmentReader(BytesIO):
    """The bytes of an attachment. Two readers are equal if their contents are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttachmentReader) and self.getvalue() == other.getvalue()

    __hash__ = None  # type: ignore[assignment]


def to_stored(attachments: Mapping[str, Any], where: str, *, may_read_files: bool = False) -> Fields:
    """Return attachments as JSON values: `{"mime_type", "base64"}` for bytes; any other JSON value unchanged.

    Bytes come as (MIME type, bytes), as {"mime_type", "data"}, or as a listed example has them. Raise InputError for
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
    if given := readable_content(attachment):
        attachment = {"mime_type": given.attachment.media_type, "base64": given.base64}
    if not isinstance(attachment, Mapping) or attachment.keys() != _STORED:
        return attachment
    mime_type, text = attachment["mime_type"], attachment["base64"]
    return {
        "presigned_url": f"data:{mime_type or ''};base64,{text}",
        "reader": AttachmentReader(base64.b64decode(text)),
        "mime_type": mime_type,
    }
