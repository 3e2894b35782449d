"""criteria: scores, repeats, prompt and settings."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judges.criteria import criteria
from evalflows.evaluators.score import Score, normalise
from evalflows.specs.metrics import MetricSpec

QUESTION, REFERENCE = {"question": "How far is the moon?"}, {"answer": "About 384,000 km"}


@dataclass
class Principle:
    """A constitutional principle with LangChain's fields."""

    name: str
    critique_request: str
    revision_request: str = "Rewrite it."


def judged(judge: Any, answer: Any, reference: dict[str, Any] | None = None, **settings: Any) -> list[Score]:
    scores = asyncio.run(criteria(QUESTION, {"output": answer}, reference, {}, judge, **settings))
    return [] if scores is None else scores if isinstance(scores, list) else [scores]


def values(scores: Sequence[Score]) -> dict[str | None, Any]:
    return {score.key: score.value for score in scores}


def replying(reader: Any, **verdicts: Sequence[bool]) -> Any:
    """Return a model that gives the n-th verdict of each criterion at its n-th call."""
    times = iter(range(99))

    def judge(_: Any) -> dict[str, Any]:
        repeat = next(times)
        return {"reasoning": f"repeat {repeat}"} | {name: said[repeat] for name, said in verdicts.items()}

    return reader(judge)


@pytest.fixture
def judge(reader: Any) -> Any:
    """Return a model that judges by simple rules: a short answer is concise, a number is detail, a curse is harmful."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        answer, reference = sections["Answer to judge"], sections.get("Reference answer", "")
        answers = {
            "conciseness": len(answer) < 30,
            "detail": any(map(str.isdigit, answer)),
            "harmfulness": "damn" in answer,
            "criminality": "steal" in answer,
            "correctness": bool(reference) and "384,000" in reference and "384,000" in answer,
            "french": answer.startswith("Environ"),
            "rude": "damn" in answer,
            "polite1": "damn" not in answer,
            "helpfulness": len(answer) > 3,
        }
        wanted = [name for name in judge_of.parameters[-1]["schema"]["properties"] if name != "reasoning"]
        return {"reasoning": f"Of {answer!r}."} | {name: answers[name] for name in wanted}

    judge_of = reader(judge)
    return judge_of


# Scores


# one criterion


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


def test_each_criterion_declares_its_direction_and_what_is_returned(judge: Any) -> None:
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
    with pytest.raises(
        ValueError, match="criteria: got the name 'detail', wanted a name other than the evaluator's own"
    ):
        criteria.metrics("detail", {"criteria": ["depth", "detail"]})  # type: ignore[attr-defined]
    assert criteria.metrics("detail", {"criteria": "detail"}).keys() == {"detail"}  # type: ignore[attr-defined]
    settings = {"criteria": ["detail", {"rude": "Is it rude?"}, Principle("polite1", "Find what is rude.")]}
    judgements = normalise(judged(judge, "Far.", **settings), "quality")
    assert [judgement.metric for judgement in judgements] == list(criteria.metrics("quality", settings))  # type: ignore[attr-defined]
    assert {judgement.data_type for judgement in judgements} == {"BOOLEAN"}


# custom criteria


def test_custom_criteria_are_shown_unchanged_and_count_by_their_direction(judge: Any) -> None:
    (score,) = judged(judge, "Environ 384 000 km.", criteria={"french": "The answer is in French {outputs}."})
    assert (score.key, score.value) == (None, True)
    assert "- french: The answer is in French {outputs}.\n" in judge.prompts[0]
    (planted,) = judged(judge, "About 384,000 km.", criteria={"french": "The answer is in French."})
    assert planted.value is False
    own = {"french": "In French?", "rude": {"description": "Rude?", "higher_is_better": False}}
    assert values(judged(judge, "Environ 384 000.", criteria=own)) == {None: True, "french": True, "rude": False}
    assert values(judged(judge, "Environ damn.", criteria=own)) == {None: False, "french": True, "rude": True}


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


# Repeats


def test_a_score_over_repeats_is_the_share_of_yes_with_its_spread(reader: Any) -> None:
    (score,) = judged(replying(reader, detail=[True, False, True]), "x", criteria="detail", repeats=3)
    assert score.value == pytest.approx(2 / 3)
    assert score.spread == pytest.approx((1 / 3) ** 0.5)  # the squares 1/9, 4/9, 1/9 make 2/3, over 2 that is 1/3
    assert (score.repeats, score.comment) == (3, "repeat 0")


def test_with_the_mean_the_overall_score_is_the_share_of_repeats_that_meet_all_criteria(reader: Any) -> None:
    model = replying(reader, detail=[True, True, False, True], harmfulness=[False, True, False, False])
    scores = judged(model, "x", criteria=["detail", "harmfulness"], repeats=4)
    assert values(scores) == {None: 0.5, "detail": 0.75, "harmfulness": 0.25}


def test_with_the_majority_the_overall_score_is_consistent_with_the_criteria(reader: Any) -> None:
    verdicts = {"detail": [True, True, False], "depth": [False, True, True]}
    scores = judged(replying(reader, **verdicts), "x", criteria=["detail", "depth"], repeats=3, combine="majority")
    assert values(scores) == {None: True, "detail": True, "depth": True}
    median = judged(replying(reader, **verdicts), "x", criteria=["detail", "depth"], repeats=3, combine="median")
    assert values(median) == {None: 1.0, "detail": 1.0, "depth": 1.0}


# Reference, prompt and settings


# the reference


def test_correctness_is_judged_by_the_reference_which_is_not_shown_if_it_is_not_needed(judge: Any) -> None:
    (right,) = judged(judge, "384,000 km", REFERENCE, criteria="correctness")
    (planted,) = judged(judge, "150,000,000 km", REFERENCE, criteria="correctness")
    assert (right.value, planted.value) == (True, False)
    assert f"Reference answer:\n{fenced('About 384,000 km')}\n" in judge.prompts[0]
    judged(judge, "Far.", REFERENCE, criteria="detail")
    judged(judge, "Far.", REFERENCE, criteria="correctness", labelled=False)
    for prompt in judge.prompts[2:]:
        assert "Reference answer:\n(none)\n" in prompt and "384,000" not in prompt


@pytest.mark.parametrize("reference", [None, {}, {"answer": None}])
def test_a_criterion_that_needs_a_reference_has_no_score_without_it(judge: Any, reference: Any) -> None:
    assert judged(judge, "384,000 km", reference, criteria=["detail", "correctness"]) == []
    assert judged(judge, "384,000 km", reference, criteria="detail", labelled=True) == []
    assert judge.prompts == []


# the prompt


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"criteria": "kindness"}, "criteria: got 'kindness', wanted one of helpfulness, relevance, correctness"),
        ({"criteria": []}, "criteria: got [], wanted a name, a mapping"),
        ({"criteria": 7}, "criteria: got 7, wanted a name"),
        ({"criteria": ["detail", "detail"]}, "criteria: got 'detail' twice, wanted each once"),
        ({"criteria": {"reasoning": "x"}}, "criteria: got the name 'reasoning', wanted one other than"),
        ({"criteria": {True: "x"}}, "criteria: got True, wanted a text"),
        ({"criteria": {"kind": {"weight": 2}}}, "criteria: kind: got 'weight', wanted description or higher_is_better"),
        (
            {"criteria": {"kind": {"description": "x", "higher_is_better": "no"}}},
            "criteria: kind: higher_is_better: got 'no', wanted true or false",
        ),
        ({"criteria": {"critique_request": "x"}}, "criteria: name: got None, wanted a text"),
        ({"labelled": "yes"}, "labelled: got 'yes', wanted true, false or auto"),
        ({"prompt": "{outputs}"}, "prompt: wanted {criteria} in it"),
        ({"prompt": "{outputs} {criteria}", "labelled": True}, "prompt: wanted {reference_outputs} or"),
    ],
)
def test_an_invalid_setting_is_an_error_before_any_call(judge: Any, settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError) as raised:
        judged(judge, "Far.", REFERENCE, **settings)
    assert wrong in str(raised.value) and "\n" not in str(raised.value)
    assert judge.prompts == []
