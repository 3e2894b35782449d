"""Dataset specs: where the examples come from, which of them are used, and which expectations they must meet."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from evalflows.specs.columns import ExampleColumns
from evalflows.specs.errors import InputError, short
from evalflows.specs.files import FilePath
from evalflows.specs.model import SpecModel
from evalflows.specs.moments import in_utc
from evalflows.specs.traces import MAPPED, Filter
from evalflows.specs.values import stored_row

SelectedScope = Literal["traces", "sessions"]
SelectionOrder = Literal["newest", "worst", "uncertain", "random"]
RANKED: tuple[SelectionOrder, ...] = ("worst", "uncertain")
"""Orders by the scores of a metric."""

_FILE = re.compile(r".+\.(jsonl|ndjson|json|csv|parquet)(\.gz)?", re.IGNORECASE)


Moment = Annotated[datetime, AfterValidator(in_utc)]
"""A moment; in UTC unless it says otherwise."""


class TraceSelection(SpecModel):
    """Which traces or sessions become examples: in which time and order, with which inputs, and what is masked."""

    scope: SelectedScope = Field("traces", description="What one example comes from: a trace, or a whole session")
    filter: Filter | None = Field(
        None, description="Only items that meet a condition: SQL, or JSON as in trace evaluations"
    )
    since: Moment | None = Field(None, description="Only items that began at this time or later")
    until: Moment | None = Field(None, description="Only items that began until this time")
    limit: int | None = Field(
        None, ge=1, description="Maximum number of different inputs, including those that the dataset already has"
    )
    order: SelectionOrder = Field(
        "newest",
        description="Which items come first: the newest, those with the worst or the least certain scores of a "
        "metric, or a random sample",
    )
    metric: str | None = Field(None, description="The metric of the orders worst and uncertain")
    seed: int = Field(0, description="Seed of the random order")
    mapper: str | dict[str, str] | None = Field(
        None,
        description='The parts of an example: a function "module:name", or paths for input, expected_output and '
        "metadata, as in trace evaluations; default: the input of the trace, or the conversation of the session",
    )
    turns: Literal["whole", "next"] | None = Field(
        None,
        description="For sessions without a mapper: `whole` makes an example of each conversation, answered from its "
        "opening, `next` of each turn of the assistant; default: whole",
    )
    keep_output_as_reference: bool = Field(
        False, description="Whether the application's answer becomes the reference, unless the mapper gives one"
    )
    mask: dict[str, str] = Field(
        default_factory=dict, description="Further secrets to mask, as name: regular expression"
    )

    @field_validator("mask")
    @classmethod
    def _patterns_work(cls, mask: dict[str, str]) -> dict[str, str]:
        for name, pattern in mask.items():
            if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
                raise ValueError(f"got the name {name!r}, wanted lower-case letters, digits and hyphens: ticket-number")
            try:
                matches_nothing = re.compile(pattern).match("") is not None
            except re.error as error:
                raise ValueError(f"{name}: got {pattern!r}, wanted a regular expression: {error}") from error
            if matches_nothing:
                raise ValueError(f"{name}: got {pattern!r}, which matches an empty text, wanted one that does not")
        return mask

    @model_validator(mode="after")
    def _is_consistent(self) -> "TraceSelection":
        if self.order in RANKED and self.metric is None:
            raise ValueError(f"order: got {self.order} without a metric, wanted metric too")
        if self.order not in RANKED and self.metric is not None:
            raise ValueError(f"metric: got {self.metric!r} with the order {self.order}, wanted {' or '.join(RANKED)}")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError(f"until: got {self.until:%Y-%m-%d %H:%M}, wanted a moment after since")
        if self.turns is not None and (self.scope != "sessions" or self.mapper is not None):
            raise ValueError("turns: wanted only with the scope sessions, and without a mapper")
        if isinstance(self.mapper, dict) and (unknown := self.mapper.keys() - {*MAPPED}):
            raise ValueError(f"mapper: got {min(unknown)!r}, wanted any of {', '.join(MAPPED)}")
        return self


class Expectation(SpecModel):  # type: ignore[no-redef]  # mypy's plugin also defines kwargs
    """An expectation of Great Expectations, as in the JSON of a suite.

    Columns are those of an example (example_id, split, cluster, and as JSON text inputs, reference_outputs, metadata),
    and each field by its path: inputs.question, reference_outputs.answer, metadata.topic.
    """

    model_config = ConfigDict(extra="ignore")

    type: str = Field(description="The expectation's type, such as expect_column_values_to_be_in_set")
    kwargs: dict[str, Any] = Field(default_factory=dict)
    severity: Literal["critical", "warning", "info"] = Field(
        "critical", description="An unmet critical expectation stops the run before any paid model call"
    )


class DatasetSpec(SpecModel):
    """Where the examples come from: exactly one of a file, a function, a dataset's name, a snapshot, the rows, or
    production's traces.

    A text in its place is a file's path, by its ending, a snapshot's id, or a dataset's name.
    """

    path: FilePath | None = Field(
        None,
        description="A file of rows: .jsonl, .json, .csv or .parquet; ${NAME} is an environment variable; it may "
        "begin with `file://`, and a backslash is a slash",
    )
    name: str | None = Field(None, description="The dataset's name; alone, it means the newest snapshot with that name")
    sample: int | None = Field(None, ge=1, description="Use a random sample of this many examples")
    seed: int = Field(0, description="Seed of the sample")
    splits: list[str] | None = Field(
        None,
        description="Only the examples of these splits. If a dataset has a split `final`, `gate` by default runs only "
        "that split, and everything else leaves it out",
    )
    drafts: bool = Field(
        False,
        description="Whether drafts are used too: examples with `draft: true` in their metadata, which nobody has "
        "accepted yet; by default they are left out, and with them no gate decides",
    )
    function: str | None = Field(None, description='A function that yields the rows: "module:name"')
    snapshot: str | None = Field(None, description="The id of a snapshot in the store")
    rows: list[dict[str, Any]] | None = Field(None, description='Rows of {"inputs", "reference_outputs", "metadata"}')
    traces: TraceSelection | None = Field(
        None, description="Traces or sessions of production; with a name, they are added to that dataset"
    )
    columns: ExampleColumns | None = Field(
        None, description="Which columns to use if the rows do not have the fields {inputs, reference_outputs, …}"
    )
    turns: Literal["whole", "next"] | None = Field(
        None,
        description="For rows with a conversation in inputs.messages: `next` makes an example of each assistant turn, "
        "`whole` of each conversation, answered from its opening; default: each row is an example",
    )
    expectations: list[Expectation] | str | None = Field(
        None, description="Expectations that the examples must meet: a list, or the path of a suite as JSON"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: Any) -> Any:
        if isinstance(given, Mapping | DatasetSpec):
            return given
        if not isinstance(given, str) or not given.strip():
            wanted = "a file's path, a snapshot's id, a dataset's name, or a mapping such as {rows: […]}"
            raise ValueError(f"got {short(given)}, wanted {wanted}")
        return {"path" if _FILE.fullmatch(given) else "snapshot" if given.startswith("snap-") else "name": given}

    @field_validator("rows")
    @classmethod
    def _as_stored(cls, rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        try:
            return rows and [stored_row(row, str(number)) for number, row in enumerate(rows, start=1)]
        except InputError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetSpec":
        names = ("path", "function", "snapshot", "rows", "traces")
        sources = [key for key in names if getattr(self, key) is not None]
        if len(sources) > 1:
            raise ValueError(f"got {' and '.join(sources)}, wanted just one of {', '.join(names)}")
        if not sources and self.name is None:
            raise ValueError("got no source, wanted one of path, function, name, snapshot, rows and traces")
        is_read = bool({"path", "function", "rows"} & {*sources})
        if self.columns is not None and not is_read:
            raise ValueError(
                "columns: wanted only with path, function or rows; snapshots in the store have fixed fields"
            )
        if self.turns is not None and not is_read:
            raise ValueError(
                "turns: wanted only with path, function or rows; snapshots in the store already hold examples"
            )
        return self
