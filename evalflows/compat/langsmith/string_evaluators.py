"""LangChain's string evaluators as LangSmith's SDK wraps them."""

from collections.abc import Callable, Mapping
from typing import Any

from evalflows.compat.langchain import load_evaluator
from evalflows.compat.langsmith.schemas import Example, Fields, Run
from evalflows.evaluators.declarations import declares
from evalflows.specs.errors import InputError, short

Prepare = Callable[[Run, Example | None], Mapping[str, Any]]


class LangChainStringEvaluator:
    """An evaluator of LangChain's: its name with `config`, or an object with `evaluate_strings`.

    `prepare_data` returns the texts `prediction`, `reference` and `input` of a run and its example; without it, each is
    the only field of the outputs, reference outputs and inputs. Raises InputError as `load_evaluator` does.
    """

    def __init__(
        self, evaluator: Any, *, config: Mapping[str, Any] | None = None, prepare_data: Prepare | None = None
    ) -> None:
        loads = isinstance(evaluator, str)
        if not loads and not hasattr(evaluator, "evaluate_strings"):
            raise InputError(f"LangChainStringEvaluator: got {short(evaluator)}, wanted a name or a string evaluator")
        self.evaluator: Any = load_evaluator(evaluator, **(config or {})) if loads else evaluator
        if not hasattr(self.evaluator, "evaluate_strings"):
            raise InputError(f"LangChainStringEvaluator: got {short(evaluator)}, wanted an evaluator of one text")
        self._prepare = prepare_data or self._only_fields

    @property
    def key(self) -> str:
        return str(self.evaluator.evaluation_name)

    def as_run_evaluator(self) -> Callable[..., Any]:
        """Return the function of (run, example) that judges."""

        async def judge(run: Run, example: Example) -> Fields | None:
            texts = self._prepare(run, example)
            if getattr(self.evaluator, "requires_reference", False) and texts.get("reference") is None:
                return None
            result = await self.evaluator.aevaluate_strings(**texts)
            value = result.get("value")
            label = value if isinstance(value, str) and result.get("score") is None else None
            return {"key": self.key, "score": result.get("score"), "value": label, "comment": result.get("reasoning")}

        judge.__name__ = judge.__qualname__ = self.key
        declared: Fields = {} if getattr(self.evaluator, "higher_is_better", True) else {"higher_is_better": False}
        if (bounds := getattr(self.evaluator, "range", None)) is not None:
            declared["range"] = bounds
        return declares(lambda name, settings: {name: declared})(judge) if declared else judge

    def _only_fields(self, run: Run, example: Example | None) -> Fields:
        return {
            "prediction": _only(run.outputs, "outputs"),
            "reference": _only(example.outputs if example is not None else None, "reference outputs"),
            "input": _only(run.inputs, "inputs"),
        }


def _only(fields: Mapping[str, Any] | None, what: str) -> Any:
    if not fields:
        return None
    if len(fields) > 1:
        raise ValueError(f"{what}: got the fields {', '.join(fields)}, wanted one, or prepare_data")
    return next(iter(fields.values()))
