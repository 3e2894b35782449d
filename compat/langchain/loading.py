"""Load evaluators by LangChain's names."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from evalflows.compat.langchain.comparison import LabeledPairwiseStringEvalChain, PairwiseStringEvalChain
from evalflows.compat.langchain.schema import EvaluatorType
from evalflows.compat.langchain.strings import KINDS, load_string_evaluator
from evalflows.specs.errors import InputError, short

_KINDS: Mapping[str, type[PairwiseStringEvalChain]] = {
    EvaluatorType.PAIRWISE_STRING: PairwiseStringEvalChain,
    EvaluatorType.LABELED_PAIRWISE_STRING: LabeledPairwiseStringEvalChain,
}


@overload
def load_evaluator(
    evaluator: Literal["pairwise_string", "labeled_pairwise_string"], *, llm: Any = None, **settings: Any
) -> PairwiseStringEvalChain: ...


@overload
def load_evaluator(evaluator: EvaluatorType | str, *, llm: Any = None, **settings: Any) -> Any: ...


def load_evaluator(evaluator: EvaluatorType | str, *, llm: Any = None, **settings: Any) -> Any:
    """Load an evaluator of one text, or one that compares two; `labeled_…` ones use a reference.

    `llm` is a connection's name (default `openai`), a `complete` function, or an object with `invoke`.
    Settings of comparisons: `criteria` (a member of Criteria, a name, a mapping from names to texts, a principle, a
    list of these), `prompt` (a text or a template), `output_parser` (an object with `parse`), `llm_kwargs` (parameters
    of the model). Those of other evaluators are listed in docs/langchain.md.

    Raises InputError for any other evaluator or an unusable model, ValueError for an invalid prompt or criteria.
    """
    if isinstance(evaluator, str) and evaluator in KINDS:
        return load_string_evaluator(str(evaluator), llm, settings)
    if not isinstance(evaluator, str) or evaluator not in _KINDS:
        raise InputError(f"load_evaluator: got {short(evaluator)}, wanted one of {', '.join([*_KINDS, *KINDS])}")
    return _KINDS[evaluator].from_llm(llm, **settings)


def load_evaluators(
    evaluators: Sequence[EvaluatorType | str],
    *,
    llm: Any = None,
    config: Mapping[Any, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> list[Any]:
    """Load several evaluators. `config` holds settings per evaluator name, which take precedence over `settings`."""
    own = config or {}
    return [load_evaluator(name, llm=llm, **{**settings, **own.get(name, {})}) for name in evaluators]
