"""Comparison specs: existing experiments, or votes of people, and the evaluators that choose the better of two
answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from evalflows.specs.evaluator import JudgeSpec
from evalflows.specs.files import FilePath, load_spec
from evalflows.specs.model import SpecModel
from evalflows.specs.running import ONE_OR_MORE, ComparedRunSettings, Metadata, check_unique

OrderStatus = Literal["known", "drawn", "unknown"]

OrderRule = Literal["strict", "sum", "mean"]
"""How the verdicts of a pair in both orders are combined."""

VOTE_FIELDS = ("prompt", "first", "second", "winner", "scores", "weight", "order", "status", "comment", "metric")
"""The fields of a vote; other columns of its row are its metadata."""

OTHER_NAMES = {"prompt": ("question_id", "example_id"), "first": ("model_a",), "second": ("model_b",)}
"""Names of columns that are read too if the file has no column of the field's own name."""


class VotesSpec(SpecModel):
    """A file of votes. A plain string is short for `path`."""

    path: FilePath = Field(description="A file of votes: .jsonl, .json, .csv or .parquet, optionally gzipped (.gz)")
    order: OrderStatus | None = Field(
        None,
        description="Whether the order of the shown answers is known: `known` (first and second are the positions), "
        "`drawn` (at random, but not recorded) or `unknown`; default: known if the file has any two systems in both "
        "orders, else unknown",
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


class RatingsSpec(SpecModel):
    """How ratings are estimated."""

    guard: Literal["needed", "always", "never"] = Field(
        "needed",
        description="Entries with a weak prior, which keeps ratings finite: those that need it, because they never "
        "lost or never won against the rest; all; or none (then there may be no ratings)",
    )
    order_term: bool | None = Field(
        None,
        description="Estimate the judge's preference for the first position along with the ratings; default: if the "
        "order is known",
    )


FailedOutput = Literal["loses", "left_out"]


class PairJudgeSpec(JudgeSpec):
    """An evaluator that chooses the better of two answers, or scores those of all candidates."""

    compares: Literal["pairs", "all"] = Field(
        "pairs",
        description="What a function of your own gets: the two answers of a pair, or those of all candidates at once, "
        "of which it scores each; one that asks for `candidates` always gets all",
    )

    @model_validator(mode="after")
    def _compares_by_itself(self) -> "PairJudgeSpec":
        if self.compares == "all" and self.tiers:
            raise ValueError("compares: got all beside tiers, wanted tiers that ask for `candidates`")
        return self


class CompareSpec(SpecModel):
    """How answers are compared. As an experiment's `compare`, it compares the answers of its targets."""

    evaluators: Annotated[list[PairJudgeSpec], ONE_OR_MORE] = Field(
        min_length=1, description="Evaluators that choose the better of two answers: pairwise_preference, or your own"
    )
    pairs: Literal["all", "baseline"] = Field(
        "all", description="Which experiments are compared: every pair, or each with the baseline only"
    )
    randomize_order: bool = Field(
        True,
        description="Randomize which answer of a pair is shown first; if false, the first experiment's answer is "
        "always first",
    )
    both_orders: bool = Field(
        False,
        description="Ask twice, with each answer shown first once; `order_rule` combines the verdicts. Doubles the "
        "cost",
    )
    order_rule: OrderRule = Field(
        "strict",
        description="How two verdicts in both orders count: `strict` (a win needs both, else it is a tie), `sum` (a "
        "win and a tie are a win), or `mean` (a win and a tie are 0.75 points); opposite verdicts are always a tie",
    )
    seed: int = Field(
        0, ge=0, lt=1 << 63, description="Seed of the random order; the same seed gives every evaluator the same order"
    )
    failed_output: FailedOutput = Field(
        "loses", description="If one run of a pair failed: it loses, or the pair is left out"
    )
    load_nested: bool = Field(
        False, description="Also give evaluators the steps of the runs: model calls and tool calls"
    )
    slice_by: list[str] = Field(
        default_factory=list,
        description="Also report win rates for each value of these example fields, such as metadata.topic; splits are "
        "always reported",
    )
    ratings: RatingsSpec = Field(
        RatingsSpec(guard="needed", order_term=None),
        description="How ratings are estimated, for three or more experiments",
    )
    batch: int | None = Field(
        None,
        ge=10,
        description="Judge the pairs of this many examples at a time, in random order, and stop once every win rate "
        "is decided; their intervals hold at each of these looks",
    )
    max_concurrency: int = Field(5, ge=1, description="Maximum number of pairs judged concurrently, per process")

    @model_validator(mode="after")
    def _evaluators_differ(self) -> "CompareSpec":
        check_unique("evaluators", [spec.metric for spec in self.evaluators])
        return self


class _Compared(SpecModel):
    """Which experiments are compared, and under which name. A separate base class, so that forms show it first."""

    name: str = Field("", description="The comparison's name; default: made from the experiments' names")
    description: str = Field("", description="The purpose of the comparison")
    metadata: Metadata
    tags: list[str] = Field(default_factory=list, description="Tags to search by")
    experiments: list[str] = Field(
        default_factory=list,
        description="Existing experiments, by name or id; a run group means all of its experiments",
    )
    baseline: str | None = Field(
        None, description="The experiment that the others are compared with; default: the first"
    )
    votes: VotesSpec | None = Field(
        None, description="A file of votes on pairs of systems, instead of experiments and evaluators"
    )


class ComparisonSpec(ComparedRunSettings, CompareSpec, _Compared):
    """A comparison, as given in a spec file, in the flow's parameters, or in the form in Prefect's UI.

    Either evaluators judge the answers of experiments, or the verdicts are recorded votes on named systems.
    """

    evaluators: Annotated[list[PairJudgeSpec], ONE_OR_MORE] = Field(
        default_factory=list,
        description="Evaluators that choose the better of two answers: pairwise_preference, or your own",
    )

    @model_validator(mode="after")
    def _has_verdicts(self) -> "ComparisonSpec":
        wanted = "experiments and evaluators, or votes"
        if self.votes is None:
            if missing := [name for name in ("experiments", "evaluators") if not getattr(self, name)]:
                raise ValueError(f"{missing[0]}: got none, wanted {wanted}")
        elif self.evaluators:
            raise ValueError(f"votes: got them with evaluators, wanted {wanted}")
        elif self.batch is not None:
            raise ValueError("batch: got it with votes, which are already recorded, wanted one of them")
        return self

    @property
    def title(self) -> str:
        """The comparison's name before the experiments' own names are known."""
        return self.name or " vs ".join(self.experiments) or (Path(self.votes.path).name if self.votes else "")


def load_comparison(path: str | Path, changes: Sequence[str] = ()) -> ComparisonSpec:
    """Read a spec file (YAML), with changes such as `both_orders=true` applied.

    Raise InputError, in one line, if the file is invalid.
    """
    return load_spec(ComparisonSpec, path, changes, wanted="experiments and evaluators, or votes")
