"""LangChain's pairwise evaluators: loading them, their arguments, and subclasses."""

import asyncio
import warnings
from typing import Any

import pytest
from recorded_models import LABELLED, PAIR, Complete, Invoked, asked

from evalflows.compat.langchain import PairwiseStringEvaluator, load_evaluator, load_evaluators
from evalflows.specs.errors import InputError


def test_labelled_evaluators_require_a_reference_and_all_require_an_input() -> None:
    complete = Complete()
    labelled, plain = load_evaluators(["labeled_pairwise_string", "pairwise_string"], llm=complete)
    assert (labelled.requires_reference, labelled.requires_input) == (True, True)
    assert (plain.requires_reference, plain.requires_input) == (False, True)
    with pytest.raises(ValueError, match=r"^LabeledPairwiseStringEvalChain requires a reference string\.$"):
        labelled.evaluate_string_pairs(**PAIR)
    with pytest.raises(ValueError, match=r"^PairwiseStringEvalChain requires an input string\.$"):
        asyncio.run(plain.aevaluate_string_pairs(prediction="x", prediction_b="y"))
    assert complete.asked == []


def test_an_unexpected_reference_is_ignored_with_a_warning() -> None:
    complete = Complete()
    with pytest.warns(
        UserWarning, match="Ignoring reference in PairwiseStringEvalChain, as it is not expected"
    ) as warned:
        load_evaluator("pairwise_string", llm=complete).evaluate_string_pairs(**LABELLED)
    assert warned[0].filename == __file__
    assert complete.asked[0][0] == asked()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_evaluator("labeled_pairwise_string", llm=complete).evaluate_string_pairs(**LABELLED)


def test_llm_kwargs_are_passed_to_the_model() -> None:
    complete, invoked = Complete(), Invoked("[[A]]")
    for llm in (complete, invoked):
        load_evaluator("pairwise_string", llm=llm, llm_kwargs={"top_p": 0.5}).evaluate_string_pairs(**PAIR)
    assert complete.asked[0][1].keys() == {"schema", "temperature", "top_p"}
    assert invoked.asked[0][1] == {"top_p": 0.5}
    load_evaluator("pairwise_string", llm=complete, llm_kwargs={"temperature": None}).evaluate_string_pairs(**PAIR)
    assert complete.asked[1][1].keys() == {"schema"}


def test_unsupported_names_and_arguments_are_refused_unless_they_are_off() -> None:
    names: list[Any] = ["nothing", "", None, ["pairwise_string"]]
    for name in names:
        with pytest.raises(InputError, match=r"^load_evaluator: got .*, wanted one of pairwise_string, labeled_pair"):
            load_evaluator(name)
    evaluator = load_evaluator("pairwise_string", llm=Complete(), verbose=False, callbacks=None)
    assert evaluator.evaluate_string_pairs(**PAIR, callbacks=None, tags=[], include_run_info=False)["value"] == "A"
    with pytest.raises(InputError, match=r"^load_evaluator: verbose: got True"):
        load_evaluator("pairwise_string", llm=Complete(), verbose=True)
    with pytest.raises(InputError, match=r"^evaluate_string_pairs: tags: got \['x'\]"):
        evaluator.evaluate_string_pairs(**PAIR, tags=["x"])
    with pytest.raises(InputError, match=r"^output_parser: got 3"):
        load_evaluator("pairwise_string", llm=Complete(), output_parser=3)
    with pytest.raises(InputError, match=r"^llm: got 3, wanted a connection's name"):
        load_evaluator("pairwise_string", llm=3)


class Longer(PairwiseStringEvaluator):
    """A custom evaluator without a model or an input."""

    def _evaluate_string_pairs(self, *, prediction: str, prediction_b: str, **_: Any) -> dict[str, Any]:
        return {"score": int(len(prediction) > len(prediction_b))}


def test_a_custom_evaluator_needs_one_method() -> None:
    assert Longer().evaluate_string_pairs(prediction="abc", prediction_b="ab") == {"score": 1}
    assert asyncio.run(Longer().aevaluate_string_pairs(prediction="a", prediction_b="ab")) == {"score": 0}
    with pytest.warns(UserWarning, match="Ignoring input in Longer"):
        Longer().evaluate_string_pairs(prediction="abc", prediction_b="ab", input="?")
