"""Specs of production: which traces are judged, which metrics are watched, from which columns traces are made, and
how long texts stay.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from evalflows.specs.evaluator import CompositeSpec, EvaluatorSpec, MetricSpec
from evalflows.specs.files import load_spec
from evalflows.specs.running import (
    BreakerPause,
    BreakerWindow,
    BudgetCountsUnknown,
    BudgetUsd,
    ChunkRetries,
    ChunkRetryDelay,
    Connections,
    MaxCalls,
    Metadata,
    ScoreConfigSpec,
    TaskRunner,
    TaskRunnerSpec,
    UseCache,
)


class RetentionSpec(BaseModel):
    """How long what stays, as given in a spec file or in the form in Prefect's UI. What has no rule stays."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace_texts_days: int | None = Field(
        None, ge=1, description="Days after which the texts of a trace are erased, since its last observation"
    )
    call_texts_days: int | None = Field(
        None,
        ge=1,
        description="Days after which the messages and answers of model calls are erased; none is reused then",
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


class TraceColumns(BaseModel):
    """Which columns an observation is made from. A column may be a path into nested objects, such as `data.question`.

    A field that is not named here comes from the column of its own name, if there is one; columns that nothing names
    become metadata.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: str | None = Field(None, description="What the application was asked")
    output: str | None = Field(None, description="What it answered")
    started_at: str | None = Field(None, description="When it began: ISO 8601, or a number since 1970")
    ended_at: str | None = Field(None, description="When it ended")
    latency_s: str | None = Field(None, description="How long it took, instead of `ended_at`")
    trace_id: str | None = Field(None, description="Its trace; default: an id made of the row")
    span_id: str | None = Field(None, description="Its id within the trace; default: an id made of the row")
    parent_id: str | None = Field(None, description="The id of the observation that it is a part of")
    name: str | None = Field(None, description="Its name; default: `row`")
    type: str | None = Field(None, description="generation, tool, agent, …; default: generation with model or tokens")
    status: str | None = Field(None, description="ok or error")
    error: str | None = Field(None, description="The error's text; an error if there is one")
    session_id: str | None = Field(None, description="The session or conversation")
    user_id: str | None = Field(None, description="The user")
    tags: str | None = Field(None, description="A list, or text with commas between the tags")
    model: str | None = Field(None, description="The model")
    provider: str | None = Field(None, description="The model's provider")
    tokens_in: str | None = Field(None, description="Tokens of the request")
    tokens_out: str | None = Field(None, description="Tokens of the answer")
    cost_usd: str | None = Field(None, description="Cost in USD")
    version: str | None = Field(None, description="The application's version")
    environment: str | None = Field(None, description="Such as production")
    service: str | None = Field(None, description="The application's name")
    metadata: str | None = Field(None, description="An object; columns that nothing names are added to it")


RuleKind = Literal["threshold", "fall", "failure_share", "change"]
WindowSize = Literal["hour", "day"]

KINDS: tuple[RuleKind, ...] = ("threshold", "fall", "failure_share", "change")
FIELDS: dict[RuleKind, frozenset[str]] = {
    "threshold": frozenset({"minimum", "maximum", "confidence_level"}),
    "fall": frozenset({"margin", "against", "confidence_level"}),
    "failure_share": frozenset({"maximum", "confidence_level"}),
    "change": frozenset({"margin"}),
}
"""The fields that only some kinds of rules have."""
ONLY_SOME = frozenset().union(*FIELDS.values())

TRACES = "traces"
"""The metric of a `failure_share` of whole traces: of those whose root span ended in an error."""
MEASURED = ("latency", "cost", "tokens")
"""Metrics of traces that need no evaluator."""

DIMENSIONS = ("tag", "version", "model", "environment")
ALL = "all"
"""The slice with all traces."""

PREVIOUS = "previous"
"""What a `fall` is measured against unless it names an experiment: the previous window."""

LATE_S: dict[WindowSize, float] = {"hour": 900.0, "day": 3600.0}


def _as_fields(rule: object) -> object:
    """Expand the short forms: `accuracy` watches for a change, and {threshold: accuracy, …} names kind and metric."""
    if isinstance(rule, str):
        return {"kind": "change", "metric": rule}
    if isinstance(rule, dict) and "kind" not in rule:
        named: list[Any] = [kind for kind in KINDS if kind in rule]
        if len(named) == 1:
            rest = {name: value for name, value in rule.items() if name != named[0]}
            return {"kind": named[0], "metric": rule[named[0]], **rest}
    return rule


class WatchSpec(BaseModel):
    """One watch rule. It looks once at each window after the window has closed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("", description="The rule's name in alerts; default: its kind and metric")
    kind: RuleKind = Field(
        description="`threshold`: the mean is certainly below `minimum` or above `maximum`; `fall`: it is certainly "
        "worse than before by more than `margin`; `failure_share`: the share of failed judgements, or traces, is "
        "certainly above `maximum`; `change`: a detector of lasting changes for the worse by more than `margin`"
    )
    metric: str = Field(
        min_length=1,
        description="A metric of the evaluators; `latency`, `cost` or `tokens` of traces; for failure_share, a metric "
        f"whose judgements fail, or `{TRACES}`; `closed_modes` for each closed failure mode of the evaluators",
    )
    window: WindowSize = Field("day", description="Length of the windows, in UTC: `hour` or `day`")
    slices: list[str] = Field(
        default_factory=lambda: [ALL],
        min_length=1,
        description="Slices that are watched separately: `tag`, `version`, `model` or `environment` for each of its "
        "values, such as `version=1.4` for one of them, `all` for all traces",
    )
    min_n: int = Field(
        30,
        ge=2,
        description="Scored traces (sessions, if traces have them) that a window needs; with fewer than 30, intervals "
        "of skewed scores cover less often than stated",
    )
    minimum: float | None = Field(None, description="threshold: the mean should be at least this")
    maximum: float | None = Field(
        None, description="threshold: the mean should be at most this; failure_share: as well"
    )
    against: str | None = Field(
        None,
        description=f"fall: `{PREVIOUS}` for the previous window (the default), or the name of an experiment for its "
        "mean",
    )
    margin: float | None = Field(
        None, ge=0, description="fall, change: a loss that does not matter; default: the metric's margin, else 0"
    )
    confidence_level: float | None = Field(
        None,
        gt=0.5,
        lt=1,
        description="Confidence level of the interval of each window and slice; default: as high as needed for at most "
        "one false alarm of the rule in 30 days",
    )
    late_s: float | None = Field(
        None,
        ge=0,
        description="Seconds after a window's end in which late spans still count; default: 900 for hours, 3600 for "
        "days",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, rule: object) -> object:
        return _as_fields(rule)

    @model_validator(mode="after")
    def _is_consistent(self) -> "WatchSpec":
        for field in sorted(ONLY_SOME - FIELDS[self.kind]):
            if getattr(self, field) is not None:
                raise ValueError(f"{field}: got {getattr(self, field)!r} in a rule of kind {self.kind!r}, wanted none")
        bounds = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        if self.kind == "threshold" and len(bounds) != 1:
            raise ValueError(f"threshold of {self.metric!r}: wanted one of minimum and maximum")
        if self.kind == "failure_share" and not (self.maximum is not None and 0 <= self.maximum < 1):
            raise ValueError(f"failure_share of {self.metric!r}: got maximum {self.maximum}, wanted 0 to below 1")
        if not all(map(math.isfinite, (*bounds, self.margin or 0.0))):
            raise ValueError(f"{self.kind} of {self.metric!r}: wanted finite numbers")
        for part in self.slices:
            dimension, is_one, value = part.partition("=")
            if part != ALL and (dimension not in DIMENSIONS or bool(is_one) != bool(value)):
                wanted = ", ".join((ALL, *DIMENSIONS))
                raise ValueError(f"slices: got {part!r}, wanted one of {wanted}, or such as version=1.4")
        return self

    @property
    def title(self) -> str:
        """The rule's name in alerts."""
        return self.name or f"{self.kind} {self.metric}" + (" hourly" if self.window == "hour" else "")

    @property
    def closes_after_s(self) -> float:
        """Seconds between a window's end and its closing."""
        return LATE_S[self.window] if self.late_s is None else self.late_s

    def watches(self, part: str) -> bool:
        """Whether the rule watches a slice, such as `version=1.4`."""
        return part in self.slices or part.partition("=")[0] in self.slices


TraceScope = Literal["traces", "observations", "sessions"]
Filter = str | dict[str, Any] | list[dict[str, Any]]
MAPPED = ("input", "output", "expected_output", "metadata")
"""What a mapper gives to the evaluators."""


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


class TraceEvaluationSpec(BaseModel):
    """A trace evaluation, as given in a spec file, in the flow's parameters, or in the form in Prefect's UI.

    Each start judges what is new since the last one of the same name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="The evaluation's name; its watermark says what is new", min_length=1)
    description: str = Field("", description="The purpose of the evaluation")
    metadata: Metadata
    scope: TraceScope = Field("traces", description="What one item is: a trace, an observation, or a whole session")
    filter: Filter | None = Field(
        None,
        description="Which items: a condition in SQL on the columns of the view of the scope, or JSON as in Langfuse: "
        '{"name": "answer", "tags": ["production"]}, or a list of {column, operator, value, type}',
    )
    mapper: str | dict[str, str] | None = Field(
        None,
        description='What evaluators get of an item: a function "module:name", or paths for input, output, '
        "expected_output and metadata, such as {output: 'observations[type=retriever].output'}; default: its input, "
        "output and metadata",
    )
    evaluators: Annotated[list[EvaluatorSpec], BeforeValidator(_as_list)] = Field(
        min_length=1, description="Evaluators of each item"
    )
    composites: list[CompositeSpec] = Field(
        default_factory=list, description="Several metrics combined into one number per item"
    )
    metrics: dict[str, MetricSpec] = Field(
        default_factory=dict, description="Direction, range and margin of metrics, by name"
    )
    score_configs: dict[str, ScoreConfigSpec] = Field(
        default_factory=dict, description="Allowed values of scores that name one of these configs as their `config_id`"
    )
    watch: Annotated[list[WatchSpec], BeforeValidator(_as_list)] = Field(
        default_factory=list,
        description="Rules that alarm when a metric gets worse; a metric alone stands for a `change` of it",
    )
    settle_s: float | None = Field(
        None,
        ge=0,
        description="Seconds without a new span after which an item is judged; default: 60, and 1800 for sessions",
    )
    max_items: int | None = Field(None, ge=1, description="Maximum number of items per start; the rest comes next")
    fetch_batch_size: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Items in memory at once; the next are read ahead; default: 200, and 1,000 if only rules judge",
    )
    max_concurrency: int | None = Field(
        None, ge=1, description="Maximum number of items judged concurrently, per process"
    )
    connections: Connections
    chunk_retries: ChunkRetries = 2
    chunk_retry_delay_s: ChunkRetryDelay = 2.0
    budget_usd: BudgetUsd = None
    budget_counts_unknown: BudgetCountsUnknown = True
    max_calls: MaxCalls = None
    breaker_window: BreakerWindow = 20
    breaker_pause_s: BreakerPause = 10.0
    use_cache: UseCache = True
    task_runner: TaskRunner = TaskRunnerSpec()

    @model_validator(mode="after")
    def _is_consistent(self) -> "TraceEvaluationSpec":
        names = [*(e.metric for e in self.evaluators), *(composite.name for composite in self.composites)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"evaluators: two are called {name!r}, wanted unique names")
        for evaluator in self.evaluators:
            if evaluator.controls is not None:
                raise ValueError(f"evaluators: {evaluator.metric!r}: got controls, wanted them only in experiments")
        titles = [rule.title for rule in self.watch]
        for title in titles:
            if titles.count(title) > 1:
                raise ValueError(f"watch: two rules are called {title!r}, wanted unique names")
        for rule in self.watch:
            if rule.metric in (TRACES, *MEASURED) and self.scope != "traces":
                raise ValueError(f"watch: {rule.title!r}: got scope {self.scope!r}, wanted traces for {rule.metric!r}")
        if isinstance(self.mapper, dict) and (unknown := self.mapper.keys() - {*MAPPED}):
            raise ValueError(f"mapper: got {min(unknown)!r}, wanted any of {', '.join(MAPPED)}")
        return self

    @field_validator("evaluators")
    @classmethod
    def _names_stand(cls, evaluators: list[EvaluatorSpec]) -> list[EvaluatorSpec]:
        """Call evaluators as their functions, also those called like a measure of runs, which traces do not have."""
        return [
            one if one.name or not one.own_name else one.model_copy(update={"name": one.own_name}) for one in evaluators
        ]

    def direction(self, metric: str) -> MetricSpec:
        """Return the declared properties of a metric, with its direction filled in.

        An evaluator's score that is called like a measure, such as `length`, is a score: higher is better.
        """
        declared = self.metrics.get(metric, MetricSpec())
        is_score = metric in {evaluator.metric for evaluator in self.evaluators}
        higher = declared.is_higher_better("" if is_score else metric)
        return declared.model_copy(update={"higher_is_better": higher})

    @property
    def settles_after_s(self) -> float:
        """Seconds without a new span after which an item is judged."""
        if self.settle_s is not None:
            return self.settle_s
        return 1800.0 if self.scope == "sessions" else 60.0


def load_trace_evaluation(path: str | Path, changes: Sequence[str] = ()) -> TraceEvaluationSpec:
    """Read a spec file (YAML), with changes such as `max_items=100` applied.

    Raise InputError, in one line, if the file is invalid.
    """
    return load_spec(TraceEvaluationSpec, path, changes, wanted="name, evaluators")
