"""Specs of trace evaluations: which traces of production are judged, and by what."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.files import load_spec
from evalflows.specs.metrics import CompositeSpec, MetricSpec, ScoreConfigSpec, expand_panels
from evalflows.specs.model import SpecModel
from evalflows.specs.running import ONE_OR_MORE, Metadata, RunSettings, check_unique
from evalflows.specs.watch import MEASURED, TRACES, WatchSpec

TraceScope = Literal["traces", "observations", "sessions"]
Filter = str | dict[str, Any] | list[dict[str, Any]]
MAPPED = ("input", "output", "expected_output", "metadata")
"""What a mapper gives to the evaluators."""


class _TraceEvaluation(SpecModel):
    """The fields that only a trace evaluation has. A separate base class, so that forms show them first."""

    name: str = Field(description="The evaluation's name; its watermark separates old and new items", min_length=1)
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
        description='The parts of an item that evaluators get: a function "module:name", or paths for input, output, '
        "expected_output and metadata, such as {output: 'observations[type=retriever].output'}; default: its input, "
        "output and metadata",
    )
    evaluators: Annotated[list[EvaluatorSpec], ONE_OR_MORE] = Field(min_length=1, description="Evaluators of each item")
    composites: list[CompositeSpec] = Field(
        default_factory=list, description="Several metrics combined into one number per item"
    )
    metrics: dict[str, MetricSpec] = Field(
        default_factory=dict, description="Direction, range and margin of metrics, by name"
    )
    score_configs: dict[str, ScoreConfigSpec] = Field(
        default_factory=dict, description="Allowed values of scores that name one of these configs as their `config_id`"
    )
    watch: Annotated[list[WatchSpec], ONE_OR_MORE] = Field(
        default_factory=list,
        description="Rules that alarm when a metric gets worse; a metric alone means a `change` of it",
    )
    settle_s: float | None = Field(
        None,
        ge=0,
        description="Seconds without a new span after which an item is judged; default: 60, and 1800 for sessions",
    )
    max_items: int | None = Field(
        None, ge=1, description="Maximum number of items per start; the next start judges the rest"
    )
    fetch_batch_size: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Items in memory at once, and the next are read ahead; default: 200, or 1,000 if only rules judge",
    )
    max_concurrency: int | None = Field(
        None, ge=1, description="Maximum number of items judged concurrently, per process"
    )


class TraceEvaluationSpec(RunSettings, _TraceEvaluation):
    """A trace evaluation, as given in a spec file, in the flow's parameters, or in the form in Prefect's UI.

    Each start judges what is new since the last one of the same name.
    """

    @model_validator(mode="after")
    def _is_consistent(self) -> "TraceEvaluationSpec":
        expand_panels(self)
        check_unique("evaluators", [*(e.metric for e in self.evaluators), *(c.name for c in self.composites)])
        for evaluator in self.evaluators:
            if evaluator.controls is not None:
                raise ValueError(f"evaluators: {evaluator.metric!r}: got controls, wanted them only in experiments")
            if evaluator.bundle is not None:
                raise ValueError(f"evaluators: {evaluator.metric!r}: got a bundle, wanted it only in experiments")
        check_unique("watch", [rule.title for rule in self.watch], "two rules")
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
            evaluator
            if evaluator.name or not evaluator.own_name
            else evaluator.model_copy(update={"name": evaluator.own_name})
            for evaluator in evaluators
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
