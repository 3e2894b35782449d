"""Votes: recorded verdicts on pairs of systems, as people give them in an arena."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

OrderStatus = Literal["known", "drawn", "unknown"]

OrderRule = Literal["strict", "sum", "mean"]
"""How the verdicts of a pair in both orders are combined."""

VOTE_FIELDS = ("prompt", "first", "second", "winner", "scores", "weight", "order", "status", "comment", "metric")
"""The fields of a vote; other columns of its row are its metadata."""

OTHER_NAMES = {"prompt": ("question_id", "example_id"), "first": ("model_a",), "second": ("model_b",)}
"""Names of columns that are read too if the file has no column of the field's own name."""


class VotesSpec(BaseModel):
    """A file of votes. A plain string is short for `path`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="A file of votes: .jsonl, .json, .csv or .parquet, optionally gzipped (.gz)")
    order: OrderStatus | None = Field(
        None,
        description="What is known of the order in which the answers were shown: `known` (first and second are the "
        "positions), `drawn` (at random, but not recorded) or `unknown`; default: known if the file has any two "
        "systems in both orders, else unknown",
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="The file's columns for prompt, first, second, winner, scores, weight, order, status, comment and "
        "metric, where their names differ",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _columns_are_fields(self) -> "VotesSpec":
        if unknown := [name for name in self.columns if name not in VOTE_FIELDS]:
            raise ValueError(f"columns: got {unknown[0]!r}, wanted one of {', '.join(VOTE_FIELDS)}")
        return self


class RatingsSpec(BaseModel):
    """How ratings are estimated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    guard: Literal["needed", "always", "never"] = Field(
        "needed",
        description="Which entries get a weak prior, which keeps ratings finite: those that need it, because they "
        "never lost or never won against the rest; all; or none (then there may be no ratings)",
    )
    order_term: bool | None = Field(
        None,
        description="Estimate the judge's preference for the first position along with the ratings; default: if the "
        "order is known",
    )
