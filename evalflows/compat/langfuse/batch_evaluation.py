"""The results of Langfuse's batch evaluation of production."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from evalflows.api import batch_result
from evalflows.api.batch_result import BatchEvaluationResumeToken, EvaluatorStats
from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.evaluations import Evaluation, present
from evalflows.engine.items import FAULT_OF_MAPPER, EvaluatorInputs
from evalflows.specs.errors import type_described
from evalflows.store.records import JudgementRow

__all__ = ["BatchEvaluationResult", "BatchEvaluationResumeToken", "EvaluatorInputs", "EvaluatorStats"]


__getattr__ = ABSENT.of_module(__name__)


MapperFunction = EvaluatorFunction = CompositeEvaluatorFunction = Callable[..., Any]
"""Langfuse's names of the types of a program's functions."""


class BatchEvaluationResult(batch_result.BatchEvaluationResult):
    """What a batch judged, by the ids that Langfuse's users know: an observation's own, without its trace's.

    As in Langfuse, an item has failed if it could not be mapped, or has no output; not if its evaluators failed.
    """

    def _error_type(self, row: JudgementRow) -> str:
        """Return the type of exception that an evaluator or the mapper raised; other failures have our kinds."""
        _, mapper, fault = (row.error or "").partition(FAULT_OF_MAPPER)
        if row.error_kind == "no_output" and mapper:
            return type_described(fault)
        if row.error_kind == "raised":
            return type_described(row.error or "")
        return super()._error_type(row)

    @property
    def total_scores_created(self) -> int:
        """The scores of the items by evaluators, also those that an earlier batch created."""
        return sum(row.status == "scored" for row in self._scores) - self.total_composite_scores_created

    @property
    def total_composite_scores_created(self) -> int:
        return sum(row.status == "scored" for row in self._scores if row.evaluator in self.composites)

    @property
    def total_items_processed(self) -> int:
        return self.total_items_fetched - self.total_items_failed

    @property
    def total_items_failed(self) -> int:
        return len(self._failed)

    @property
    def failed_item_ids(self) -> list[str]:
        return [_own_id(identity) for identity in self._failed]

    @cached_property
    def _failed(self) -> list[str]:
        """The items without an answer to judge."""
        return [
            identity
            for identity, rows in self._by_item.items()
            if all(row.error_kind == "no_output" for row in rows if row.evaluator not in self.composites)
        ]

    @property
    def item_evaluations(self) -> dict[str, list[Evaluation]]:  # type: ignore[override]  # their class
        """The evaluations of each item that did not fail, by the item's id; composites are among them."""
        evaluations = super().item_evaluations.items()
        return {_own_id(identity): present(found) for identity, found in evaluations if identity not in self._failed}

    def _of_evaluator(self, name: str) -> list[JudgementRow]:
        return [row for row in super()._of_evaluator(name) if row.subject_id not in self._failed]


def _own_id(identity: str) -> str:
    return identity.rpartition("/")[2]
