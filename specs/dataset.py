"""Dataset specs: where the examples come from, which of them are used, and which expectations they must meet."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evalflows.specs.columns import ExampleColumns
from evalflows.specs.trace_selection import TraceSelection


class Expectation(BaseModel):  # type: ignore[no-redef]  # mypy's plugin also defines kwargs
    """An expectation of Great Expectations, as in the JSON of a suite.

    Columns are those of an example (example_id, split, cluster, and as JSON text inputs, reference_outputs, metadata),
    and each field by its path: inputs.question, reference_outputs.answer, metadata.topic.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str = Field(description="The expectation's type, such as expect_column_values_to_be_in_set")
    kwargs: dict[str, Any] = Field(default_factory=dict)
    severity: Literal["critical", "warning", "info"] = Field(
        "critical", description="An unmet critical expectation stops the run before any model call is paid"
    )


class DatasetSpec(BaseModel):
    """Where the examples come from: exactly one of a file, a function, a dataset's name, a snapshot, the rows, or
    production's traces."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = Field(
        None, description="A file of rows: .jsonl, .json, .csv or .parquet; ${NAME} is an environment variable"
    )
    function: str | None = Field(None, description='A function that yields the rows: "module:name"')
    name: str | None = Field(
        None, description="The dataset's name; given alone, it means the newest snapshot of that name"
    )
    snapshot: str | None = Field(None, description="The id of a snapshot in the store")
    rows: list[dict[str, Any]] | None = Field(None, description='Rows of {"inputs", "reference_outputs", "metadata"}')
    traces: TraceSelection | None = Field(
        None, description="Traces or sessions of production; with a name, the dataset grows by them"
    )
    columns: ExampleColumns | None = Field(
        None, description="Which columns to use if the rows do not have the fields {inputs, reference_outputs, …}"
    )
    turns: Literal["whole", "next"] | None = Field(
        None,
        description="For rows with a conversation in inputs.messages: `next` makes an example of each assistant turn, "
        "`whole` of each conversation, answered from its opening; default: each row is an example",
    )
    splits: list[str] | None = Field(None, description="Only the examples of these splits")
    sample: int | None = Field(None, ge=1, description="Use a random sample of this many examples")
    seed: int = Field(0, description="Seed of the sample")
    expectations: list[Expectation] | str | None = Field(
        None, description="Expectations that the examples must meet: a list, or the path of a suite as JSON"
    )

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
