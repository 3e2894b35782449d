"""rubric: scores, schema, criteria, repeats, prompt and settings."""

import asyncio
import json
from collections.abc import Sequence
from statistics import stdev
from typing import Any

import jsonschema
import pytest

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judges.rubric import PROMPT, rubric
from evalflows.evaluators.score import Score, normalise
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Completion


class ScriptedJudge:
    """A model with one reply per repeat, which records its requests. A reply that is an exception is raised."""

    def __init__(self, *says: Any) -> None:
        self.says: Sequence[Any] = says or ({"reasoning": "Fine.", "score": 4},)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.finished = 0

    async def __call__(self, messages: Any, *, repeat: int = 0, **parameters: Any) -> Completion:
        self.requests.append((messages, {"repeat": repeat} | parameters))
        await asyncio.sleep(0.001 * (len(self.says) - repeat))  # the first asked answers last
        self.finished += 1
        says = self.says[repeat]
        if isinstance(says, Exception):
            raise says
        jsonschema.validate(says, parameters["schema"])
        return Completion(text=json.dumps(says), parsed=says, model="m", call_id=f"c{repeat}")


QUESTION, ANSWER, REFERENCE = {"question": "Capital of France?"}, {"output": "It is Paris."}, {"answer": "Paris"}
RUBRIC = "The answer is short and friendly."


def judged(
    judge: ScriptedJudge | None = None,
    *,
    inputs: dict[str, Any] = QUESTION,
    outputs: dict[str, Any] = ANSWER,
    reference: dict[str, Any] | None = REFERENCE,
    metadata: dict[str, Any] | None = None,
    **settings: Any,
) -> list[Score]:
    settings = {"rubric": RUBRIC} | settings
    scores = asyncio.run(rubric(inputs, outputs, reference, metadata, judge or ScriptedJudge(), **settings))
    return scores if isinstance(scores, list) else [scores]


def prompt_sent(judge: ScriptedJudge | None = None, **given: Any) -> str:
    """Return the prompt that is sent to the model."""
    judge = judge or ScriptedJudge()
    judged(judge, **given)
    return judge.requests[0][0]


def scoring(*scores: int) -> ScriptedJudge:
    return ScriptedJudge(*({"reasoning": f"repeat {i}", "score": score} for i, score in enumerate(scores)))


def labelling(*labels: str) -> ScriptedJudge:
    return ScriptedJudge(*({"reasoning": f"repeat {i}", "label": label} for i, label in enumerate(labels)))


CRITERIA = {"faithful": {"weight": 3, "description": "Says nothing that is not so."}, "kind": "Is friendly."}


def scoring_criteria(*pairs: tuple[int, int]) -> ScriptedJudge:
    return ScriptedJudge(*({"reasoning": f"repeat {i}", "faithful": a, "kind": b} for i, (a, b) in enumerate(pairs)))


# One call


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


def test_without_reasoning_there_is_no_comment_and_otherwise_it_comes_before_or_after() -> None:
    orders = {}
    for reasoning in ("before", "after"):
        judge = ScriptedJudge({"reasoning": "", "kind": 1, "short": 1})
        judged(judge, reasoning=reasoning, criteria={"kind": "", "short": ""})
        orders[reasoning] = list(judge.requests[0][1]["schema"]["properties"])
    assert orders == {"before": ["reasoning", "kind", "short"], "after": ["kind", "short", "reasoning"]}
    (score,) = judged(ScriptedJudge({"score": 4}), reasoning="none")
    assert score.comment is None and score.value == 4


def test_the_prompt_shows_all_texts_in_order() -> None:
    prompt = prompt_sent(outputs={"output": "It is Lyon"}, metadata={"tone": "formal"})
    parts = ["Rubric:", RUBRIC, 'Give "score": a whole number from 1 (worst) to 5 (best).']
    parts += ["Question:", fenced(QUESTION["question"]), "Reference answer:", fenced("Paris"), "Answer to judge:"]
    parts += [fenced("It is Lyon")]
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)
    assert "{" not in prompt and "formal" not in prompt
    prompt = prompt_sent(labelling("so, so"), labels=["good", "so, so"])
    assert 'Give "label": one of "good", "so, so".' in prompt
    assert "Accept {outputs} and {{x}}." in prompt_sent(rubric="Accept {outputs} and {{x}}.")


def test_a_custom_prompt_can_use_either_spelling_and_needs_no_rubric() -> None:
    ours = prompt_sent(
        prompt="{inputs}|{outputs}|{reference_outputs}|{metadata}|{rubric}|{scale}", metadata={"tone": "formal"}
    )
    theirs = prompt_sent(
        prompt="{input}|{output}|{expected_output}|{metadata}|{rubric}|{scale}", metadata={"tone": "formal"}
    )
    assert ours == theirs
    assert ours.split("|")[:3] == [fenced("Capital of France?"), fenced("It is Paris."), fenced("Paris")]
    assert ours.split("|")[3] == fenced({"tone": "formal"})  # a single field keeps its name
    assert ours.split("|")[4:] == [RUBRIC, '"score": a whole number from 1 (worst) to 5 (best)']
    assert (
        prompt_sent(prompt="Is {output} kind? {{1 to 5}}", rubric="") == f"Is {fenced('It is Paris.')} kind? {{1 to 5}}"
    )


# Criteria


def test_criteria_are_judged_in_one_call_and_weighted() -> None:
    judge = scoring_criteria((5, 2))
    whole, faithful, kind = judged(judge, criteria=CRITERIA)
    assert len(judge.requests) == 1
    assert whole.value == pytest.approx((3 * 5 + 1 * 2) / 4)
    assert [(score.key, score.value) for score in (faithful, kind)] == [("faithful", 5.0), ("kind", 2.0)]
    assert {score.comment for score in (whole, faithful, kind)} == {"repeat 0"}
    assert len({(score.prompt_hash, score.repeats) for score in (whole, faithful, kind)}) == 1
    prompt = judge.requests[0][0]
    assert f"Rubric:\n{RUBRIC}\n- faithful: Says nothing that is not so.\n- kind: Is friendly.\n" in prompt
    assert 'Give for each criterion, by its name ("faithful", "kind"): a whole number from 1 (worst)' in prompt
    assert "weight" not in prompt


def test_each_criterion_is_combined_before_weighting() -> None:
    judge = scoring_criteria((5, 1), (1, 5), (5, 4))
    whole, faithful, kind = judged(judge, criteria=CRITERIA, repeats=3, combine="median")
    assert (faithful.value, kind.value) == (5.0, 4.0)
    assert whole.value == pytest.approx((3 * 5 + 4) / 4)  # of the criteria's scores, so that they agree
    per_repeat = [(15 + 1) / 4, (3 + 5) / 4, (15 + 4) / 4]
    assert whole.spread == pytest.approx(stdev(per_repeat))
    assert faithful.spread == pytest.approx(stdev([5, 1, 5])) and kind.spread == pytest.approx(stdev([1, 5, 4]))
    assert (whole.comment, faithful.comment, kind.comment) == ("repeat 2", "repeat 0", "repeat 2")


def test_criteria_can_have_weight_0_and_labels_with_numbers() -> None:
    whole, faithful, kind = judged(scoring_criteria((5, 1)), criteria={"faithful": "", "kind": {"weight": 0}})
    assert (whole.value, faithful.value, kind.value) == (5.0, 5.0, 1.0)
    judge = ScriptedJudge({"reasoning": "", "faithful": "no", "kind": "yes"})
    whole, faithful, kind = judged(judge, criteria=CRITERIA, labels={"yes": 1.0, "no": 0.0})
    assert (whole.value, whole.label) == (0.25, None)
    assert [(score.value, score.label) for score in (faithful, kind)] == [(0.0, "no"), (1.0, "yes")]


# repeats


@pytest.mark.parametrize(
    ("scores", "combine", "value", "spread", "comment"),
    [
        # The distances from 11/3 are 4/3, 4/3 and 8/3: their squares make 96/9, which is 32/3, over 2 that is 16/3.
        ((5, 5, 1), "mean", 11 / 3, (16 / 3) ** 0.5, "repeat 0"),
        ((1, 5, 5), "median", 5.0, (16 / 3) ** 0.5, "repeat 1"),
        ((1, 2, 4, 5), "median", 3.0, (10 / 3) ** 0.5, "repeat 1"),
        ((1, 2, 5), "mean", 8 / 3, (13 / 3) ** 0.5, "repeat 1"),
        ((3, 1, 1, 5), "majority", 1.0, (11 / 3) ** 0.5, "repeat 1"),
        ((5, 2, 2, 5), "majority", 5.0, 3.0**0.5, "repeat 0"),  # of a tie, what was said first
        ((2, 5, 5, 2, 3), "majority", 2.0, 2.3**0.5, "repeat 0"),
    ],
)
def test_repeats_are_combined(
    scores: tuple[int, ...], combine: str | None, value: float, spread: float, comment: str
) -> None:
    (score,) = judged(scoring(*scores), repeats=len(scores), combine=combine)
    assert score.value == pytest.approx(value)
    assert score.spread == pytest.approx(spread)
    assert (score.repeats, score.comment) == (len(scores), comment)


def test_several_repeats_use_temperature_1_unless_told() -> None:
    told: list[dict[str, Any]] = [{}, {"repeats": 3}, {"repeats": 3, "temperature": 0.3}, {"temperature": None}]
    for settings, wanted in zip(told, (0.0, 1.0, 0.3, None), strict=True):
        judge = scoring(4, 4, 4)
        judged(judge, **settings)
        assert {given.get("temperature") for _, given in judge.requests} == {wanted}


def test_a_failed_repeat_fails_the_judgement_after_all_repeats_have_ended() -> None:
    judge = scoring(4, 4, 4)
    judge.says = [judge.says[0], CallError("refused", "no"), judge.says[2]]
    with pytest.raises(CallError, match="no") as raised:
        judged(judge, repeats=3)
    assert raised.value.kind == "refused"
    assert judge.finished == 3  # what the others cost is known by then


# labels


@pytest.mark.parametrize(
    ("labels", "label", "comment"),
    [
        (("bad", "good", "good"), "good", "repeat 1"),
        (("bad", "good", "good", "bad"), "bad", "repeat 0"),  # of a tie, what was said first
        (("fair", "bad", "good"), "fair", "repeat 0"),
        (("fair", "good", "bad", "good", "bad"), "good", "repeat 1"),
    ],
)
def test_labels_take_the_majority(labels: tuple[str, ...], label: str, comment: str) -> None:
    (score,) = judged(labelling(*labels), labels=["good", "fair", "bad"], repeats=len(labels))
    assert (score.value, score.label, score.comment) == (None, label, comment)
    assert (score.spread, score.repeats) == (None, len(labels))


def test_labels_can_have_numbers_also_0() -> None:
    (score,) = judged(labelling("bad", "good", "good"), labels={"good": 1, "fair": 0.5, "bad": 0}, repeats=3)
    assert (score.value, score.label) == (1.0, "good")  # not the mean of the numbers
    assert score.spread == pytest.approx((1 / 3) ** 0.5)
    (score,) = judged(labelling("bad"), labels={"good": 1, "bad": 0})
    (judgement,) = normalise(score, "tone")
    assert (judgement.value, judgement.label, judgement.data_type) == (0.0, "bad", "NUMERIC")


# texts that imitate fences and verdicts


# prompt hash and rejected settings


def test_the_hash_covers_the_prompt_and_settings_but_not_the_example() -> None:
    def hash_of(**given: Any) -> str | None:
        judge = (
            labelling("a")
            if "labels" in given
            else scoring_criteria((5, 2))
            if "criteria" in given
            else ScriptedJudge()
        )
        return judged(judge, **given)[0].prompt_hash

    same = [{}, {"outputs": {"output": "Lyon"}}, {"reference": None}, {"metadata": {"a": 1}}, {"temperature": 0.5}]
    others: list[dict[str, Any]] = [{"prompt": f"{PROMPT} "}, {"rubric": f"{RUBRIC} "}, {"scale": (0, 5)}]
    others += [{"labels": ["a", "b"]}, {"criteria": CRITERIA}, {"criteria": {**CRITERIA, "kind": "Is warm."}}]
    others += [{"reasoning": "after"}]
    assert len({hash_of(**given) for given in same}) == 1
    assert len({hash_of(**given) for given in [{}, *others]}) == 1 + len(others)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"prompt": "{outputs} {question} {rubric}"},
            "prompt: asks for {question}, wanted any of expected_output, inp",
        ),
        ({"prompt": "Is {inputs} good? {rubric}"}, "prompt: wanted {outputs} or {output} in it"),
        ({"prompt": "Is {output} good?", "rubric": "", "criteria": {"kind": ""}}, "prompt: wanted {rubric} in it"),
        ({"rubric": ""}, "rubric: got nothing to judge by, wanted a rubric, criteria, or a prompt without {rubric}"),
        ({"rubric": ["a"]}, "rubric: got ['a'], wanted a text"),
        ({"scale": [5, 1]}, "scale: got [5, 1], wanted two whole numbers, the lowest first"),
        ({"scale": [1, 3, 5]}, "scale: got [1, 3, 5]"),
        ({"scale": "15"}, "scale: got '15'"),
        ({"labels": ["a"]}, "labels: got ['a']"),
        ({"labels": ["a", "b", "a"]}, "labels: got ['a', 'b', 'a']"),
        ({"labels": [True, False]}, "labels: got True, wanted a text (in YAML, yes, no, on and off are only texts"),
        ({"labels": {"a": 1, "b": None}}, "labels: b: got None, wanted a number"),
        ({"labels": ["a", "b"], "combine": "mean"}, "combine: got 'mean' with labels, wanted 'majority'"),
        ({"labels": ["a", "b"], "criteria": {"kind": ""}}, "labels: got texts only with criteria, wanted a number"),
        ({"combine": "max"}, "combine: got 'max', wanted mean, median, majority"),
        ({"criteria": {True: "x"}}, "criteria: got True, wanted a text"),
        ({"criteria": {"": "x"}}, "criteria: got '', wanted a text"),
        ({"criteria": {"answer_length": "x"}}, "criteria: got the name 'answer_length', wanted one other than"),
        ({"criteria": {"kind": 2}}, "criteria: kind: got 2, wanted a text, or description and weight"),
        ({"prompt": None}, "prompt: got None, wanted a text"),
        ({"criteria": {"kind": {"wieght": 2}}}, "criteria: kind: got 'wieght', wanted weight or description"),
        ({"criteria": {"kind": {"weight": "2"}}}, "criteria: kind: got the weight '2'"),
        ({"criteria": {"kind": {"weight": 0}}}, "criteria: got weights that are all 0, wanted one above 0"),
        ({"repeats": 0}, "repeats: got 0, wanted a whole number of at least 1"),
        ({"repeats": True}, "repeats: got True"),
        ({"temperature": "hot"}, "temperature: got 'hot'"),
    ],
)
def test_an_invalid_setting_is_an_error_before_any_call(settings: dict[str, Any], says: str) -> None:
    judge = ScriptedJudge()
    with pytest.raises(ValueError) as raised:
        judged(judge, **settings)
    assert says in str(raised.value) and "\n" not in str(raised.value)
    assert judge.requests == []


def test_the_range_of_the_scale_is_declared_for_each_metric() -> None:
    declared = rubric.metrics("quality", {"scale": [0, 10], "criteria": {"polite": "Is it?"}})  # type: ignore[attr-defined]
    assert declared == {name: {"higher_is_better": True, "range": [0.0, 10.0]} for name in ("quality", "polite")}
    assert "range" not in rubric.metrics("tone", {"labels": ["warm", "cold"]})["tone"]  # type: ignore[attr-defined]
