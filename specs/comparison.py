"""A comparison: experiments that exist, and the evaluators that say which of two answers is better."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from specs.evaluator import FallbackSpec
from specs.running import (
    Adjusted,
    BreakerPause,
    BreakerWindow,
    BudgetUsd,
    ChunkRetries,
    ChunkRetryDelay,
    ChunkSize,
    Connections,
    Fresh,
    Level,
    MaxCalls,
    RunKey,
)
from specs.spec_file import load_spec

FailedOutput = Literal["loses", "left_out"]


def _one_is_many(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


class CompareSpec(BaseModel):
    """How answers are compared. In an experiment's `compare`, the answers are those of its targets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    evaluators: Annotated[list[FallbackSpec], BeforeValidator(_one_is_many)] = Field(
        min_length=1, description="What says which of two answers is better: pairwise_preference, or one of your own"
    )
    pairs: Literal["all", "baseline"] = Field(
        "all", description="Which are compared: every two, or each with the baseline alone"
    )
    randomize_order: bool = Field(
        True, description="Draw for each pair which answer is shown first; else that of the experiment named first is"
    )
    both_orders: bool = Field(
        False, description="Ask twice, with each answer first; verdicts that differ are a tie. Costs twice as much"
    )
    seed: int = Field(
        0, ge=0, lt=1 << 63, description="Another seed draws other orders; the same one the same, for every evaluator"
    )
    failed_output: FailedOutput = Field(
        "loses", description="What becomes of a pair in which one run failed: it loses, or the pair is left out"
    )
    load_nested: bool = Field(
        False, description="Give evaluators the steps of the runs too: model calls and tool calls"
    )
    by: list[str] = Field(
        default_factory=list,
        description="Win rates for each value of these fields of the examples too, such as metadata.topic; where there "
        "are splits, these go without saying",
    )
    max_concurrency: int = Field(5, ge=1, description="Most pairs judged at once, per process")

    @model_validator(mode="after")
    def _evaluators_differ(self) -> "CompareSpec":
        twice = [name for name, count in Counter(one.metric for one in self.evaluators).items() if count > 1]
        if twice:
            raise ValueError(f"evaluators: two are called {twice[0]!r}, wanted a name of its own for each")
        return self


class _Compared(BaseModel):
    """Which experiments, under which name. A base of its own, so that a form begins with it."""

    name: str = Field("", description="What the comparison is called; after the experiments where left out")
    description: str = Field("", description="What it is for")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Whatever should be found again with it")
    tags: list[str] = Field(default_factory=list, description="Words to find it by")
    experiments: list[str] = Field(
        min_length=1, description="Existing experiments, by name or id; a run group stands for all of its experiments"
    )
    baseline: str | None = Field(
        None, description="The experiment that the others are measured by; the first where left out"
    )


class ComparisonSpec(CompareSpec, _Compared):
    """What spec files, the flow's parameters and the form in Prefect's UI share."""

    level: Level = 0.95
    adjustment: Adjusted = "holm"
    connections: Connections
    chunk_size: ChunkSize = None
    chunk_retries: ChunkRetries = 2
    chunk_retry_delay_s: ChunkRetryDelay = 10.0
    budget_usd: BudgetUsd = None
    max_calls: MaxCalls = None
    breaker_window: BreakerWindow = 20
    breaker_pause_s: BreakerPause = 10.0
    run_key: RunKey = None
    fresh: Fresh = False

    @property
    def title(self) -> str:
        """What it is called before the experiments' own names are known."""
        return self.name or " vs ".join(self.experiments)


def load_comparison(path: str | Path, changes: Sequence[str] = ()) -> ComparisonSpec:
    """Read a spec file (YAML), with changes such as `both_orders=true` applied.

    Raises InputError, in one line, for whatever is wrong with it.
    """
    return load_spec(ComparisonSpec, path, changes, wanted="experiments and evaluators")
