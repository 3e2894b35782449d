"""LangChain's evaluators that compare two texts with a model."""

from typing import Any, Self

from evalflows.compat.langchain.criteria import lines, resolve_pairwise_criteria
from evalflows.compat.langchain.models import Answer, ByComplete, ByInvoke, Request, model_of
from evalflows.compat.langchain.prompts import (
    LABELLED,
    PLAIN,
    PromptTemplate,
    as_prompt,
    check_variables,
    filled,
    with_criteria,
)
from evalflows.compat.langchain.schema import PairwiseStringEvaluator, refuse
from evalflows.compat.langchain.verdicts import (
    AS_FIELDS,
    AS_TAG,
    SCHEMA,
    PairwiseStringResultOutputParser,
    result_of_fields,
)
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.text import as_text
from evalflows.specs.errors import InputError, short


class PairwiseStringEvalChain(PairwiseStringEvaluator):
    """Which of two texts a model prefers: {"reasoning", "value": "A", "B" or None, "score": 1, 0 or 0.5}.

    Without a reference it cannot judge correctness. It does not detect position bias: the model is asked once, in the
    given order.
    """

    requires_input = True
    _default = PLAIN

    def __init__(self, *, model: ByComplete | ByInvoke, prompt: Any, criteria: str, output_parser: Any) -> None:
        self.prompt, self.output_parser = prompt, output_parser
        self._model, self._criteria = model, criteria

    @classmethod
    def from_llm(
        cls,
        llm: Any = None,
        *,
        prompt: Any = None,
        criteria: Any = None,
        output_parser: Any = None,
        llm_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Build the evaluator, as `load_evaluator` does.

        Raises ValueError for invalid criteria or prompts; InputError for an invalid model and for LangChain's other
        options, which have no meaning here.
        """
        refuse("load_evaluator", options)
        if output_parser is not None and not callable(getattr(output_parser, "parse", None)):
            raise InputError(f"output_parser: got {short(output_parser)}, wanted an object with parse")
        criteria_text = lines(resolve_pairwise_criteria(criteria))
        template = None if prompt is None else as_prompt(prompt)
        if template is not None:
            reference = {"reference"} if cls.requires_reference else set()
            check_variables(template, {"prediction", "prediction_b", "input", "criteria"} | reference)
        model = model_of(llm, llm_kwargs)
        if template is None and output_parser is None and model.takes_schema:
            default = cls._default_prompt(AS_FIELDS, criteria_text)
            return cls(model=model, prompt=default, criteria=criteria_text, output_parser=None)
        own = cls._default_prompt(AS_TAG, criteria_text) if template is None else with_criteria(template, criteria_text)
        parser = output_parser or PairwiseStringResultOutputParser()
        return cls(model=model, prompt=own, criteria=criteria_text, output_parser=parser)

    @classmethod
    def _default_prompt(cls, verdict: str, criteria: str) -> PromptTemplate:
        return PromptTemplate.from_template(cls._default).partial(criteria=criteria, verdict=verdict)

    def _evaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        return self._result(self._model.ask(self._request(**arguments), self._schema))

    async def _aevaluate_string_pairs(self, **arguments: Any) -> dict[str, Any]:
        return self._result(await self._model.aask(self._request(**arguments), self._schema))

    @property
    def _schema(self) -> Any:
        return SCHEMA if self.output_parser is None else None

    def _request(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None,
        input: str,  # noqa: A002
        **options: Any,
    ) -> Request:
        refuse("evaluate_string_pairs", options)
        sides = {"prediction": prediction, "prediction_b": prediction_b, "input": input, "reference": reference}
        texts = {name: fenced(as_text(side)) for name, side in sides.items() if side is not None}
        return filled(self.prompt, texts | {"criteria": self._criteria})

    def _result(self, answer: Answer) -> dict[str, Any]:
        if self.output_parser is None:
            return result_of_fields(answer.fields)
        result: dict[str, Any] = self.output_parser.parse(answer.text)
        return result


class LabeledPairwiseStringEvalChain(PairwiseStringEvalChain):
    """`PairwiseStringEvalChain` with a correct reference."""

    requires_reference = True
    _default = LABELLED
