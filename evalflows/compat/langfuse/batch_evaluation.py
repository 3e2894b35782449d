"""The results of Langfuse's batch evaluation of production."""

from evalflows.api import batch_result
from evalflows.api.batch_result import BatchEvaluationResumeToken, EvaluatorStats
from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.evaluations import Evaluation, present
from evalflows.engine.items import EvaluatorInputs
from evalflows.specs.errors import type_described
from evalflows.store.records import JudgementRow

__all__ = ["BatchEvaluationResult", "BatchEvaluationResumeToken", "EvaluatorInputs", "EvaluatorStats"]


__getattr__ = ABSENT.of_module(__name__)


class BatchEvaluationResult(batch_result.BatchEvaluationResult):
    """What a batch judged, by the ids that Langfuse's users know: an observation's own, without its trace's."""

    def _error_type(self, row: JudgementRow) -> str:
        """Return the type of exception that an evaluator raised; other failures have the kinds of this project."""
        return type_described(row.error or "") if row.error_kind == "raised" else super()._error_type(row)

    @property
    def failed_item_ids(self) -> list[str]:
        return [_own_id(identity) for identity in super().failed_item_ids]

    @property
    def item_evaluations(self) -> dict[str, list[Evaluation]]:  # type: ignore[override]  # their class
        """The evaluations of each item, by the item's id; composites are among them."""
        evaluations = super().item_evaluations
        return {_own_id(identity): present(of_item) for identity, of_item in evaluations.items()}


def _own_id(identity: str) -> str:
    return identity.rpartition("/")[2]
