"""Evaluators by LangChain's names."""

from collections.abc import Mapping, Sequence
from typing import Any

from compat.langchain.comparison import LabeledPairwiseStringEvalChain, PairwiseStringEvalChain
from compat.langchain.schema import EvaluatorType
from specs.errors import InputError, short

_KINDS: Mapping[str, type[PairwiseStringEvalChain]] = {
    EvaluatorType.PAIRWISE_STRING: PairwiseStringEvalChain,
    EvaluatorType.LABELED_PAIRWISE_STRING: LabeledPairwiseStringEvalChain,
}


def load_evaluator(evaluator: EvaluatorType | str, *, llm: Any = None, **settings: Any) -> PairwiseStringEvalChain:
    """A comparison of two texts; `labeled_pairwise_string` holds them against a reference.

    `llm` is a connection's name (`openai` where nothing is said), a `complete` function, or an object with `invoke`.
    Settings: `criteria` (a member of Criteria, a name, a mapping from names to texts, a principle, a list of these),
    `prompt` (a text or a template), `output_parser` (an object with `parse`), `llm_kwargs` (parameters of the model).

    Raises InputError for another evaluator and for a model that cannot be asked, ValueError for a prompt or criteria
    that cannot be used.
    """
    if not isinstance(evaluator, str) or evaluator not in _KINDS:
        remedy = "what judges a text by itself is an evaluator of an experiment"
        raise InputError(f"load_evaluator: got {short(evaluator)}, wanted {' or '.join(_KINDS)}; {remedy}")
    return _KINDS[evaluator].from_llm(llm, **settings)


def load_evaluators(
    evaluators: Sequence[EvaluatorType | str],
    *,
    llm: Any = None,
    config: Mapping[Any, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> list[PairwiseStringEvalChain]:
    """Several at once. `config` has settings of one evaluator, by its name, which beat those of all."""
    own = config or {}
    return [load_evaluator(name, llm=llm, **{**settings, **own.get(name, {})}) for name in evaluators]
