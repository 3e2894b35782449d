"""LangSmith's objects, with its attribute names and the store's data. Ids are the store's, as text."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from evalflows.specs.frozen import dataclass

__all__ = [
    "Attachment", "AttachmentInfo", "AttachmentsOperations", "ComparativeExperiment", "ComparisonEvaluationResult",
    "DataType", "Dataset", "DatasetDiffInfo", "DatasetVersion", "EvaluationResult", "Example", "ExampleCreate",
    "ExampleUpdate", "ExampleWithRuns", "Feedback", "Run", "TracerSession",
]  # fmt: skip

Fields = dict[str, Any]
Identity = str | uuid.UUID


class Model:
    """What programs call of LangSmith's objects, which are pydantic's: their fields as a mapping or as JSON."""

    __slots__ = ()

    def model_dump(self, *, exclude_none: bool = False, **options: Any) -> Fields:
        """Return the fields; other options than `exclude_none` have no effect."""
        given = asdict(self)  # type: ignore[call-overload]  # every subclass is a dataclass
        return {name: value for name, value in given.items() if not exclude_none or value is not None}

    def model_dump_json(self, *, exclude_none: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(self.model_dump(exclude_none=exclude_none), default=str, indent=indent)

    dict, json = model_dump, model_dump_json


class DataType(StrEnum):
    """Kinds of datasets. Only `kv`, whose examples are mappings, can be created here."""

    kv = "kv"
    llm = "llm"
    chat = "chat"


class Attachment(NamedTuple):
    """A file of an example. A path needs `dangerously_allow_filesystem=True`."""

    mime_type: str
    data: bytes | Path


class AttachmentInfo(TypedDict):
    """A file of an example as targets and evaluators get it."""

    presigned_url: str  # a data URL
    reader: Any  # of bytes
    mime_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(Model):
    """A named dataset in its current version."""

    id: str
    name: str
    description: str | None = None
    data_type: str = "kv"
    created_at: datetime
    modified_at: datetime
    example_count: int = 0
    metadata: Fields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Model):
    """An example; `outputs` are the reference outputs. `split` and `cluster` are additions of ours."""

    id: str
    inputs: Fields
    outputs: Fields | None = None
    metadata: Fields | None = None
    dataset_id: str | None = None
    created_at: datetime | None = None
    attachments: Fields | None = None
    split: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleCreate(Model):
    """An example to add. `outputs` and `reference_outputs` are two names for the same."""

    id: Identity | None = None
    inputs: Mapping[str, Any] | None = None
    outputs: Mapping[str, Any] | None = None
    reference_outputs: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    split: str | Sequence[str] | None = None
    attachments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentsOperations:
    """What happens to the attachments that an example has: those neither renamed nor retained are dropped."""

    rename: Mapping[str, str] = field(default_factory=dict)
    retain: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleUpdate(Model):
    """A change of an example. A field that is None stays as it is."""

    id: Identity
    dataset_id: Identity | None = None
    inputs: Mapping[str, Any] | None = None
    outputs: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    split: str | Sequence[str] | None = None
    attachments: Mapping[str, Any] | None = None
    attachments_operations: AttachmentsOperations | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersion(Model):
    """A version of a dataset. `snapshot_id`, an addition of ours, identifies its content."""

    as_of: datetime
    snapshot_id: str
    tags: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDiffInfo(Model):
    """The ids of the examples that two versions of a dataset do not share."""

    examples_modified: list[str]
    examples_added: list[str]
    examples_removed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Model):
    """One answer of a target to one example; `child_runs` are its nested steps."""

    id: str
    name: str = "Target"
    run_type: str = "chain"
    inputs: Fields = field(default_factory=dict)
    outputs: Fields | None = None
    error: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    reference_example_id: str | None = None
    session_id: str | None = None  # the experiment
    trace_id: str | None = None
    parent_run_id: str | None = None
    child_runs: list["Run"] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_cost: float | None = None  # None if a price is not known
    metadata: Fields = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    feedback_stats: Fields | None = None  # of a run that was read: {key: {"n", "avg"}}
    url: str | None = None  # of its page, if a dashboard's address is known

    @property
    def extra(self) -> Fields:
        return {"metadata": self.metadata}

    @property
    def status(self) -> str:
        return "success" if self.error is None else "error"

    @property
    def latency(self) -> float | None:
        """Latency in seconds."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time).total_seconds()

    @property
    def total_tokens(self) -> int | None:
        """The sum of prompt and completion tokens; None unless both are known."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleWithRuns(Example):
    """An example with its runs in one experiment."""

    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult(Model):
    """A judgement, as returned by an evaluator and as found in results.

    A failed one has no score, its error as the comment, and `{"error": True}` in `extra`.
    """

    key: str
    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    metadata: Fields | None = None
    extra: Fields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEvaluationResult(Model):
    """A preference, as returned by a pairwise evaluator and as found in results: scores, higher is better.

    If it failed or does not apply, every score is None; if it failed, the comment is the error.
    """

    key: str
    scores: Mapping[Identity, float | bool | None]  # by run
    source_run_id: Identity | None = None  # evaluators' work is not recorded as runs here
    comment: str | Mapping[Identity, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparativeExperiment(Model):
    """A comparison of experiments."""

    id: str
    name: str
    description: str | None = None
    created_at: datetime
    modified_at: datetime
    reference_dataset_id: str | None = None
    extra: Fields | None = None
    experiments_info: list[Fields] | None = None

    @property
    def metadata(self) -> Fields:
        return (self.extra or {}).get("metadata") or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback(Model):
    """An evaluator's judgement of a run, or a person's label. A preference gives feedback on each of its two runs."""

    id: str
    run_id: str
    key: str
    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    created_at: datetime
    session_id: str | None = None
    extra: Fields | None = None
    comparative_experiment_id: str | None = None

    @property
    def trace_id(self) -> str:
        return self.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TracerSession(Model):
    """An experiment, which LangSmith calls a project. Statistics are None unless requested."""

    id: str
    name: str
    description: str | None = None
    start_time: datetime
    end_time: datetime | None = None
    metadata: Fields = field(default_factory=dict)
    reference_dataset_id: str | None = None
    run_count: int | None = None
    error_rate: float | None = None
    latency_p50: timedelta | None = None
    latency_p99: timedelta | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_cost: float | None = None
    feedback_stats: Fields | None = None
    session_feedback_stats: Fields | None = None
    url: str | None = None  # of its page, if a dashboard's address is known

    @property
    def total_tokens(self) -> int | None:
        """The sum of prompt and completion tokens; None unless both are known."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens
