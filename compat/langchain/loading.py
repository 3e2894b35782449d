"""Load evaluators by LangChain's names."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.compat.langchain.comparison import LabeledPairwiseStringEvalChain, PairwiseStringEvalChain
from evalflows.compat.langchain.schema import EvaluatorType
from evalflows.specs.errors import InputError, short

_KINDS: Mapping[str, type[PairwiseStringEvalChain]] = {
    EvaluatorType.PAIRWISE_STRING: PairwiseStringEvalChain,
    EvaluatorType.LABELED_PAIRWISE_STRING: LabeledPairwiseStringEvalChain,
}


def load_evaluator(evaluator: EvaluatorType | str, *, llm: Any = None, **settings: Any) -> PairwiseStringEvalChain:
    """Load an evaluator that compares two texts; `labeled_pairwise_string` compares them with a reference.

    `llm` is a connection's name (default `openai`), a `complete` function, or an object with `invoke`.
    Settings: `criteria` (a member of Criteria, a name, a mapping from names to texts, a principle, a list of these),
    `prompt` (a text or a template), `output_parser` (an object with `parse`), `llm_kwargs` (parameters of the model).

    Raises InputError for any other evaluator or an unusable model, ValueError for an invalid prompt or criteria.
    """
    if not isinstance(evaluator, str) or evaluator not in _KINDS:
        remedy = "to score single texts, use an evaluator in an experiment"
        raise InputError(f"load_evaluator: got {short(evaluator)}, wanted {' or '.join(_KINDS)}; {remedy}")
    return _KINDS[evaluator].from_llm(llm, **settings)


def load_evaluators(
    evaluators: Sequence[EvaluatorType | str],
    *,
    llm: Any = None,
    config: Mapping[Any, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> list[PairwiseStringEvalChain]:
    """Load several evaluators. `config` holds settings per evaluator name, which take precedence over `settings`."""
    own = config or {}
    return [load_evaluator(name, llm=llm, **{**settings, **own.get(name, {})}) for name in evaluators]
