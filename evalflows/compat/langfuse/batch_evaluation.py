"""Langfuse's batch evaluation of production on top of `evalflows.run_batched_evaluation`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evalflows.api import results
from evalflows.api.results import BatchEvaluationResumeToken, EvaluatorStats
from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.evaluations import Evaluation, as_evaluators, as_mapper, present
from evalflows.engine.traces import EvaluatorInputs

__all__ = ["BatchEvaluationResult", "BatchEvaluationResumeToken", "EvaluatorInputs", "EvaluatorStats"]


__getattr__ = ABSENT.of_module(__name__)

Scope = Literal["traces", "observations", "sessions"]


class BatchEvaluationResult(results.BatchEvaluationResult):
    """What a batch judged, by the ids that Langfuse's users know: an observation's own, without its trace's."""

    @property
    def failed_item_ids(self) -> list[str]:
        return [_own_id(identity) for identity in super().failed_item_ids]

    @property
    def item_evaluations(self) -> dict[str, list[Evaluation]]:  # type: ignore[override]  # their class
        """The evaluations of each item, by the item's id; composites are among them."""
        evaluations = super().item_evaluations
        return {_own_id(identity): present(found) for identity, found in evaluations.items()}


def run(
    *,
    scope: Scope | None,
    mapper: Any,
    evaluators: Sequence[Any],
    composite_evaluator: Any,
    filter: str | None,  # noqa: A002 Langfuse's name
    metadata: Mapping[str, Any] | None,
    resume_from: BatchEvaluationResumeToken | None,
    **settings: Any,
) -> BatchEvaluationResult:
    """Judge stored items that no evaluator of the same version has judged through this mapper.

    Without a scope they are observations, and their inputs and outputs are text, as in Langfuse from version 5 on.
    Raise InputError, before anything is called, for arguments that cannot be used.
    """
    import evalflows  # loads Prefect, which takes seconds

    judges = as_evaluators(evaluators, composite_evaluator, names_stand=True)
    n_judges = len(evaluators)
    result = evalflows.run_batched_evaluation(
        scope=scope or "observations",
        mapper=as_mapper(mapper, raw=scope is None),
        evaluators=judges[:n_judges],
        composite_evaluators=judges[n_judges:],
        filter=filter,
        metadata=metadata,
        resume_from=resume_from,
        **settings,
    )
    return BatchEvaluationResult(result.batch_id, result.composites)


def _own_id(identity: str) -> str:
    return identity.rpartition("/")[2]
