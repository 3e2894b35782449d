"""pairwise_preference: the winner, its schema, and the repeats."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from pairwise_judged import KNOWN, OWN, PairwiseModel, Sections, compared, knows_better, replying

from evalflows.evaluators.judges import CRITERIA
from evalflows.evaluators.pairwise import pairwise_preference
from evalflows.evaluators.pairwise.pairwise_preference import LABELLED, PLAIN
from evalflows.llm.structured_output import read_answer, with_response_format
from evalflows.specs.errors import CallError
from evalflows.specs.reference import version_of

# a single call


@pytest.mark.parametrize(("preference", "winner"), [(1, "first"), (2, "second"), (0, "tie")])
def test_the_winner_and_the_comment_are_the_models_preference_and_reasoning(preference: int, winner: str) -> None:
    result = compared(replying(preference))
    assert (result.winner, result.scores, result.comment) == (winner, None, f"repeat 0: {preference}")
    assert (result.repeats, result.agreement, result.status) == (1, None, "scored")
    assert result.prompt_hash and len(result.prompt_hash) == 16


SUMS = [
    ("What is 17 + 25?", "It is 42.", "It is 41.", "first"),
    ("What is 8 + 5?", "That makes 12, I am sure of it.", "13", "second"),
    ("What is 20 + 30?", "50", "The sum of the two is 50.", "tie"),
    ("What is 6 + 6?", "11", "13", "tie"),
    ("What is 100 + 1?", "101, or one hundred and one", "1001", "first"),
    ("What is 3 + 4?", "", "7", "second"),
]


def holds(judge: Callable[[Sections, int], Any]) -> None:
    """Assert that the better answer wins in both orders."""
    for question, first, second, winner in SUMS:
        turned = {"first": "second", "second": "first", "tie": "tie"}[winner]
        assert compared(PairwiseModel(judge), first, second, question=question).winner == winner
        assert compared(PairwiseModel(judge), second, first, question=question).winner == turned


def test_the_better_answer_wins_in_both_orders() -> None:
    holds(knows_better)


@pytest.mark.parametrize("always", [0, 1, 2])
def test_a_constant_model_fails_the_check_of_both_orders(always: int) -> None:
    with pytest.raises(AssertionError):
        holds(lambda sections, repeat: always)


def test_a_model_that_uses_the_reference_prefers_the_answer_that_agrees_with_it() -> None:
    given: dict[str, Any] = {"question": "How many, of 17 and 25?", "first": "42", "second": "19"}
    assert compared(PairwiseModel(knows_better), known={"answer": "19"}, **given).winner == "second"
    assert compared(PairwiseModel(knows_better), known={"answer": "19"}, reference=False, **given).winner == "first"
    assert compared(PairwiseModel(knows_better), **given).winner == "first"


def test_the_schema_requires_reasoning_and_one_of_three_numbers() -> None:
    model = replying({"reasoning": "", "preference": 2})
    compared(model)
    schema = model.parameters[0]["schema"]
    assert list(schema["properties"]) == ["reasoning", "preference"]
    for wrong in (
        {"preference": 1},
        {"reasoning": "", "preference": 3},
        {"reasoning": "", "preference": "1"},
        {"reasoning": "", "preference": None},
        {"reasoning": ""},
        {"reasoning": "", "preference": 1, "winner": "B"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


@pytest.mark.parametrize("preference", [0, 1, 2])
def test_the_verdict_can_be_requested_in_each_answer_form(preference: int) -> None:
    model = replying(1)
    compared(model)
    request, schema = {"messages": [{"role": "user", "content": model.prompts[0]}]}, model.parameters[0]["schema"]
    verdict = {"reasoning": "A adds up.", "preference": preference}
    call = {"function": {"name": "pairwise", "arguments": json.dumps(verdict)}}
    for form, message in {
        "json_schema": {"content": json.dumps(verdict)},
        "tool_call": {"tool_calls": [call]},
        "text": {"content": f"A adds up.\n[[preference: {preference}]]"},
    }.items():
        with_response_format(request, schema, form)  # type: ignore[arg-type]
        assert read_answer(message, schema, form, "stop") == verdict  # type: ignore[arg-type]


def test_an_answer_that_does_not_match_the_schema_is_an_error_and_not_a_tie() -> None:
    bad = CallError("bad_answer", "the answer does not match the schema: $.preference: 3 is not one of [1, 2, 0]")
    with pytest.raises(CallError, match="does not match the schema"):
        compared(replying(bad))


# repeats


@pytest.mark.parametrize(
    ("said", "winner", "agreement", "comment"),
    [
        ([1, 1], "first", 1.0, "repeat 0: 1"),
        ([2, 1, 2], "second", 1 / 3, "repeat 0: 2"),
        ([1, 2, 2], "second", 1 / 3, "repeat 1: 2"),
        ([0, 0, 1], "tie", 1 / 3, "repeat 0: 0"),
        ([1, 0, 2, 1], "first", 1 / 6, "repeat 0: 1"),
        ([1, 2], "tie", 0.0, "verdicts of the repeats: first, second"),
        ([2, 1, 1, 2], "tie", 1 / 3, "verdicts of the repeats: second, first, first, second"),
        ([1, 2, 0], "tie", 0.0, "repeat 2: 0"),
        ([1, 0], "tie", 0.0, "repeat 1: 0"),
        ([2, 2, 1, 1, 0], "tie", 0.2, "repeat 4: 0"),
    ],
)
def test_the_most_frequent_verdict_wins_and_equal_counts_are_a_tie(
    said: list[int], winner: str, agreement: float, comment: str
) -> None:
    preference = compared(replying(*said), repeats=len(said))
    assert (preference.winner, preference.comment, preference.repeats) == (winner, comment, len(said))
    assert preference.agreement == pytest.approx(agreement)
    mirrored = compared(replying(*({1: 2, 2: 1, 0: 0}[each] for each in said)), repeats=len(said))
    assert mirrored.winner == {"first": "second", "second": "first", "tie": "tie"}[winner], "no place is preferred"


def test_agreement_is_the_share_of_agreeing_pairs_of_repeats() -> None:
    said = [1, 2, 1, 0, 1, 2]
    pairs = [(verdict, other) for place, verdict in enumerate(said) for other in said[place + 1 :]]
    counted = sum(verdict == other for verdict, other in pairs) / len(pairs)
    assert compared(replying(*said), repeats=6).agreement == pytest.approx(counted)


def test_repeats_have_different_numbers_and_the_same_prompt() -> None:
    model = replying(1, 1, 1)
    compared(model, repeats=3)
    assert [parameters["repeat"] for parameters in model.parameters] == [0, 1, 2] and len({*model.prompts}) == 1


@pytest.mark.parametrize(
    ("settings", "temperature"),
    [({}, 0.0), ({"repeats": 2}, 1.0), ({"temperature": 0.3}, 0.3), ({"temperature": None}, "left out")],
)
def test_the_default_temperature_depends_on_the_number_of_repeats(settings: dict[str, Any], temperature: Any) -> None:
    model = replying(1, 1)
    compared(model, **settings)
    assert {parameters.get("temperature", "left out") for parameters in model.parameters} == {temperature}


def test_a_failed_repeat_fails_the_judgement_after_all_repeats_have_ended() -> None:
    model = replying(CallError("server_error", "down"), 1, 1)
    with pytest.raises(CallError, match="down"):
        compared(model, repeats=3)
    assert model.finished == 3


# prompt hash and version


def test_the_hash_depends_on_prompt_and_criteria_and_not_on_the_example() -> None:
    def hashed(**given: Any) -> str | None:
        return compared(replying(1), **given).prompt_hash

    assert hashed() == hashed(first="x", second="y", question="z?")
    assert len({hashed(), hashed(criteria="depth"), hashed(known=KNOWN), hashed(prompt=OWN)}) == 4


def test_a_change_of_wording_changes_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = vars(pairwise_preference)["version_parts"]
    before = version_of(pairwise_preference)
    for place, part in enumerate(parts):
        changed = {**part, "depth": "?"} if isinstance(part, dict) else f"{part} "
        monkeypatch.setitem(vars(pairwise_preference), "version_parts", [*parts[:place], changed, *parts[place + 1 :]])
        assert version_of(pairwise_preference) != before
    assert {PLAIN, LABELLED} <= {part for part in parts if isinstance(part, str)} and CRITERIA in parts
