"""A dataset: where the examples come from."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class DatasetSpec(BaseModel):
    """Exactly one of a file, a dataset's name, a snapshot, or the rows themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = Field(None, description="A JSONL file, one example a line")
    name: str | None = Field(
        None, description="The dataset's name; alone, it stands for the newest snapshot kept under it"
    )
    snapshot: str | None = Field(None, description="The id of a snapshot in the store")
    rows: list[dict[str, Any]] | None = Field(None, description='Rows of {"inputs", "reference_outputs", "metadata"}')

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetSpec":
        sources = [key for key in ("path", "snapshot", "rows") if getattr(self, key) is not None]
        if len(sources) > 1:
            raise ValueError(f"got {' and '.join(sources)}, wanted just one of path, snapshot and rows")
        if not sources and self.name is None:
            raise ValueError("got no source, wanted one of path, name, snapshot and rows")
        return self
