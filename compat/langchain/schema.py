"""What LangChain's comparisons of two texts have in common."""

import asyncio
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from specs.errors import InputError, short


class EvaluatorType(StrEnum):
    """The evaluators that `load_evaluator` has."""

    PAIRWISE_STRING = "pairwise_string"
    LABELED_PAIRWISE_STRING = "labeled_pairwise_string"


class PairwiseStringEvaluator(ABC):
    """A comparison of two texts. One of your own defines `_evaluate_string_pairs`, and if it likes the async twin."""

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

        Raises ValueError where the input or the reference is required and missing; warns where it is not expected.
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
        """The same for async callers."""
        self._check(input, reference)
        return await self._aevaluate_string_pairs(
            prediction=prediction, prediction_b=prediction_b, reference=reference, input=input, **kwargs
        )

    @abstractmethod
    def _evaluate_string_pairs(self, **given: Any) -> dict[str, Any]: ...

    async def _aevaluate_string_pairs(self, **given: Any) -> dict[str, Any]:
        """In a thread, unless it is defined anew."""
        return await asyncio.to_thread(lambda: self._evaluate_string_pairs(**given))

    def _check(self, input_text: str | None, reference: str | None) -> None:
        sides = {"input": (self.requires_input, input_text), "reference": (self.requires_reference, reference)}
        for side, (is_required, given) in sides.items():
            if is_required and given is None:
                raise ValueError(f"{self.evaluation_name} requires {'an' if side == 'input' else 'a'} {side} string.")
            if given is not None and not is_required:
                warnings.warn(f"Ignoring {side} in {self.evaluation_name}, as it is not expected.", stacklevel=3)


def refuse(where: str, options: Mapping[str, Any]) -> None:
    """Raises InputError for the first option that asks for something. What is empty or off asks for nothing."""
    for name, value in options.items():
        if value:
            raise InputError(f"{where}: {name}: got {short(value)}, wanted it left out: it has no meaning here")
