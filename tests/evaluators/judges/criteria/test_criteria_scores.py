"""criteria: the scores of one or several criteria, and their directions."""

from typing import Any

import pytest
from criteria_judged import REFERENCE, Principle, judged, values

from evalflows.evaluators.judges import CRITERIA, HARMS, criteria, criteria_of
from evalflows.evaluators.score import normalise
from evalflows.specs.metric import MetricSpec

# one criterion


def test_one_criterion_is_one_score_under_the_evaluators_name(judge: Any) -> None:
    (short,), (long,) = (judged(judge, text, criteria="conciseness") for text in ("384,000 km.", "Well, it is " * 9))
    assert (short.key, short.value, short.comment) == (None, True, "Of '384,000 km.'.")
    assert long.value is False
    assert short.repeats == 1 and short.spread is None and short.prompt_hash


def test_the_default_criterion_is_helpfulness(judge: Any) -> None:
    judged(judge, "Far.")
    assert f"- helpfulness: {CRITERIA['helpfulness']}\n" in judge.prompts[0]


def test_a_harm_scores_1_for_yes_and_declares_lower_is_better(judge: Any) -> None:
    (harmful,), (harmless,) = (judged(judge, text, criteria="harmfulness") for text in ("damn you", "Good day."))
    assert (harmful.value, harmless.value) == (True, False)
    declared = criteria.metrics("harm", {"criteria": "harmfulness"})  # type: ignore[attr-defined]
    assert declared == {"harm": {"higher_is_better": False, "range": [0.0, 1.0]}}


def test_each_langchain_criterion_has_its_own_question() -> None:
    names = "helpfulness relevance correctness conciseness coherence harmfulness maliciousness depth creativity detail"
    assert {*CRITERIA} == {*names.split(), "controversiality", "insensitivity", "misogyny", "criminality"}
    assert len({*CRITERIA.values()}) == 14
    assert all(text.endswith("?") and text.isprintable() for text in CRITERIA.values())
    bad = "harmfulness maliciousness controversiality insensitivity misogyny criminality"
    assert {*bad.split()} == HARMS


@pytest.mark.parametrize("name", CRITERIA)
def test_each_name_can_be_judged(reader: Any, name: str) -> None:
    model = reader(lambda _: {"reasoning": "", name: True})
    (score,) = judged(model, "Far.", REFERENCE, criteria=name)
    assert score.value is True
    assert f"Criteria:\n- {name}: {CRITERIA[name]}\n" in model.prompts[0]


# several at once


def test_several_criteria_are_judged_in_one_call_with_an_overall_score(judge: Any) -> None:
    names = ["conciseness", "detail", "harmfulness"]
    good = judged(judge, "384,000 km.", criteria=names)
    assert len(judge.prompts) == 1
    assert values(good) == {None: True, "conciseness": True, "detail": True, "harmfulness": False}
    assert values(judged(judge, "damn far: 384,000 km.", criteria=names)) == {
        None: False,
        "conciseness": True,
        "detail": True,
        "harmfulness": True,
    }
    assert values(judged(judge, "Far.", criteria=names))[None] is False


def test_two_harms_are_met_by_two_noes(judge: Any) -> None:
    assert values(judged(judge, "Good day.", criteria=["harmfulness", "criminality"])) == {
        None: True,
        "harmfulness": False,
        "criminality": False,
    }


def test_each_criterion_declares_its_direction() -> None:
    settings = {"criteria": ["detail", "harmfulness", {"rude": {"description": "Rude?", "higher_is_better": False}}]}
    declared = criteria.metrics("quality", settings)  # type: ignore[attr-defined]
    specs = {name: MetricSpec.model_validate(fields) for name, fields in declared.items()}
    assert {name: spec.higher_is_better for name, spec in specs.items()} == {
        "quality": True,
        "detail": True,
        "harmfulness": False,
        "rude": False,
    }
    assert {spec.range for spec in specs.values()} == {(0.0, 1.0)}


def test_no_criterion_can_have_the_name_of_the_evaluator() -> None:
    with pytest.raises(
        ValueError, match="criteria: got the name 'detail', wanted a name other than the evaluator's own"
    ):
        criteria.metrics("detail", {"criteria": ["depth", "detail"]})  # type: ignore[attr-defined]
    assert criteria.metrics("detail", {"criteria": "detail"}).keys() == {"detail"}  # type: ignore[attr-defined]


def test_the_declared_metrics_are_the_returned_metrics(judge: Any) -> None:
    settings = {"criteria": ["detail", {"rude": "Is it rude?"}, Principle("polite1", "Find what is rude.")]}
    judgements = normalise(judged(judge, "Far.", **settings), "quality")
    assert [judgement.metric for judgement in judgements] == list(criteria.metrics("quality", settings))  # type: ignore[attr-defined]
    assert {judgement.data_type for judgement in judgements} == {"BOOLEAN"}


# custom criteria


def test_custom_criteria_are_shown_unchanged(judge: Any) -> None:
    (score,) = judged(judge, "Environ 384 000 km.", criteria={"french": "The answer is in French {outputs}."})
    assert (score.key, score.value) == (None, True)
    assert "- french: The answer is in French {outputs}.\n" in judge.prompts[0]
    (planted,) = judged(judge, "About 384,000 km.", criteria={"french": "The answer is in French."})
    assert planted.value is False


def test_a_custom_lower_is_better_criterion_counts_so_in_the_overall_score(judge: Any) -> None:
    own = {"french": "In French?", "rude": {"description": "Rude?", "higher_is_better": False}}
    assert values(judged(judge, "Environ 384 000.", criteria=own)) == {None: True, "french": True, "rude": False}
    assert values(judged(judge, "Environ damn.", criteria=own)) == {None: False, "french": True, "rude": True}


def test_a_custom_question_for_a_harm_keeps_its_direction_and_needs_no_reference() -> None:
    harm, right = criteria_of({"misogyny": "Mocks women.", "correctness": "Gives a distance."})
    assert (harm.question, harm.yes_is_good) == ("Mocks women.", False)
    assert right.needs_reference is False


@pytest.mark.parametrize(
    "principle",
    [
        Principle("polite1", "Find what is rude."),
        {"name": "polite1", "critique_request": "Find what is rude.", "revision_request": "Rewrite it."},
        [Principle("polite1", "Find what is rude.")],
    ],
)
def test_a_principle_is_met_if_its_critique_finds_nothing(judge: Any, principle: Any) -> None:
    (kept,), (broken,) = (judged(judge, text, criteria=principle) for text in ("Far.", "damn far"))
    assert (kept.value, broken.value) == (True, False)
    line = next(line for line in judge.prompts[0].splitlines() if line.startswith("- polite1: "))
    assert "finds nothing to object to" in line and line.endswith("The critique: Find what is rude.")
    assert "Rewrite it." not in judge.prompts[0]
    assert criteria.metrics("kept", {"criteria": principle})["kept"]["higher_is_better"] is True  # type: ignore[attr-defined]
