"""rubric: the score of one call, its schema and its prompt."""

import asyncio
from typing import Any

import jsonschema
import pytest
from rubric_judged import (
    ANSWER,
    QUESTION,
    REFERENCE,
    RUBRIC,
    ScriptedJudge,
    judged,
    labelling,
    prompt_sent,
)

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.rubric import rubric
from evalflows.evaluators.score import Score


def test_the_score_and_the_comment_are_the_models_score_and_reasoning() -> None:
    score = asyncio.run(rubric(QUESTION, ANSWER, REFERENCE, {}, ScriptedJudge(), rubric=RUBRIC))
    assert isinstance(score, Score)
    assert (score.value, score.label, score.key, score.comment) == (4.0, None, None, "Fine.")
    assert (score.repeats, score.spread) == (1, None)
    assert score.prompt_hash and len(score.prompt_hash) == 16
    assert type(score.value) is float


@pytest.mark.parametrize(
    ("settings", "says", "wrong"),
    [
        (
            {},
            {"reasoning": "", "score": 1},
            [{"score": 1}, {"reasoning": "", "score": 6}, {"reasoning": "", "score": 0}],
        ),
        ({}, {"reasoning": "", "score": 5}, [{"reasoning": "", "score": 4.5}, {"reasoning": "", "score": "5"}]),
        ({"scale": [0, 10]}, {"reasoning": "", "score": 0}, [{"reasoning": "", "score": 11}]),
        ({"reasoning": "none"}, {"score": 2}, [{"reasoning": "", "score": 2}]),
        (
            {"labels": ["good", "bad"]},
            {"reasoning": "", "label": "bad"},
            [{"reasoning": "", "label": "Bad"}, {"score": 1}],
        ),
        (
            {"criteria": {"kind": None, "true": "so"}},
            {"reasoning": "", "kind": 1, "true": 5},
            [{"reasoning": "", "kind": 1}],
        ),
    ],
)
def test_the_schema_accepts_only_valid_verdicts(
    settings: dict[str, Any], says: dict[str, Any], wrong: list[dict[str, Any]]
) -> None:
    judge = ScriptedJudge(says)
    judged(judge, **settings)
    for verdict in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(verdict, judge.requests[0][1]["schema"])


def test_the_reasoning_can_come_before_or_after_the_verdict() -> None:
    orders = {}
    for reasoning in ("before", "after"):
        judge = ScriptedJudge({"reasoning": "", "kind": 1, "short": 1})
        judged(judge, reasoning=reasoning, criteria={"kind": "", "short": ""})
        orders[reasoning] = list(judge.requests[0][1]["schema"]["properties"])
    assert orders == {"before": ["reasoning", "kind", "short"], "after": ["kind", "short", "reasoning"]}


def test_without_reasoning_there_is_no_comment() -> None:
    (score,) = judged(ScriptedJudge({"score": 4}), reasoning="none")
    assert score.comment is None and score.value == 4


def test_the_prompt_shows_all_texts_in_order() -> None:
    prompt = prompt_sent(outputs={"output": "It is Lyon"}, metadata={"tone": "formal"})
    parts = ["Question:", fenced(QUESTION["question"]), "Reference answer:", fenced("Paris"), "Answer to judge:"]
    parts += [fenced("It is Lyon"), "Rubric:", RUBRIC, 'Give "score": a whole number from 1 (worst) to 5 (best).']
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)
    assert "{" not in prompt and "formal" not in prompt


def test_the_prompt_lists_the_labels() -> None:
    prompt = prompt_sent(labelling("so, so"), labels=["good", "so, so"])
    assert 'Give "label": one of "good", "so, so".' in prompt


@pytest.mark.parametrize("reference", [None, {}, {"answer": None}])
def test_a_missing_reference_is_shown_as_none(reference: dict[str, Any] | None) -> None:
    assert "Reference answer:\n(none)\n" in prompt_sent(reference=reference)
    assert prompt_sent(reference=reference, metadata={}, prompt="{output}: {metadata}", rubric="").endswith(": (none)")


def test_a_reference_with_the_text_none_is_shown_fenced() -> None:
    assert f"Reference answer:\n{fenced('(none)')}\n" in prompt_sent(reference={"answer": "(none)"})


def test_a_custom_prompt_can_use_either_spelling() -> None:
    ours = prompt_sent(
        prompt="{inputs}|{outputs}|{reference_outputs}|{metadata}|{rubric}|{scale}", metadata={"tone": "formal"}
    )
    theirs = prompt_sent(
        prompt="{input}|{output}|{expected_output}|{metadata}|{rubric}|{scale}", metadata={"tone": "formal"}
    )
    assert ours == theirs
    assert ours.split("|")[:3] == [fenced("Capital of France?"), fenced("It is Paris."), fenced("Paris")]
    assert ours.split("|")[3] == fenced('{"tone": "formal"}')  # a single field keeps its name
    assert ours.split("|")[4:] == [RUBRIC, '"score": a whole number from 1 (worst) to 5 (best)']


def test_a_custom_prompt_without_a_rubric_placeholder_needs_no_rubric() -> None:
    assert (
        prompt_sent(prompt="Is {output} kind? {{1 to 5}}", rubric="") == f"Is {fenced('It is Paris.')} kind? {{1 to 5}}"
    )


def test_placeholders_in_the_rubric_are_not_filled() -> None:
    assert "Accept {outputs} and {{x}}." in prompt_sent(rubric="Accept {outputs} and {{x}}.")
