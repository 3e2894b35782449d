"""The common interface of LangChain's evaluators that compare two texts."""

import asyncio
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from evalflows.specs.errors import InputError, short


class EvaluatorType(StrEnum):
    """The evaluators that `load_evaluator` knows."""

    PAIRWISE_STRING = "pairwise_string"
    LABELED_PAIRWISE_STRING = "labeled_pairwise_string"
    QA = "qa"
    COT_QA = "cot_qa"
    CRITERIA = "criteria"
    LABELED_CRITERIA = "labeled_criteria"
    SCORE_STRING = "score_string"
    LABELED_SCORE_STRING = "labeled_score_string"
    EXACT_MATCH = "exact_match"
    REGEX_MATCH = "regex_match"
    JSON_VALIDITY = "json_validity"
    STRING_DISTANCE = "string_distance"
    EMBEDDING_DISTANCE = "embedding_distance"


class PairwiseStringEvaluator(ABC):
    """Compares two texts. Subclasses define `_evaluate_string_pairs` and optionally `_aevaluate_string_pairs`."""

    requires_input: bool = False
    requires_reference: bool = False

    @property
    def evaluation_name(self) -> str:
        return type(self).__name__

    def evaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None = None,
        input: str | None = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Compare `prediction`, which is A, with `prediction_b`, which is B.

        Raises ValueError if the input or the reference is required but missing; warns if it is given but not used.
        """
        self._check(input, reference)
        return self._evaluate_string_pairs(
            prediction=prediction, prediction_b=prediction_b, reference=reference, input=input, **kwargs
        )

    async def aevaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None = None,
        input: str | None = None,  # noqa: A002
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Like `evaluate_string_pairs`, for async callers."""
        self._check(input, reference)
        return await self._aevaluate_string_pairs(
            prediction=prediction, prediction_b=prediction_b, reference=reference, input=input, **kwargs
        )

    @abstractmethod
    def _evaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]: ...

    async def _aevaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        """Run the sync method in a thread, unless overridden."""
        return await asyncio.to_thread(lambda: self._evaluate_string_pairs(**arguments))

    def _check(self, input_text: str | None, reference: str | None) -> None:
        texts = {"input": (self.requires_input, input_text), "reference": (self.requires_reference, reference)}
        for name, (is_required, text) in texts.items():
            if is_required and text is None:
                raise ValueError(f"{self.evaluation_name} requires {'an' if name == 'input' else 'a'} {name} string.")
            if text is not None and not is_required:
                warnings.warn(f"Ignoring {name} in {self.evaluation_name}, as it is not expected.", stacklevel=3)


def refuse(where: str, options: Mapping[str, Any]) -> None:
    """Raise InputError for the first unsupported option that is set. Empty and false values count as not set."""
    for name, value in options.items():
        if value:
            raise InputError(f"{where}: {name}: got {short(value)}, wanted it omitted: it is not supported here")
