"""pairwise_preference: the prompt, the winner, its schema, repeats and settings."""

import asyncio
import json
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from evalflows.cli.main import cli
from evalflows.evaluators import PAIRWISE
from evalflows.evaluators.binding import bind
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.pairwise import pairwise_preference
from evalflows.evaluators.prompt_texts import NONE
from evalflows.evaluators.score import Preference, preferences
from evalflows.evaluators.views import ExampleView, RunView, offer_pair
from evalflows.specs.protocols import Completion


class PairwiseModel:
    """A model with one reply per repeat, whatever the prompt says."""

    def __init__(self, *each: Any) -> None:
        self.each = each
        self.prompts: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    async def __call__(
        self, messages: Any, *, schema: dict[str, Any], repeat: int = 0, **parameters: Any
    ) -> Completion:
        self.prompts.append(messages)
        self.parameters.append({"schema": schema, "repeat": repeat, **parameters})
        await asyncio.sleep(0.001 * (5 - repeat))  # the first asked answers last
        says = self.each[repeat]
        verdict = says if isinstance(says, dict) else {"reasoning": f"repeat {repeat}: {says}", "preference": says}
        jsonschema.validate(verdict, schema)
        return Completion(text=json.dumps(verdict), parsed=verdict, model="planted", call_id=f"c{repeat}")


def compared(
    model: PairwiseModel,
    first: Any = "It is 42.",
    second: Any = "It is 41.",
    *,
    question: Any = "What is 17 + 25?",
    known: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **settings: Any,
) -> Preference:
    """Return the preference as a comparison gets it. `known` is the example's reference."""
    inputs = {"question": question}
    answers = [answer if isinstance(answer, dict) else {"output": answer} for answer in (first, second)]
    example = ExampleView(id="e", inputs=inputs, reference_outputs=known, metadata=metadata or {})
    runs = [RunView(id=f"r{number}", inputs=inputs, outputs=answer) for number, answer in enumerate(answers)]
    bound = bind(pairwise_preference, settings=settings, scope="pair")
    assert bound.is_async
    returned = asyncio.run(bound.call({**offer_pair(example, *runs), "complete": model}))
    (preference,) = preferences(returned, bound.name, [run.id for run in runs])
    assert preference.key == "pairwise_preference"
    return preference


def prompt_sent(**given: Any) -> str:
    """Return the prompt that is sent to the model."""
    model = PairwiseModel(1)
    compared(model, **given)
    return model.prompts[0]


KNOWN = {"answer": "forty-two"}
OWN = "By {criteria}: {inputs}? {first} or {second}; known: {reference_outputs}, {metadata}. {verdict}"


# texts in the prompt


def test_the_prompt_shows_all_texts_in_the_given_order() -> None:
    prompt = prompt_sent(first="One.", second="Two.", known={"answer": "42"})
    parts = ["Question", "What is 17 + 25?", "Reference answer", "42", "Answer A", "One.", "Answer B", "Two."]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    places = [prompt.index(f"{heading}:\n{fenced(text)}") for heading, text in pairs]
    assert places == sorted(places)
    assert '"preference": 1 if answer A is better, 2 if answer B is better, 0 if neither is.' in prompt[: places[0]]
    assert "{" not in prompt
    turned = prompt_sent(first="Two.", second="One.", known={"answer": "42"})
    assert turned.index(fenced("Two.")) < turned.index(fenced("One."))


@pytest.mark.parametrize(
    ("setting", "known", "is_shown"),
    [(None, KNOWN, True), (None, None, False), (None, {}, False), (True, KNOWN, True), (False, KNOWN, False)],
)
def test_the_reference_is_shown_or_not(setting: bool | None, known: Any, is_shown: bool) -> None:
    prompt = prompt_sent(known=known, reference=setting)
    assert (fenced("forty-two") in prompt) == is_shown
    assert ("A reference answer, which is right, helps you." in prompt) == is_shown
    assert ("There is no reference answer" in prompt) != is_shown


@pytest.mark.parametrize("known", [None, {}])
@pytest.mark.parametrize("prompt", [None, "{first} {second} {reference_outputs}"])
def test_an_example_without_the_required_reference_does_not_apply(known: Any, prompt: str | None) -> None:
    model = PairwiseModel(1)
    preference = compared(model, known=known, reference=True, prompt=prompt)
    assert (preference.winner, preference.status, model.prompts) == (None, "not_applicable", [])


def test_a_key_names_the_field_of_both_answers_and_of_the_reference() -> None:
    answers = [{"answer": text, "sources": ["x.txt"]} for text in ("One.", "Two.")]
    prompt = prompt_sent(first=answers[0], second=answers[1], known={"answer": "Three.", "why": "hm"}, key="answer")
    assert all(fenced(text) in prompt for text in ("One.", "Two.", "Three.")) and "x.txt" not in prompt
    assert fenced(answers[0]) in prompt_sent(first=answers[0], second=answers[1])
    with pytest.raises(KeyError, match="no field 'said', got output"):
        prompt_sent(key="said")


# a custom prompt


def test_a_custom_prompt_is_sent_unchanged() -> None:
    prompt = prompt_sent(prompt=OWN, criteria={"b": "Brief?"}, known={"a": "42"}, metadata={"tone": "formal"})
    values = ["What is 17 + 25?", "It is 42.", "It is 41.", "42", {"tone": "formal"}]
    expected = "By - b: Brief?: {}? {} or {}; known: {}, {}. ".format(*map(fenced, values))
    assert prompt.startswith(expected + 'Give "reasoning" first')
    assert f"known: {NONE}, {NONE}." in prompt_sent(prompt=OWN)
    assert f"known: {NONE}, " in prompt_sent(prompt=OWN, known={"a": "42"}, reference=False)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "{first}"}, r"prompt: wanted \{second\} in it"),
    ({"prompt": "{first} {second} {outputs}"}, r"prompt: asks for \{outputs\}, wanted any of criteria, first, inputs,"),
    ({"prompt": "{first} {second}", "criteria": "depth"}, r"prompt: wanted \{criteria\} in it"),
    ({"prompt": "{first} {second}", "reference": True}, r"prompt: wanted \{reference_outputs\} in it"),
    ({"reference": "yes"}, "reference: got 'yes', wanted true, false or null"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_an_invalid_setting_is_an_error_before_any_call(settings: dict[str, Any], message: str) -> None:
    model = PairwiseModel(1)
    for known in (None, {"answer": "42"}):
        with pytest.raises(ValueError, match=f"^{message}") as raised:
            compared(model, known=known, **settings)
        assert "\n" not in str(raised.value)
    assert model.prompts == []


# a single call


@pytest.mark.parametrize(("preference", "winner"), [(1, "first"), (2, "second"), (0, "tie")])
def test_the_winner_and_the_comment_are_the_models_preference_and_reasoning(preference: int, winner: str) -> None:
    result = compared(PairwiseModel(preference))
    assert (result.winner, result.scores, result.comment) == (winner, None, f"repeat 0: {preference}")
    assert (result.repeats, result.agreement, result.status) == (1, None, "scored")
    assert result.prompt_hash and len(result.prompt_hash) == 16


def test_the_schema_requires_reasoning_and_one_of_three_numbers() -> None:
    model = PairwiseModel({"reasoning": "", "preference": 2})
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


# repeats


@pytest.mark.parametrize(
    ("said", "winner", "agreement", "comment"),
    [
        ([1, 1], "first", 1.0, "repeat 0: 1"),
        ([1, 2, 2], "second", 1 / 3, "repeat 1: 2"),
        ([0, 0, 1], "tie", 1 / 3, "repeat 0: 0"),
        ([1, 2], "tie", 0.0, "verdicts of the repeats: first, second"),
        ([2, 1, 1, 2], "tie", 1 / 3, "verdicts of the repeats: second, first, first, second"),
        ([1, 2, 0], "tie", 0.0, "repeat 2: 0"),
        ([2, 2, 1, 1, 0], "tie", 0.2, "repeat 4: 0"),
    ],
)
def test_the_most_frequent_verdict_wins_and_equal_counts_are_a_tie(
    said: list[int], winner: str, agreement: float, comment: str
) -> None:
    preference = compared(PairwiseModel(*said), repeats=len(said))
    assert (preference.winner, preference.comment, preference.repeats) == (winner, comment, len(said))
    assert preference.agreement == pytest.approx(agreement)
    mirrored = compared(PairwiseModel(*({1: 2, 2: 1, 0: 0}[each] for each in said)), repeats=len(said))
    assert mirrored.winner == {"first": "second", "second": "first", "tie": "tie"}[winner], "no place is preferred"


# Names


@pytest.mark.parametrize("name", PAIRWISE)
def test_none_is_tried_on_one_answer(name: str) -> None:
    row = '{"inputs": "q", "outputs": "a"}'
    done = CliRunner().invoke(cli, ["evaluators", name, "--try", row])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"evalflows: --try: {name} compares two answers, wanted an evaluator of one answer\n"
