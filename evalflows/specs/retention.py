"""How long texts of production are kept."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, model_validator

from evalflows.specs.files import load_spec
from evalflows.specs.model import SpecModel


class RetentionSpec(SpecModel):
    """How long data stay, as given in a spec file or in the form in Prefect's UI. Data without a rule stay."""

    trace_texts_days: int | None = Field(
        None, ge=1, description="Days since its last observation after which the texts of a trace are erased"
    )
    call_texts_days: int | None = Field(
        None,
        ge=1,
        description="Days after which the messages and answers of model calls are erased; erased calls are not reused",
    )
    experiments_days: int | None = Field(
        None,
        ge=1,
        description="Days after which whole experiments are removed, unless a baseline, a decision, a comparison or a "
        "person's label refers to them",
    )
    keep_last: int = Field(3, ge=0, description="The newest experiments of each name that stay, however old")

    @model_validator(mode="after")
    def _has_a_rule(self) -> "RetentionSpec":
        if self.trace_texts_days is None and self.call_texts_days is None and self.experiments_days is None:
            raise ValueError("wanted trace_texts_days, call_texts_days or experiments_days")
        return self


def load_retention(path: str | Path, changes: Sequence[str] = ()) -> RetentionSpec:
    """Read a spec file (YAML). Raise InputError, in one line, if it is invalid."""
    return load_spec(RetentionSpec, path, changes, wanted="trace_texts_days, call_texts_days or experiments_days")
