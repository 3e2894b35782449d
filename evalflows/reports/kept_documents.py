"""Documents of plans and backtests as they are kept: what `--format json` gives, as far as a terminal shows it."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from evalflows.store.records import DecisionConclusion


class CallSizeDocument(TypedDict):
    tokens_in: float | None
    tokens_out: float | None
    basis: str


class PlannedCallsDocument(TypedDict):
    caller: str
    model: str | None
    calls: int | None
    at_most: bool
    in_ledger: int | None
    usd: float | None
    size: CallSizeDocument
    note: str | None


class EffectDocument(TypedDict):
    purpose: Literal["difference", "non_inferiority", "superiority"]
    declared: float
    size: float


class DesignDocument(TypedDict):
    repetitions: int
    examples: int
    clusters: int | None
    calls: int
    usd: float | None
    is_cheapest: bool


class SampleSizesDocument(TypedDict):
    effect: EffectDocument
    designs: Sequence[DesignDocument]


class MetricPlanDocument(TypedDict):
    metric: str
    sample_sizes: Sequence[SampleSizesDocument]


class CurrentDesignDocument(TypedDict):
    n_clusters: int | None


class PlanDocument(TypedDict):
    name: str
    sentences: Sequence[str]
    is_detail: Sequence[bool]
    calls: Sequence[PlannedCallsDocument]
    design: CurrentDesignDocument
    metrics: Sequence[MetricPlanDocument]


class PastDecisionDocument(TypedDict):
    candidate: str
    baseline: str
    relation: Literal["halves", "baseline", "earlier"]
    is_same_target: bool
    is_refused: bool
    conclusion: DecisionConclusion
    because: str


class BacktestDocument(TypedDict):
    gate: str
    experiments: str
    sentences: Sequence[str]
    decisions: Sequence[PastDecisionDocument]
