"""Langfuse's evaluations: what evaluators return, and what composites and results get."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from evalflows.evaluators import subject
from evalflows.evaluators.subject import Evaluations
from evalflows.execution.views import evaluations_view
from evalflows.specs.metric_names import RETURNED_AS
from evalflows.store.records import ScoreRow

MISSING = ("failed", "not_attempted")


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """A score, as an evaluator returns it."""

    name: str
    value: float | str | bool | None
    comment: str | None = None
    metadata: dict[str, Any] | None = None
    data_type: str | None = None
    config_id: str | None = None


@dataclass(slots=True, kw_only=True)
class ExperimentItemResult:
    """One item of an experiment: the task's output, and its evaluations."""

    item: Any
    output: Any
    evaluations: list[Evaluation] = field(default_factory=list)
    trace_id: str | None = None  # the run's id
    experiment_id: str | None = None

    @property
    def dataset_run_id(self) -> str | None:
        return self.experiment_id


def evaluations_of(rows: Iterable[ScoreRow]) -> list[Evaluation]:
    """Return the scores of a run that have a value, under the names that their evaluators gave them."""
    return present(evaluations_view(rows))


def present(evaluations: Iterable[subject.Evaluation]) -> list[Evaluation]:
    """Return the evaluations that have a value: as in Langfuse, others are left out."""
    return [_of_view(one) for one in evaluations if one.status == "scored"]


def complete(evaluations: Evaluations) -> list[Evaluation]:
    """Return the evaluations that a composite gets. Raise ValueError if one is missing: the composite would not say."""
    for one in evaluations:
        if one.status in MISSING:
            raise ValueError(f"{one.name} has no score for this item, so what is composed of it has none")
    return present(evaluations)


def _of_view(one: subject.Evaluation) -> Evaluation:
    value = bool(one.value) if one.data_type == "BOOLEAN" else one.value
    return Evaluation(
        name=one.name,
        value=value,
        comment=one.comment,
        metadata={name: value for name, value in (one.metadata or {}).items() if name != RETURNED_AS} or None,
        data_type=one.data_type,
        config_id=one.config_id,
    )
