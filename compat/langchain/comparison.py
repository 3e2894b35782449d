"""Two texts compared by a model, in LangChain's shape."""

from typing import Any, Self

from compat.langchain.criteria import lines, resolve_pairwise_criteria
from compat.langchain.models import ByComplete, ByInvoke, Request, Said, model_of
from compat.langchain.prompts import LABELLED, PLAIN, PromptTemplate, as_prompt, check_variables, filled, with_criteria
from compat.langchain.schema import PairwiseStringEvaluator, refuse
from compat.langchain.verdicts import AS_FIELDS, AS_MARK, SCHEMA, PairwiseStringResultOutputParser, of_fields
from evaluators.fence import fenced
from evaluators.text import as_text
from specs.errors import InputError, short


class PairwiseStringEvalChain(PairwiseStringEvaluator):
    """Which of two texts a model prefers: {"reasoning", "value": "A", "B" or None, "score": 1, 0 or 0.5}.

    It cannot see what is true where no reference says so, nor whether the model prefers whatever stands first: it is
    asked once, in the order that is given.
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
        """What `load_evaluator` gives. Raises ValueError for criteria and for a prompt that cannot be used, InputError
        for a model that cannot, and for what else LangChain takes.
        """
        refuse("load_evaluator", options)
        if output_parser is not None and not callable(getattr(output_parser, "parse", None)):
            raise InputError(f"output_parser: got {short(output_parser)}, wanted an object with parse")
        by, given = lines(resolve_pairwise_criteria(criteria)), None if prompt is None else as_prompt(prompt)
        if given is not None:
            reference = {"reference"} if cls.requires_reference else set()
            check_variables(given, {"prediction", "prediction_b", "input", "criteria"} | reference)
        model = model_of(llm, llm_kwargs)
        if given is None and output_parser is None and model.takes_schema:
            return cls(model=model, prompt=cls._ours(AS_FIELDS, by), criteria=by, output_parser=None)
        asked_with = cls._ours(AS_MARK, by) if given is None else with_criteria(given, by)
        parser = output_parser or PairwiseStringResultOutputParser()
        return cls(model=model, prompt=asked_with, criteria=by, output_parser=parser)

    @classmethod
    def _ours(cls, verdict: str, criteria: str) -> PromptTemplate:
        return PromptTemplate.from_template(cls._default).partial(criteria=criteria, verdict=verdict)

    def _evaluate_string_pairs(self, **given: Any) -> dict[str, Any]:
        return self._result(self._model.ask(self._request(**given), self._schema))

    async def _aevaluate_string_pairs(self, **given: Any) -> dict[str, Any]:
        return self._result(await self._model.aask(self._request(**given), self._schema))

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

    def _result(self, said: Said) -> dict[str, Any]:
        if self.output_parser is None:
            return of_fields(said.fields)
        result: dict[str, Any] = self.output_parser.parse(said.text)
        return result


class LabeledPairwiseStringEvalChain(PairwiseStringEvalChain):
    """The same with a reference that is right."""

    requires_reference = True
    _default = LABELLED
