"""A dataset: where the examples come from, which of them are taken, and what they must be like."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from specs.columns import ExampleColumns


class Expectation(BaseModel):  # type: ignore[no-redef]  # the plugin of mypy has a kwargs of its own
    """One of Great Expectations' expectations, as in a suite's JSON.

    The columns are those of an example (example_id, split, cluster, inputs, reference_outputs, metadata; these three
    as JSON text) and every field by its own name: inputs.question, reference_outputs.answer, metadata.topic.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str = Field(description="Such as expect_column_values_to_be_in_set")
    kwargs: dict[str, Any] = Field(default_factory=dict)
    severity: Literal["critical", "warning", "info"] = Field(
        "critical", description="A critical one that is not met stops the run before anything is paid"
    )


class DatasetSpec(BaseModel):
    """Exactly one of a file, a function, a dataset's name, a snapshot, or the rows themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = Field(
        None, description="A file of rows: .jsonl, .json, .csv or .parquet; ${NAME} is an environment variable"
    )
    function: str | None = Field(None, description='A function that yields the rows: "module:name"')
    name: str | None = Field(
        None, description="The dataset's name; alone, it stands for the newest snapshot kept under it"
    )
    snapshot: str | None = Field(None, description="The id of a snapshot in the store")
    rows: list[dict[str, Any]] | None = Field(None, description='Rows of {"inputs", "reference_outputs", "metadata"}')
    columns: ExampleColumns | None = Field(
        None, description="Which columns are what, where the rows are not of {inputs, reference_outputs, …}"
    )
    turns: Literal["whole", "next"] | None = Field(
        None,
        description="Of rows that hold a conversation under inputs.messages: `next` makes each turn of the assistant's "
        "an example, `whole` each conversation, answered from its opening; left out, a row is an example as it is",
    )
    splits: list[str] | None = Field(None, description="Only the examples of these splits")
    sample: int | None = Field(None, ge=1, description="Only so many of the examples, drawn with the seed")
    seed: int = Field(0, description="Another seed draws other examples")
    expectations: list[Expectation] | str | None = Field(
        None, description="What the examples must be like: expectations, or the path of a suite as JSON"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetSpec":
        names = ("path", "function", "snapshot", "rows")
        sources = [key for key in names if getattr(self, key) is not None]
        if len(sources) > 1:
            raise ValueError(f"got {' and '.join(sources)}, wanted just one of {', '.join(names)}")
        if not sources and self.name is None:
            raise ValueError("got no source, wanted one of path, function, name, snapshot and rows")
        is_read = bool({"path", "function", "rows"} & {*sources})
        if self.columns is not None and not is_read:
            raise ValueError("columns: wanted only with path, function or rows; what is in the store has its fields")
        if self.turns is not None and not is_read:
            raise ValueError("turns: wanted only with path, function or rows; what is in the store is examples already")
        return self
